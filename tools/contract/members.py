"""What an attribute may be: of an object, a class, ``super()`` or a module."""

import ast
from typing import TYPE_CHECKING

from tools.contract.classes import Assignment, Member
from tools.contract.source import ClassInfo
from tools.contract.values import (
    UNKNOWN,
    Bound,
    ClassValue,
    Foreign,
    Frame,
    HfConfig,
    Instance,
    ModuleValue,
    Row,
    Super,
    Value,
    Values,
)

if TYPE_CHECKING:
    from tools.contract.infer import Interpreter

PROPERTIES = frozenset(("property", "cached_property"))


class Members:
    """Looks attributes up for an interpreter, which evaluates what they hold.

    Args:
        of: The interpreter.
    """

    def __init__(self, of: "Interpreter") -> None:
        self.of = of
        self._known: dict[tuple[Instance, str], Values] = {}
        self._busy: set[tuple[Instance, str]] = set()

    def attribute(self, value: Value, name: str) -> Values:  # noqa: PLR0911 - one case a kind
        """Return what an attribute of a value may be."""
        match value:
            case Instance():
                return self._instance_attribute(value, name)
            case ClassValue():
                return self._class_attribute(value.cls, name)
            case Super():
                member = self.of.classes.member(value.receiver.cls, name, value.after)
                return self._member(member, value.receiver) if member else UNKNOWN
            case ModuleValue():
                symbol = self.of.program.resolve(value.name, name)
                return self.of.symbol(symbol) if symbol is not None else UNKNOWN
            case Foreign():
                return frozenset({Foreign(f"{value.name}.{name}")})
            case HfConfig() if name.endswith("_config"):
                return frozenset({HfConfig(value.owner, (*value.path, name))})
            case _:
                return UNKNOWN

    def _class_attribute(self, cls: ClassInfo, name: str) -> Values:
        member = self.of.classes.member(cls, name)
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
        if key in self._known:
            return self._known[key]
        if key in self._busy:
            return UNKNOWN
        self._busy.add(key)
        try:
            found = self._find_attribute(value, name)
        finally:
            self._busy.discard(key)
        self._known[key] = found
        return found

    def _find_attribute(self, value: Instance, name: str) -> Values:
        member = self.of.classes.member(value.cls, name)
        if member is not None and member.function is not None:
            return self._member(member, value)
        assigned = self.of.classes.assignments(value.cls, name)
        if member is not None and assigned and member.owner is not assigned[0].owner:
            line = self.of.classes.line(value.cls)
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
        frame = Frame(assignment.function.module, assignment.function, me)
        values: Values = UNKNOWN
        if assignment.value is not None:
            values = self.of.evaluate(assignment.value, frame)
            if assignment.index is not None:
                picked: set[Value] = set()
                for value in values:
                    if isinstance(value, Row) and assignment.index < len(value.items):
                        picked |= value.items[assignment.index]
                values = frozenset(picked)
        if not values and assignment.annotation is not None:
            values = self.of.annotations.read(assignment.annotation, frame)
        return values

    def _member(self, member: Member, me: Instance) -> Values:
        info = member.function
        if info is not None:
            if PROPERTIES & set(info.decorators):
                return self.of.results.returned(info, me, {}, 1)
            if "staticmethod" in info.decorators:
                return frozenset({Bound(info, me)})
            return frozenset({Bound(info, me, filled=True)})
        frame = Frame(member.owner.module, None, me, depth=2)
        values: Values = UNKNOWN
        if member.value is not None:
            values = self.of.evaluate(member.value, frame)
        if not values and member.annotation is not None:
            values = self.of.annotations.read(member.annotation, frame)
        return values
