"""Rule group CT21x: attributes that are read exist, and something sets them."""

import ast
import re
from collections.abc import Iterator

from tools.contract.calls import live_methods
from tools.contract.classes import OBJECT_MEMBERS, Classes
from tools.contract.findings import Code, Finding, Severity, Site
from tools.contract.infer import Interpreter
from tools.contract.program import Program
from tools.contract.source import ClassInfo, FunctionInfo
from tools.contract.values import Frame, Instance

_ASKS = frozenset(("hasattr", "getattr", "setattr", "delattr"))


class AttributeRules:
    """Checks the attributes that the methods of one class at a time read."""

    def __init__(
        self, program: Program, classes: Classes, interpreter: Interpreter, client: frozenset[str]
    ) -> None:
        self.program = program
        self.classes = classes
        self.interpreter = interpreter
        self.client = client
        self._outside: dict[str, bool] = {}
        self._derived: dict[ClassInfo, bool] = {}

    def check_class(self, me: Instance) -> Iterator[Finding]:
        """Check what the live methods of a class read from ``self`` and from known objects."""
        live = tuple(live_methods(self.classes, me.cls))
        if self._is_concrete(me.cls):
            yield from self._check_self(me.cls, live)
        for info in live:
            if info.module.path in self.client and info.owner is me.cls:
                yield from self.check_function(info, me)

    def check_function(self, info: FunctionInfo, me: Instance | None = None) -> Iterator[Finding]:
        """Check the attributes that a function reads from objects of known, closed classes."""
        frame = Frame(info.module, info, me)
        asked = _asked(info)
        found: list[tuple[str, Finding]] = []
        believed: set[str] = set()
        for node in info.attribute_reads:
            if node.attr in asked or _inside_scope(info, node):
                continue
            values = self.interpreter.evaluate(node.value, frame)
            owners = [value.cls for value in values if isinstance(value, Instance)]
            if not owners or len(owners) != len(values):
                continue
            root = node.value.id if isinstance(node.value, ast.Name) else ""
            if all(self._lacks(owner, node.attr) for owner in owners):
                found.append((root, self._unknown(info, node, owners[0])))
            else:
                believed.add(root)
        # The annotation of a parameter is a claim of the client's own: where nothing that is read
        # through it exists, the claim is wrong, not the reads.
        claims = {arg.arg for arg in _parameters(info)} - believed
        yield from (finding for root, finding in found if root not in claims)

    @staticmethod
    def _unknown(info: FunctionInfo, node: ast.Attribute, owner: ClassInfo) -> Finding:
        return Finding(
            Code.UNKNOWN_ATTRIBUTE,
            info.module.path,
            node.lineno,
            f"{info.qualname} reads `{node.attr}` of {owner.name}, which has none",
            (
                Site(info.module.path, node.lineno, info.qualname),
                Site(owner.module.path, owner.node.lineno, owner.name),
            ),
            f"look for what replaced `{node.attr}` in {owner.module.path}",
            Severity.WARNING if id(node) in info.deferred else Severity.ERROR,
        )

    def _is_concrete(self, cls: ClassInfo) -> bool:
        """Say whether objects are of just this class, with just the attributes it shows."""
        # A class that defines ``__new__`` itself hands out objects of other classes.
        return not (
            self.classes.is_open(cls) or self.classes.is_protocol(cls) or "__new__" in cls.methods
        )

    def _has_subclass(self, cls: ClassInfo) -> bool:
        """Say whether any file derives a class from one of that name, by a text search."""
        if cls not in self._derived:
            pattern = re.compile(rb"^class \w+\([^)]*\b%s\b" % cls.name.encode(), re.MULTILINE)
            self._derived[cls] = any(
                pattern.search(source)
                for path in self.program.files
                if path.endswith(".py")
                and cls.name.encode() in (source := self.program.source(path))
            )
        return self._derived[cls]

    def _lacks(self, cls: ClassInfo, name: str) -> bool:
        """Say whether a declared data class certainly has no such attribute."""
        declared = any(d in {"dataclass", "config"} for d in cls.decorators)
        if not declared or self.classes.is_open(cls) or name in OBJECT_MEMBERS:
            return False
        if self.classes.member(cls, name) is not None:
            return False
        if any(name in self.classes.own_assignments(base) for base in self.classes.line(cls)):
            return False
        return not self._has_subclass(cls)

    def _check_self(self, cls: ClassInfo, live: tuple[FunctionInfo, ...]) -> Iterator[Finding]:
        reads = _reachable_reads(self.classes, cls, live)
        if not reads:
            return
        living = set(live)
        dead: dict[str, FunctionInfo] = {}
        for name in reads:
            for base in self.classes.line(cls):
                for assignment in self.classes.own_assignments(base).get(name, ()):
                    if assignment.function in living:
                        break
                    dead.setdefault(name, assignment.function)
                else:
                    continue
                dead.pop(name, None)
                break
        for name, reader_info in dead.items():
            reader, line = reads[name]
            if self._set_from_outside(name):
                continue
            here = Site(cls.module.path, cls.node.lineno, cls.name)
            yield Finding(
                Code.UNSET_ATTRIBUTE,
                cls.module.path,
                cls.node.lineno,
                f"{reader.qualname}, which {cls.name} inherits, reads `self.{name}`, "
                f"which only {reader_info.qualname} sets, and {cls.name} does not run that",
                (Site(reader.module.path, line, reader.qualname), here),
                f"set `self.{name}` in {cls.name}, or call {reader_info.qualname}",
                subject=f"{cls.name}.{name}",
            )

    def _set_from_outside(self, name: str) -> bool:
        """Say whether any file assigns such an attribute of another object than ``self``."""
        if name not in self._outside:
            needle = f".{name}".encode()
            pattern = re.compile(rb"(?<!\bself)\.%s\s*(?::[^=\n]+)?=[^=]" % name.encode())
            self._outside[name] = any(
                pattern.search(source)
                for path in self.program.files
                if path.endswith(".py") and needle in (source := self.program.source(path))
            )
        return self._outside[name]


def _asked(info: FunctionInfo) -> set[str]:
    """Attribute names that the function asks for before reading them."""
    return {
        call.args[1].value
        for call in info.calls
        if isinstance(call.func, ast.Name)
        and call.func.id in _ASKS
        and len(call.args) > 1
        and isinstance(call.args[1], ast.Constant)
        and isinstance(call.args[1].value, str)
    }


def _parameters(info: FunctionInfo) -> list[ast.arg]:
    args = info.node.args
    return [*args.posonlyargs, *args.args, *args.kwonlyargs]


def _inside_scope(info: FunctionInfo, node: ast.Attribute) -> bool:
    """Say whether the object is a name that an inner scope binds: another frame's business."""
    root: ast.expr = node.value
    while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
        root = root.func if isinstance(root, ast.Call) else root.value
    return isinstance(root, ast.Name) and root.id in info.inner_names


def _is_off(classes: Classes, cls: ClassInfo, flag: str, live: tuple[FunctionInfo, ...]) -> bool:
    """Say whether all that objects of a class ever store in a flag is False or None."""
    values = [
        assignment.value
        for base in classes.line(cls)
        for assignment in classes.own_assignments(base).get(flag, ())
        if assignment.function in live
    ]
    return bool(values) and all(
        isinstance(value, ast.Constant) and not value.value for value in values
    )


def _reachable_reads(
    classes: Classes, cls: ClassInfo, live: tuple[FunctionInfo, ...]
) -> dict[str, tuple[FunctionInfo, int]]:
    """Return the attributes of ``self`` that inherited code reads and no class declares.

    Only methods that the class's own code or upstream's interfaces lead to count: a private helper
    of the base that only overridden methods called is never run.
    """
    by_name: dict[str, list[FunctionInfo]] = {}
    for info in live:
        by_name.setdefault(info.name, []).append(info)
    pending = [name for name in by_name if not name.startswith("_") or name.startswith("__")]
    reached: set[str] = set()
    found: dict[str, tuple[FunctionInfo, int]] = {}
    asked: set[str] = set()
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached.add(name)
        for info in by_name.get(name, ()):
            asked |= _asked(info)
            for node in info.attribute_reads:
                attr = node.attr
                if not isinstance(node.value, ast.Name) or node.value.id != info.self_name:
                    continue
                if any(_is_off(classes, cls, flag, live) for flag in info.flags.get(id(node), ())):
                    continue
                if attr in by_name:
                    pending.append(attr)
                elif attr not in OBJECT_MEMBERS and attr not in found:
                    found[attr] = (info, node.lineno)
    return {
        attr: place
        for attr, place in found.items()
        if attr not in asked
        and place[0].owner is not cls
        and classes.member(cls, attr) is None
        and not attr.startswith("__")
        and not any(classes.external_provides(base, attr) for base in classes.foreign_bases(cls))
    }
