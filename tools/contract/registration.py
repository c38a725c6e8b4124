"""Calls between classes that a registration brings together.

``@registry.register(Processor, info=Info)`` names classes that upstream builds later, and hands to
each other: the registry keeps them as factories, a factory's call is a constructor's, and an object
finds another one under the name of the constructor's parameter. So a method that a processor
inherits reaches the overrides of just that ``Info``.
"""

import ast
from collections.abc import Iterator

from tools.contract.calls import CallRules
from tools.contract.classes import Classes
from tools.contract.findings import Finding
from tools.contract.infer import Interpreter
from tools.contract.source import ClassInfo, FunctionInfo
from tools.contract.values import Bound, ClassValue, Frame, Instance

Parts = dict[str, ClassInfo]


class RegistrationRules:
    """Checks the calls that the class decorators of a client's classes bring about."""

    def __init__(self, classes: Classes, interpreter: Interpreter, calls: CallRules) -> None:
        self.classes = classes
        self.interpreter = interpreter
        self.calls = calls

    def check_class(self, cls: ClassInfo) -> Iterator[Finding]:
        """Check what a class's decorators register together."""
        frame = Frame(cls.module)
        for decorator in cls.node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            for callee in self.interpreter.evaluate(decorator.func, frame):
                if isinstance(callee, Bound):
                    parts = self._parts(callee, decorator, frame)
                    # One class alone is checked where it stands.
                    if len(parts) > 1:
                        yield from self._factories(callee.info, parts)
                        yield from self._objects(parts)

    def _parts(self, callee: Bound, call: ast.Call, frame: Frame) -> Parts:
        """Return the classes that a registration is given, by the registry's parameter names."""
        found: Parts = {}
        for name, values in self.interpreter.results.bind(
            callee.info, callee.filled, call, frame
        ).items():
            (value, *others) = values
            if isinstance(value, ClassValue) and not others:
                found[name] = value.cls
        return found

    def _factories(self, registering: FunctionInfo, parts: Parts) -> Iterator[Finding]:
        """Check the calls of the object that keeps the classes, made with their names."""
        frame = Frame(registering.module, registering)
        for call in registering.calls:
            kept = {
                keyword.arg: ClassValue(parts[keyword.value.id])
                for keyword in call.keywords
                if keyword.arg and isinstance(keyword.value, ast.Name) and keyword.value.id in parts
            }
            if len(kept) < 2:
                continue
            for keeper in self.interpreter.evaluate(call.func, frame):
                if isinstance(keeper, ClassValue):
                    yield from self.calls.check_class(Instance(keeper.cls, tuple(kept.items())))

    def _objects(self, parts: Parts) -> Iterator[Finding]:
        """Check the calls in each class with the others in the attributes that hold them."""
        for cls in parts.values():
            me = self._object(cls, parts, frozenset())
            if me.attrs:
                yield from self.calls.check_class(me)

    def _object(self, cls: ClassInfo, parts: Parts, above: frozenset[ClassInfo]) -> Instance:
        member = self.classes.member(cls, "__init__")
        if member is None or member.function is None:
            return Instance(cls)
        inner = above | {cls}
        return Instance(
            cls,
            tuple(
                (assignment.name, self._object(parts[assignment.name], parts, inner))
                for name in parts
                for assignment in self.classes.assignments(cls, name)[:1]
                if isinstance(assignment.value, ast.Name)
                and assignment.value.id == name
                and parts[name] not in inner
            ),
        )
