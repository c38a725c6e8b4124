"""What annotations promise."""

import ast
from typing import TYPE_CHECKING

from tools.contract.program import External, VariableRef
from tools.contract.source import ClassInfo
from tools.contract.values import (
    UNKNOWN,
    ForeignInstance,
    Frame,
    Instance,
    Row,
    Values,
    container,
)

if TYPE_CHECKING:
    from tools.contract.classes import Classes


class Annotations:
    """Reads annotations in the frame they stand in."""

    def __init__(self, classes: "Classes") -> None:
        self.classes = classes
        self.program = classes.program

    def read(self, node: ast.expr | None, frame: Frame) -> Values:
        """Return what an annotation promises."""
        match node:
            case ast.Constant() if isinstance(node.value, str):
                try:
                    return self.read(ast.parse(node.value, mode="eval").body, frame)
                except SyntaxError:
                    return UNKNOWN
            case ast.BinOp() if isinstance(node.op, ast.BitOr):
                return self.read(node.left, frame) | self.read(node.right, frame)
            case ast.Subscript():
                return self._generic(node, frame)
            case ast.Name() | ast.Attribute():
                return self._annotated_name(node, frame)
            case _:
                return UNKNOWN

    def _annotated_name(self, node: ast.Name | ast.Attribute, frame: Frame) -> Values:
        symbol = self.program.expression(frame.module, node)
        if isinstance(symbol, ClassInfo):
            return frozenset({Instance(symbol)})
        if isinstance(symbol, External):
            if symbol.name in {"typing.Self", "typing_extensions.Self"}:
                return frozenset({frame.me}) if frame.me else UNKNOWN
            return frozenset({ForeignInstance(symbol.name)})
        if isinstance(symbol, VariableRef) and isinstance(symbol.value, ast.Call):
            return self._type_variable(symbol, frame)
        if isinstance(symbol, VariableRef) and isinstance(symbol.value, ast.BinOp | ast.Subscript):
            return self.read(symbol.value, Frame(symbol.module, depth=frame.depth + 1))
        return UNKNOWN

    def _type_variable(self, symbol: VariableRef, frame: Frame) -> Values:
        if frame.me is None:
            return UNKNOWN
        filled = self.classes.type_argument(frame.me.cls, symbol.name)
        if filled is not None:
            cls, node = filled
            return self.read(node, Frame(cls.module, depth=frame.depth + 1))
        bound = next((k.value for k in _keywords(symbol.value) if k.arg == "bound"), None)
        return self.read(bound, Frame(symbol.module, depth=frame.depth + 1))

    def _generic(  # noqa: PLR0911 - one case for each kind of generic type
        self, node: ast.Subscript, frame: Frame
    ) -> Values:
        symbol = self.program.expression(frame.module, node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(symbol, ClassInfo):
            return frozenset({Instance(symbol)})
        name = symbol.name if isinstance(symbol, External) else getattr(node.value, "id", "")
        last = name.rpartition(".")[2]
        if last in {"Optional", "Union", "Annotated", "Final", "ClassVar"}:
            return frozenset().union(*(self.read(part, frame) for part in parts))
        if last in {"list", "List", "Sequence", "Iterable", "Iterator", "set", "Set"}:
            return container([self.read(parts[0], frame)])
        if last in {"dict", "Dict", "Mapping"} and len(parts) == 2:
            return container([self.read(parts[1], frame)])
        if last in {"tuple", "Tuple"}:
            if isinstance(parts[-1], ast.Constant):
                return container([self.read(parts[0], frame)])
            row = Row(tuple(self.read(part, frame) for part in parts))
            return frozenset({row}) if any(row.items) else UNKNOWN
        return UNKNOWN


def _keywords(node: ast.expr) -> list[ast.keyword]:
    return node.keywords if isinstance(node, ast.Call) else []
