"""A small abstract interpreter: which classes and functions an expression may stand for.

It follows constructors, attributes of ``self``, module lists, partial applications, lambdas and
annotations. Where it cannot tell it returns the empty set, and no rule speaks about that place.
A local name with several assignments counts as unknown, because their order is not followed.
"""

import ast

from tools.contract.annotations import Annotations
from tools.contract.classes import Classes
from tools.contract.local import Local, bindings, targets
from tools.contract.members import Members
from tools.contract.program import (
    Dynamic,
    External,
    ModuleRef,
    Program,
    Symbol,
    VariableRef,
)
from tools.contract.results import Results
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
    Frame,
    HfConfig,
    ModuleValue,
    Row,
    Value,
    Values,
    container,
)

_DEPTH = 24
_ON_CLASS = frozenset(("__new__", "__init_subclass__", "__class_getitem__"))


class Interpreter:
    """Evaluates expressions of a program."""

    def __init__(self, program: Program, classes: Classes) -> None:
        self.program = program
        self.classes = classes
        self.annotations = Annotations(classes)
        self._locals: dict[ast.AST, dict[str, list[Local]]] = {}
        self.members = Members(self)
        self.results = Results(self)

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
                return self.each(self.evaluate(node.value, frame), node.attr)
            case ast.Call():
                return self.results.call(node, frame)
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
        bound = self.table(info.node).get(name, [])
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

    def table(self, node: FunctionNode) -> dict[str, list[Local]]:
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

    def each(self, values: Values, name: str) -> Values:
        """Return what an attribute may be of one of several values."""
        return UNKNOWN.union(*(self.members.attribute(value, name) for value in values))


def _row_item(row: Row, index: ast.expr) -> Values:
    if isinstance(index, ast.Constant) and isinstance(index.value, int):
        position = index.value
        if -len(row.items) <= position < len(row.items):
            return row.items[position]
    return UNKNOWN
