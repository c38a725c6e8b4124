"""Rules CT208 and CT221: what a parent's constructor does, and its override leaves out."""

import ast
from collections.abc import Iterator

from tools.contract.calls import live_methods
from tools.contract.classes import Classes
from tools.contract.findings import Code, Finding, Site
from tools.contract.infer import Interpreter
from tools.contract.program import Program
from tools.contract.signature import signature_of
from tools.contract.source import ClassInfo, FunctionInfo
from tools.contract.values import Bound, ClassValue, Frame, Instance

_SWITCH_PREFIXES = ("supports_", "requires_", "has_", "uses_", "use_", "enable_")
_SERVING_DEPTH = 3


class ConstructionRules:
    """Compares a class's constructor with those of its bases."""

    def __init__(self, program: Program, classes: Classes, interpreter: Interpreter) -> None:
        self.program = program
        self.classes = classes
        self.interpreter = interpreter
        self._mentions: dict[tuple[FunctionInfo, str], bool] = {}

    def check_class(self, cls: ClassInfo) -> Iterator[Finding]:
        """Check one class against every base in the tree."""
        own = cls.methods.get("__init__")
        running = [info for info in live_methods(self.classes, cls) if info.name == "__init__"]
        yield from self._switches(cls, running)
        if own is None:
            return
        for base in self.classes.line(cls)[1:]:
            theirs = base.methods.get("__init__")
            if theirs is not None:
                yield from self._parity(cls, own, theirs)

    # -- constructor arguments --------------------------------------------------------------

    def _parity(self, cls: ClassInfo, own: FunctionInfo, theirs: FunctionInfo) -> Iterator[Finding]:
        mine = list(self._constructions(own, Instance(cls)))
        for part, passed, call in self._constructions(theirs, Instance(cls)):
            rebuilt = [
                (mine_part, mine_passed, mine_call)
                for mine_part, mine_passed, mine_call in mine
                if mine_part is not part
                and self.classes.is_subclass(mine_part, part)
                and _destination(own, mine_call) == _destination(theirs, call)
            ]
            if not rebuilt or passed is None:
                continue
            if any(mine_passed is None for _, mine_passed, _ in rebuilt):
                continue
            covered = set().union(*(names or set() for _, names, _ in rebuilt))
            mine_part, _, mine_call = rebuilt[0]
            for name in sorted(passed - covered):
                if not self._hands_on(mine_part, part, name):
                    continue
                yield Finding(
                    Code.CONSTRUCTOR_DROPS,
                    own.module.path,
                    mine_call.lineno,
                    f"{theirs.qualname} passes `{name}` to {part.name}; "
                    f"{own.qualname} does not pass it to {mine_part.name}",
                    (
                        Site(theirs.module.path, call.lineno, theirs.qualname),
                        Site(own.module.path, mine_call.lineno, own.qualname),
                    ),
                    f"take `{name}` in {mine_part.name}.__init__ and pass it on",
                )

    def _hands_on(self, mine: ClassInfo, part: ClassInfo, name: str) -> bool:
        """Say whether the override still runs the part's constructor, leaving an option unset."""
        member = self.classes.member(part, "__init__")
        if member is None or member.function is None:
            return False
        optional = any(
            p.name == name and not p.required
            for p in signature_of(member.function.node, bound=True).parameters
        )
        chain = [i for i in live_methods(self.classes, mine) if i.name == "__init__"]
        if not optional or member.function not in chain:
            return False
        return not any(
            keyword.arg in {name, None}
            for info in chain[: chain.index(member.function)]
            for call in info.calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
            for keyword in call.keywords
        )

    def _constructions(
        self, info: FunctionInfo, me: Instance
    ) -> Iterator[tuple[ClassInfo, set[str] | None, ast.Call]]:
        """Yield the objects a constructor makes, with the parameters that it fills."""
        frame = Frame(info.module, info, me)
        for call in info.calls:
            for value in self.interpreter.evaluate(call.func, frame):
                if isinstance(value, ClassValue):
                    yield value.cls, self._filled(value.cls, call), call

    def _filled(self, cls: ClassInfo, call: ast.Call) -> set[str] | None:
        member = self.classes.member(cls, "__init__")
        if member is None or member.function is None:
            return None
        if any(isinstance(arg, ast.Starred) for arg in call.args):
            return None
        if any(keyword.arg is None for keyword in call.keywords):
            return None
        names = [p.name for p in signature_of(member.function.node, bound=True).positionals()]
        return {*names[: len(call.args)], *(k.arg for k in call.keywords if k.arg)}

    # -- switches ---------------------------------------------------------------------------

    def _switches(self, cls: ClassInfo, running: list[FunctionInfo]) -> Iterator[Finding]:
        seen: set[str] = set()
        for base in self.classes.line(cls):
            for name, value in base.attributes.items():
                feature = _feature(name)
                if name in seen or not feature:
                    continue
                seen.add(name)
                if base is cls or not (isinstance(value, ast.Constant) and value.value is True):
                    continue
                yield from self._switch(cls, base, name, feature, running)

    def _switch(
        self,
        cls: ClassInfo,
        base: ClassInfo,
        name: str,
        feature: str,
        running: list[FunctionInfo],
    ) -> Iterator[Finding]:
        theirs = base.methods.get("__init__")
        if theirs is None or theirs in running:
            return
        serving = self._serving(theirs, Instance(base), feature)
        if serving is None:
            return
        if any(self._serving(info, Instance(cls), feature) for info in running):
            return
        call, what = serving
        line = base.attribute_lines.get(name, base.node.lineno)
        yield Finding(
            Code.SWITCH_UNSERVED,
            cls.module.path,
            cls.node.lineno,
            f"{cls.name} inherits `{name} = True` from {base.name}, whose constructor serves it "
            f"with {what}; the constructor of {cls.name} does not",
            (
                Site(base.module.path, line, f"{base.name}.{name}"),
                Site(theirs.module.path, call.lineno, theirs.qualname),
                Site(cls.module.path, cls.node.lineno, cls.name),
            ),
            f"call {what} as {base.name} does, or set `{name} = False` in {cls.name}",
            subject=f"{cls.name}.{name}",
        )

    def _serving(
        self, info: FunctionInfo, me: Instance, feature: str
    ) -> tuple[ast.Call, str] | None:
        """Return a call in a constructor that leads to code which asks for the feature."""
        frame = Frame(info.module, info, me)
        for call in info.calls:
            for value in self.interpreter.evaluate(call.func, frame):
                target = self._function(value)
                # ``super().__init__()`` is another constructor, judged by itself.
                constructs = isinstance(value, ClassValue)
                if target is None or (target.name == "__init__" and not constructs):
                    continue
                if self._asks(target, feature, _SERVING_DEPTH):
                    return call, target.qualname
        for node, _ in info.nodes:
            if isinstance(node, ast.Attribute) and node.attr == feature:
                return ast.Call(node, [], [], lineno=node.lineno), f"`{ast.unparse(node)}`"
        return None

    def _function(self, value: object) -> FunctionInfo | None:
        if isinstance(value, Bound):
            return value.info
        if isinstance(value, ClassValue):
            member = self.classes.member(value.cls, "__init__")
            return member.function if member else None
        return None

    def _asks(self, info: FunctionInfo, feature: str, depth: int) -> bool:
        """Say whether a function, or what it calls, reads an attribute named like the feature."""
        key = (info, feature)
        if key in self._mentions:
            return self._mentions[key]
        self._mentions[key] = False  # Ends a cycle.
        found = feature in info.mentioned
        if not found and depth > 1:
            me = Instance(info.owner) if info.owner else None
            frame = Frame(info.module, info, me)
            found = any(
                target is not None and self._asks(target, feature, depth - 1)
                for call in info.calls
                for value in self.interpreter.evaluate(call.func, frame)
                for target in (self._function(value),)
            )
        self._mentions[key] = found
        return found


def _feature(name: str) -> str:
    """Return what a switch is about, "" where the name is not a switch's."""
    for prefix in _SWITCH_PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return ""


def _destination(info: FunctionInfo, call: ast.Call) -> str:
    """Return the attribute of ``self`` that a constructor stores a made object in, else ""."""
    for node, _ in info.nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Attribute) and call in ast.walk(node.value):
                return target.attr
    return ""
