"""What a call may give: an object, what a function returns, a container, a partial."""

import ast
from typing import TYPE_CHECKING

from tools.contract.local import returns
from tools.contract.signature import arguments_of
from tools.contract.source import FunctionInfo
from tools.contract.values import (
    UNKNOWN,
    Bound,
    ClassValue,
    Closure,
    Container,
    Foreign,
    ForeignInstance,
    Frame,
    Instance,
    Partial,
    Row,
    Super,
    Value,
    Values,
)

if TYPE_CHECKING:
    from tools.contract.infer import Interpreter

_MODULE_LISTS = frozenset(
    ("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict", "list", "tuple", "iter")
)
_SAME = frozenset(("islice", "reversed", "sorted", "list", "tuple", "iter", "set", "deepcopy"))


class Results:
    """Follows calls for an interpreter, which evaluates functions and arguments.

    Args:
        of: The interpreter.
    """

    def __init__(self, of: "Interpreter") -> None:
        self.of = of

    def call(self, node: ast.Call, frame: Frame) -> Values:
        """Return what a call may give."""
        if isinstance(node.func, ast.Name):
            special = self._special(node, node.func.id, frame)
            if special is not None:
                return special
        found: set[Value] = set()
        for callee in self.of.evaluate(node.func, frame):
            found |= self._result(callee, node, frame)
        return frozenset(found)

    def _special(self, node: ast.Call, name: str, frame: Frame) -> Values | None:
        if name == "super" and frame.me is not None and frame.function is not None:
            owner = frame.function.owner
            if node.args:  # super(Class, self)
                named = self.of.evaluate(node.args[0], frame)
                owner = next((v.cls for v in named if isinstance(v, ClassValue)), None)
            return frozenset({Super(frame.me, owner)}) if owner is not None else UNKNOWN
        if name in _SAME and node.args:
            return self.of.evaluate(node.args[0], frame)
        if name == "cast" and len(node.args) == 2:
            return self.of.evaluate(node.args[1], frame) or self.of.annotations.read(
                node.args[0], frame
            )
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            return self.of.each(self.of.evaluate(node.args[0], frame), str(node.args[1].value))
        if name == "next" and node.args:
            return self.of.items(node.args[0], self.of.evaluate(node.args[0], frame), frame)
        return None

    def _result(  # noqa: PLR0911 - one case for each kind of value
        self, callee: Value, node: ast.Call, frame: Frame
    ) -> Values:
        match callee:
            case ClassValue():
                return frozenset({Instance(callee.cls)})
            case Bound():
                args = self.bind(callee.info, callee.filled, node, frame)
                return self.returned(callee.info, callee.receiver, args, frame.depth + 1)
            case Instance():
                member = self.of.classes.member(callee.cls, self.of.classes.called_as(callee.cls))
                if member is None or member.function is None:
                    return UNKNOWN
                args = self.bind(member.function, True, node, frame)
                return self.returned(member.function, callee, args, frame.depth + 1)
            case Closure():
                inner = Frame(
                    callee.frame.module,
                    callee.frame.function,
                    callee.frame.me,
                    {arg.arg: UNKNOWN for arg in callee.node.args.args},
                    callee.frame,
                    frame.depth + 1,
                )
                return self.of.evaluate(callee.node.body, inner)
            case Partial():
                return self._result(callee.target, node, frame)
            case Foreign():
                return self._foreign(callee.name, node, frame)
            case _:
                return UNKNOWN

    def _foreign(self, name: str, node: ast.Call, frame: Frame) -> Values:
        if name in _MODULE_LISTS:
            items: set[Value] = set()
            for arg in node.args:
                for value in self.of.evaluate(arg, frame):
                    items |= value.items if isinstance(value, Container) else set()
                    for part in value.items if isinstance(value, Row) else ():
                        items |= part
            return frozenset({Container(frozenset(items))}) if items else UNKNOWN
        if name == "functools.partial" and node.args:
            rest = ast.Call(node.func, node.args[1:], node.keywords)
            return frozenset(
                Partial(target, arguments_of(rest))
                for target in self.of.evaluate(node.args[0], frame)
            )
        if name in {"itertools.islice", "copy.deepcopy", "copy.copy"} and node.args:
            return self.of.evaluate(node.args[0], frame)
        last = name.rpartition(".")[2].lstrip("_")
        return frozenset({ForeignInstance(name)}) if last[:1].isupper() else UNKNOWN

    def bind(
        self, info: FunctionInfo, filled: bool, node: ast.Call, frame: Frame
    ) -> dict[str, Values]:
        """Return what a call binds to parameters, as far as it tells something."""
        args = info.node.args
        names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
        if filled:
            names = names[1:]
        found: dict[str, Values] = {}
        for name, arg in zip(names, node.args, strict=False):
            if isinstance(arg, ast.Starred):
                break
            values = self.of.evaluate(arg, frame)
            if values:
                found[name] = values
        for keyword in node.keywords:
            if keyword.arg:
                values = self.of.evaluate(keyword.value, frame)
                if values:
                    found[keyword.arg] = values
        return found

    def returned(
        self, info: FunctionInfo, me: Instance | None, args: dict[str, Values], depth: int
    ) -> Values:
        """Return what a function may return, by its annotation or else by its returns."""
        frame = Frame(info.module, info, me, dict(args), None, depth)
        annotation = info.node.returns
        if annotation is not None:
            values = self.of.annotations.read(annotation, frame)
            if any(isinstance(v, Instance | Row | Container) for v in values):
                return values
        if depth > 5 or any(isinstance(node, ast.Yield) for node, _ in info.nodes):
            return UNKNOWN
        for name, local in self.of.table(info.node).items():
            if name in args and local:
                frame.args.pop(name, None)
        found: set[Value] = set()
        for node in returns(info.node.body):
            found |= self.of.evaluate(node, frame)
        return frozenset(found)
