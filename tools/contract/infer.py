"""A small abstract interpreter: which classes and functions an expression may stand for.

It follows constructors, attributes of ``self``, module lists, partial applications, lambdas and
annotations. Where it cannot tell it returns the empty set, and no rule speaks about that place.
A local name with several assignments counts as unknown, because their order is not followed.
"""

import ast

from tools.contract.annotations import Annotations
from tools.contract.classes import Assignment, Classes, Member
from tools.contract.local import Local, bindings, returns, targets
from tools.contract.program import (
    Dynamic,
    External,
    ModuleRef,
    Program,
    Symbol,
    VariableRef,
)
from tools.contract.signature import arguments_of
from tools.contract.source import (
    ClassInfo,
    Comprehension,
    FunctionInfo,
    FunctionNode,
    Scope,
)
from tools.contract.values import (
    UNKNOWN,
    Bound,
    ClassValue,
    Closure,
    Container,
    Foreign,
    ForeignInstance,
    Frame,
    HfConfig,
    Instance,
    ModuleValue,
    Partial,
    Row,
    Super,
    Value,
    Values,
    container,
)

_DEPTH = 24
_MODULE_LISTS = frozenset(
    ("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict", "list", "tuple", "iter")
)
_SAME = frozenset(("islice", "reversed", "sorted", "list", "tuple", "iter", "set", "deepcopy"))
PROPERTIES = frozenset(("property", "cached_property"))
_ON_CLASS = frozenset(("__new__", "__init_subclass__", "__class_getitem__"))


class Interpreter:
    """Evaluates expressions of a program."""

    def __init__(self, program: Program, classes: Classes) -> None:
        self.program = program
        self.classes = classes
        self.annotations = Annotations(classes)
        self._locals: dict[ast.AST, dict[str, list[Local]]] = {}
        self._attributes: dict[tuple[Instance, str], Values] = {}
        self._attributes_busy: set[tuple[Instance, str]] = set()

    def method_frame(self, info: FunctionInfo, me: Instance | None) -> Frame:
        """Return the frame of a method's body."""
        return Frame(info.module, info, me)

    # -- expressions ------------------------------------------------------------------------

    def evaluate(self, node: ast.expr, frame: Frame) -> Values:
        """Return what an expression may be, empty where that cannot be told."""
        key = id(node)
        if key in frame.memo:
            return frame.memo[key]
        if key in frame.busy or frame.depth > _DEPTH:
            return UNKNOWN
        frame.busy.add(key)
        try:
            found = self._evaluate(node, frame)
        except RecursionError:
            found = UNKNOWN
        finally:
            frame.busy.discard(key)
        frame.memo[key] = found
        return found

    def _evaluate(  # noqa: PLR0911, PLR0912 - one case for each kind of expression
        self, node: ast.expr, frame: Frame
    ) -> Values:
        match node:
            case ast.Name():
                return self._name(node.id, frame)
            case ast.Attribute(attr="hf_config") if frame.me is not None:
                return frozenset({HfConfig(frame.me.cls)})
            case ast.Attribute():
                return self._each(self.evaluate(node.value, frame), node.attr)
            case ast.Call():
                return self._call(node, frame)
            case ast.List() | ast.Set():
                return container([self.evaluate(part, frame) for part in node.elts])
            case ast.Tuple():
                return frozenset({Row(tuple(self.evaluate(part, frame) for part in node.elts))})
            case ast.Dict():
                return container([self.evaluate(part, frame) for part in node.values])
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                return self._comprehension(node, node.elt, frame)
            case ast.DictComp():
                return self._comprehension(node, node.value, frame)
            case ast.IfExp():
                return self.either([node.body, node.orelse], frame)
            case ast.BoolOp():
                return self.either(node.values, frame)
            case ast.NamedExpr():
                return self.evaluate(node.value, frame)
            case ast.Await():
                return self.evaluate(node.value, frame)
            case ast.Subscript():
                return self._subscript(node, frame)
            case ast.Lambda():
                return frozenset({Closure(node, frame)})
            case ast.BinOp() if isinstance(node.op, ast.Add | ast.Mult):
                parts = self.evaluate(node.left, frame) | self.evaluate(node.right, frame)
                return frozenset(part for part in parts if isinstance(part, Container))
            case _:
                return UNKNOWN

    def either(self, nodes: list[ast.expr], frame: Frame) -> Values:
        """Return what one of several expressions may be, empty where one of them is unknown."""
        found: set[Value] = set()
        for node in nodes:
            if isinstance(node, ast.Constant) and node.value is None:
                continue
            values = self.evaluate(node, frame)
            if not values:
                return UNKNOWN
            found |= values
        return frozenset(found)

    def inner_frame(self, node: Scope, frame: Frame) -> Frame:
        """Return the frame of a comprehension, lambda or nested function."""
        if isinstance(node, Comprehension):
            return self.comprehension_frame(node, frame)
        args = node.args
        unknown = {arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        if not isinstance(node, ast.Lambda):
            unknown |= set(bindings(node.body))
        known = dict.fromkeys(unknown, UNKNOWN)
        return Frame(frame.module, frame.function, frame.me, known, frame, frame.depth)

    def comprehension_frame(self, node: Comprehension, frame: Frame) -> Frame:
        """Return the frame of a comprehension's element."""
        inner = Frame(frame.module, frame.function, frame.me, {}, frame, frame.depth + 1)
        for generator in node.generators:
            for name, local in targets(generator.target, generator.iter, "item"):
                inner.args[name] = self._local(local, inner)
        return inner

    def _comprehension(self, node: Comprehension, element: ast.expr, frame: Frame) -> Values:
        inner = self.comprehension_frame(node, frame)
        items = self.evaluate(element, inner)
        return frozenset({Container(items)}) if items else UNKNOWN

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Values:
        found: set[Value] = set()
        for value in self.evaluate(node.value, frame):
            match value:
                case Container():
                    if isinstance(node.slice, ast.Slice):
                        found.add(value)
                    else:
                        found |= value.items
                case Row():
                    found |= _row_item(value, node.slice)
                case ClassValue():
                    found.add(value)  # A generic class with its parameters.
                case _:
                    pass
        return frozenset(found)

    # -- names ------------------------------------------------------------------------------

    def _name(self, name: str, frame: Frame) -> Values:
        scope: Frame | None = frame
        while scope is not None:
            if name in scope.args:
                return scope.args[name]
            if scope.function is not None and (
                scope.parent is None or scope.parent.function is not scope.function
            ):
                local = self._function_name(name, scope)
                if local is not None:
                    return local
            scope = scope.parent
        symbol = self.program.resolve(frame.module.name, name)
        if symbol is None:
            return frozenset({Foreign(name)}) if name in {"list", "tuple"} else UNKNOWN
        return self.symbol(symbol)

    def _function_name(self, name: str, frame: Frame) -> Values | None:
        """Return what a local name or parameter is, None where the function has no such name."""
        info = frame.function
        if info is None:
            return None
        if name == info.self_name and frame.me is not None:
            on_class = "classmethod" in info.decorators or info.name in _ON_CLASS
            return frozenset({ClassValue(frame.me.cls) if on_class else frame.me})
        bound = self._table(info.node).get(name, [])
        args = info.node.args
        for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
            if arg.arg == name:
                # A parameter that is rebound may be either, before or after.
                return UNKNOWN if bound else self.annotations.read(arg.annotation, frame)
        if any(star is not None and star.arg == name for star in (args.vararg, args.kwarg)):
            return UNKNOWN
        if not bound:
            return None
        return self._local(bound[0], frame) if len(bound) == 1 else UNKNOWN

    def _local(self, local: Local, frame: Frame) -> Values:
        values = self.evaluate(local.node, frame)
        if local.how == "value":
            return values or self.annotations.read(local.annotation, frame)
        if local.how == "item":
            return self.items(local.node, values, frame, local.index)
        found: set[Value] = set()
        for value in values:
            if isinstance(value, Row) and local.index < len(value.items):
                found |= value.items[local.index]
            elif isinstance(value, Container):
                found |= value.items
        return frozenset(found)

    def items(self, node: ast.expr, values: Values, frame: Frame, index: int = -1) -> Values:
        """Return what iterating over an expression yields; ``index`` picks from a tuple."""
        match node:
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]):
                return UNKNOWN if index == 0 else self._items_of(inner, frame)
            case ast.Call(func=ast.Name(id="zip"), args=parts) if 0 <= index < len(parts):
                return self._items_of(parts[index], frame)
            case ast.Call(func=ast.Attribute(attr="items", value=inner)):
                return UNKNOWN if index == 0 else self._items_of(inner, frame)
            case ast.Call(func=ast.Attribute(attr="values", value=inner)):
                return self._items_of(inner, frame)
            case _:
                pass
        found: set[Value] = set()
        for value in values:
            if isinstance(value, Container):
                found |= value.items
            elif isinstance(value, Row):
                found = found.union(*value.items)
        if index >= 0 and any(isinstance(value, Row) for value in found):
            return frozenset[Value]().union(
                *(
                    value.items[index]
                    for value in found
                    if isinstance(value, Row) and index < len(value.items)
                )
            )
        return frozenset(found)

    def _items_of(self, node: ast.expr, frame: Frame) -> Values:
        return self.items(node, self.evaluate(node, frame), frame)

    def _table(self, node: FunctionNode) -> dict[str, list[Local]]:
        """Return the bindings of local names in a function, nested functions left out."""
        if node not in self._locals:
            self._locals[node] = bindings(node.body)
        return self._locals[node]

    def symbol(self, symbol: Symbol) -> Values:  # noqa: PLR0911 - one case a kind
        """Return what a module-level symbol is as a value."""
        match symbol:
            case ClassInfo():
                return frozenset({ClassValue(symbol)})
            case FunctionInfo():
                return frozenset({Bound(symbol)})
            case ModuleRef():
                return frozenset({ModuleValue(symbol.name)})
            case External():
                return frozenset({Foreign(symbol.name)})
            case VariableRef():
                if len(symbol.module.bindings.get(symbol.name, ())) != 1:
                    return UNKNOWN
                return self.evaluate(symbol.value, Frame(symbol.module, depth=2))
            case Dynamic():
                return UNKNOWN

    # -- attributes -------------------------------------------------------------------------

    def _each(self, values: Values, name: str) -> Values:
        found: set[Value] = set()
        for value in values:
            found |= self.attribute(value, name)
        return frozenset(found)

    def attribute(self, value: Value, name: str) -> Values:  # noqa: PLR0911 - one case a kind
        """Return what an attribute of a value may be."""
        match value:
            case Instance():
                return self._instance_attribute(value, name)
            case ClassValue():
                return self._class_attribute(value.cls, name)
            case Super():
                member = self.classes.member(value.receiver.cls, name, value.after)
                return self._member(member, value.receiver) if member else UNKNOWN
            case ModuleValue():
                symbol = self.program.resolve(value.name, name)
                return self.symbol(symbol) if symbol is not None else UNKNOWN
            case Foreign():
                return frozenset({Foreign(f"{value.name}.{name}")})
            case HfConfig() if name.endswith("_config"):
                return frozenset({HfConfig(value.owner, (*value.path, name))})
            case _:
                return UNKNOWN

    def _class_attribute(self, cls: ClassInfo, name: str) -> Values:
        member = self.classes.member(cls, name)
        if member is None:
            return UNKNOWN
        if member.function is not None:
            info = member.function
            if "classmethod" in info.decorators:
                return frozenset({Bound(info, Instance(cls), filled=True)})
            return frozenset({Bound(info, Instance(cls))})
        return self._member(member, Instance(cls))

    def _instance_attribute(self, value: Instance, name: str) -> Values:
        for known, attr in value.attrs:
            if known == name:
                return frozenset({attr})
        key = (value, name)
        if key in self._attributes:
            return self._attributes[key]
        if key in self._attributes_busy:
            return UNKNOWN
        self._attributes_busy.add(key)
        try:
            found = self._find_attribute(value, name)
        finally:
            self._attributes_busy.discard(key)
        self._attributes[key] = found
        return found

    def _find_attribute(self, value: Instance, name: str) -> Values:
        member = self.classes.member(value.cls, name)
        if member is not None and member.function is not None:
            return self._member(member, value)
        assigned = self.classes.assignments(value.cls, name)
        if member is not None and assigned and member.owner is not assigned[0].owner:
            line = self.classes.line(value.cls)
            if line.index(member.owner) < line.index(assigned[0].owner):
                # A subclass that narrows the declaration of what its base assigns.
                return self._member(member, value)
        found: set[Value] = set()
        for assignment in assigned:
            if isinstance(assignment.value, ast.Constant) and assignment.value.value is None:
                continue
            values = self.assigned(assignment, value)
            if not values:
                return UNKNOWN
            found |= values
        if found:
            return frozenset(found)
        return self._member(member, value) if member is not None else UNKNOWN

    def assigned(self, assignment: Assignment, me: Instance) -> Values:
        """Return what one assignment to an attribute of ``self`` may store."""
        frame = self.method_frame(assignment.function, me)
        values: Values = UNKNOWN
        if assignment.value is not None:
            values = self.evaluate(assignment.value, frame)
            if assignment.index is not None:
                picked: set[Value] = set()
                for value in values:
                    if isinstance(value, Row) and assignment.index < len(value.items):
                        picked |= value.items[assignment.index]
                values = frozenset(picked)
        if not values and assignment.annotation is not None:
            values = self.annotations.read(assignment.annotation, frame)
        return values

    def _member(self, member: Member, me: Instance) -> Values:
        info = member.function
        if info is not None:
            if PROPERTIES & set(info.decorators):
                return self.returned(info, me, {}, 1)
            if "staticmethod" in info.decorators:
                return frozenset({Bound(info, me)})
            return frozenset({Bound(info, me, filled=True)})
        frame = Frame(member.owner.module, None, me, depth=2)
        values: Values = UNKNOWN
        if member.value is not None:
            values = self.evaluate(member.value, frame)
        if not values and member.annotation is not None:
            values = self.annotations.read(member.annotation, frame)
        return values

    # -- calls ------------------------------------------------------------------------------

    def _call(self, node: ast.Call, frame: Frame) -> Values:
        if isinstance(node.func, ast.Name):
            special = self._special(node, node.func.id, frame)
            if special is not None:
                return special
        found: set[Value] = set()
        for callee in self.evaluate(node.func, frame):
            found |= self._result(callee, node, frame)
        return frozenset(found)

    def _special(self, node: ast.Call, name: str, frame: Frame) -> Values | None:
        if name == "super" and frame.me is not None and frame.function is not None:
            owner = frame.function.owner
            if node.args:  # super(Class, self)
                named = self.evaluate(node.args[0], frame)
                owner = next((v.cls for v in named if isinstance(v, ClassValue)), None)
            return frozenset({Super(frame.me, owner)}) if owner is not None else UNKNOWN
        if name in _SAME and node.args:
            return self.evaluate(node.args[0], frame)
        if name == "cast" and len(node.args) == 2:
            return self.evaluate(node.args[1], frame) or self.annotations.read(node.args[0], frame)
        if name == "getattr" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            return self._each(self.evaluate(node.args[0], frame), str(node.args[1].value))
        if name == "next" and node.args:
            return self.items(node.args[0], self.evaluate(node.args[0], frame), frame)
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
                member = self.classes.member(callee.cls, self.called_as(callee.cls))
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
                return self.evaluate(callee.node.body, inner)
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
                for value in self.evaluate(arg, frame):
                    items |= value.items if isinstance(value, Container) else set()
                    for part in value.items if isinstance(value, Row) else ():
                        items |= part
            return frozenset({Container(frozenset(items))}) if items else UNKNOWN
        if name == "functools.partial" and node.args:
            rest = ast.Call(node.func, node.args[1:], node.keywords)
            return frozenset(
                Partial(target, arguments_of(rest)) for target in self.evaluate(node.args[0], frame)
            )
        if name in {"itertools.islice", "copy.deepcopy", "copy.copy"} and node.args:
            return self.evaluate(node.args[0], frame)
        last = name.rpartition(".")[2].lstrip("_")
        return frozenset({ForeignInstance(name)}) if last[:1].isupper() else UNKNOWN

    def called_as(self, cls: ClassInfo) -> str:
        """Return the method that calling an object runs."""
        member = self.classes.member(cls, "__call__")
        if member is not None and member.function is not None:
            return "__call__"
        return "forward" if self.classes.is_module(cls) else "__call__"

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
            values = self.evaluate(arg, frame)
            if values:
                found[name] = values
        for keyword in node.keywords:
            if keyword.arg:
                values = self.evaluate(keyword.value, frame)
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
            values = self.annotations.read(annotation, frame)
            if any(isinstance(v, Instance | Row | Container) for v in values):
                return values
        if depth > 5 or any(isinstance(node, ast.Yield) for node, _ in info.nodes):
            return UNKNOWN
        for name, local in self._table(info.node).items():
            if name in args and local:
                frame.args.pop(name, None)
        found: set[Value] = set()
        for node in returns(info.node.body):
            found |= self.evaluate(node, frame)
        return frozenset(found)


def _row_item(row: Row, index: ast.expr) -> Values:
    if isinstance(index, ast.Constant) and isinstance(index.value, int):
        position = index.value
        if -len(row.items) <= position < len(row.items):
            return row.items[position]
    return UNKNOWN
