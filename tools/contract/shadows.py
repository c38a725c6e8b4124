"""Rule group CT3: what a client relies on changed between a verified tree and this one.

Relied on is what a client class overrides, inherits and reads, and every function and class of the
tree that its code calls or names. Comments, docstrings and formatting do not count as changes.
"""

import ast
import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from tools.contract.classes import Classes
from tools.contract.findings import Code, Finding, Severity, Site
from tools.contract.infer import Interpreter
from tools.contract.program import ModuleRef, Program
from tools.contract.signature import Signature, signature_of
from tools.contract.source import ClassInfo, FunctionInfo, ModuleInfo
from tools.contract.values import Bound, ClassValue, Frame, Instance


@dataclass(frozen=True)
class World:
    """One tree with what is known of it."""

    program: Program
    classes: Classes
    interpreter: Interpreter

    @classmethod
    def of(cls, program: Program) -> "World":
        """Return a world over a program."""
        classes = Classes(program)
        return cls(program, classes, Interpreter(program, classes))

    def twin(self, info: ClassInfo | FunctionInfo) -> ClassInfo | FunctionInfo | None:
        """Return what stands under the same module and name here, re-exports followed."""
        if isinstance(info, FunctionInfo) and info.owner is not None:
            owner = self.twin(info.owner)
            if not isinstance(owner, ClassInfo):
                return None
            member = self.classes.member(owner, info.name)
            return member.function if member else None
        if not self.program.exists(info.module.name):
            return None
        found = self.program.resolve(info.module.name, info.name)
        return found if isinstance(found, ClassInfo | FunctionInfo) else None


def check_shadows(
    old: World, new: World, client: frozenset[str], modules: list[ModuleInfo]
) -> Iterator[Finding]:
    """Compare what client modules rely on in two trees.

    Args:
        old: The verified tree, in which the client's modules are read as they are in the new one
            where it has none of its own.
        new: The tree under check.
        client: Paths of the client's modules.
        modules: The client's modules in the new tree.
    """
    for module in modules:
        yield from _used(old, new, client, module)
        for cls in module.classes.values():
            yield from _inherited(old, new, client, cls)


# -- bases ------------------------------------------------------------------------------------


def _inherited(old: World, new: World, client: frozenset[str], cls: ClassInfo) -> Iterator[Finding]:
    own = set(cls.methods) | set(cls.attributes)
    before = old.twin(cls)
    bases = [base for base in new.classes.line(cls) if base.module.path not in client]
    earlier = (
        [base for base in old.classes.line(before) if base.module.path not in client]
        if isinstance(before, ClassInfo)
        else [twin for base in bases if isinstance(twin := old.twin(base), ClassInfo)]
    )
    seen: set[str] = set()
    for base in earlier:
        twin = new.twin(base)
        for name, info in base.methods.items():
            if name in seen:
                continue
            seen.add(name)
            yield from _method(new, cls, info, twin, name in own)
        for name, value in base.attributes.items():
            if name in seen:
                continue
            seen.add(name)
            yield from _attribute(new, cls, base, name, value)
    yield from _appeared(cls, bases, seen, own)


def _method(
    new: World,
    cls: ClassInfo,
    before: FunctionInfo,
    base: ClassInfo | FunctionInfo | None,
    overridden: bool,
) -> Iterator[Finding]:
    here = Site(cls.module.path, cls.node.lineno, cls.name)
    after = None
    if isinstance(base, ClassInfo):
        member = new.classes.member(base, before.name)
        after = member.function if member else None
    if after is None:
        member = new.classes.member(cls, before.name)
        if member is not None and member.owner.module.path != cls.module.path:
            after = member.function
    there = Site(before.module.path, before.node.lineno, before.qualname)
    if after is None and new.classes.assignments(cls, before.name):
        return  # An attribute of the same name serves callers as well.
    if after is None:
        # A private helper that went away matters only to who overrides or calls it.
        relied = overridden or _calls(cls, before.name) or not before.name.startswith("_")
        if relied:
            yield Finding(
                Code.USED_GONE,
                cls.module.path,
                cls.node.lineno,
                f"{before.qualname} is gone; {cls.name} "
                + ("overrides it" if overridden else "inherits it"),
                (there, here),
                f"look for what took over from {before.qualname}",
                Severity.ERROR if overridden or _calls(cls, before.name) else Severity.WARNING,
            )
        return
    if overridden and after.qualname != before.qualname:
        yield Finding(
            Code.USED_GONE,
            cls.module.path,
            cls.node.lineno,
            f"{before.qualname} is gone; {cls.name} now overrides {after.qualname}",
            (there, here),
            f"look for what took over from {before.qualname}",
            Severity.WARNING,
        )
    there = Site(after.module.path, after.node.lineno, after.qualname)
    how = "overrides" if overridden else "inherits"
    if _head(before) != _head(after):
        yield Finding(
            Code.BASE_SIGNATURE,
            cls.module.path,
            cls.node.lineno,
            f"{cls.name} {how} {after.qualname}, whose signature changed from "
            f"{_signature(before)} to {_signature(after)}",
            (there, here),
            "compare the override with the new signature" if overridden else "",
            Code.BASE_SIGNATURE.severity if overridden else Severity.NOTE,
            diff=_diff(before, after),
        )
    elif _body(before) != _body(after) and overridden:
        yield Finding(
            Code.BASE_BODY,
            cls.module.path,
            cls.node.lineno,
            f"{cls.name} {how} {after.qualname}, whose body changed",
            (there, here),
            "see whether the override has to follow",
            diff=_diff(before, after),
        )


def _calls(cls: ClassInfo, name: str) -> bool:
    return any(name in info.self_reads for info in cls.methods.values())


def _attribute(
    new: World, cls: ClassInfo, base: ClassInfo, name: str, value: ast.expr | None
) -> Iterator[Finding]:
    if name.startswith("__") or name in cls.attributes or name in cls.methods:
        return
    member = new.classes.member(cls, name)
    here = Site(cls.module.path, cls.node.lineno, cls.name)
    there = Site(base.module.path, base.attribute_lines.get(name, base.node.lineno), base.name)
    if member is None:
        assigned = any(
            name in new.classes.own_assignments(other) for other in new.classes.line(cls)
        )
        if assigned:
            return
        yield Finding(
            Code.USED_GONE,
            cls.module.path,
            cls.node.lineno,
            f"{base.name}.{name} is gone; {cls.name} inherits it",
            (there, here),
            f"set `{name}` in {cls.name} if it still matters",
            Severity.WARNING,
        )
        return
    if member.function is not None or _dump(value) == _dump(member.value):
        return
    switch = _is_switch(value) or _is_switch(member.value)
    yield Finding(
        Code.SWITCH_CHANGED if switch else Code.BASE_ATTRIBUTE,
        cls.module.path,
        cls.node.lineno,
        f"{cls.name} inherits {member.owner.name}.{name}, which changed"
        + (f" from {ast.unparse(value)}" if switch and value else "")
        + (f" to {ast.unparse(member.value)}" if switch and member.value else ""),
        (there, here),
        f"serve the new value of `{name}` or set it in {cls.name}",
        Severity.WARNING if switch else Severity.NOTE,
    )


def _appeared(
    cls: ClassInfo, bases: list[ClassInfo], known: set[str], own: set[str]
) -> Iterator[Finding]:
    """Report class-level switches that bases have now and had not before."""
    for base in bases:
        for name, value in base.attributes.items():
            if name in known or name in own or value is None or not _is_switch(value):
                continue
            known.add(name)
            yield Finding(
                Code.SWITCH_CHANGED,
                cls.module.path,
                cls.node.lineno,
                f"{cls.name} inherits the new switch {base.name}.{name} = {ast.unparse(value)}",
                (
                    Site(base.module.path, base.attribute_lines.get(name, 1), base.name),
                    Site(cls.module.path, cls.node.lineno, cls.name),
                ),
                f"serve `{name}` or set it in {cls.name}",
                Severity.WARNING
                if isinstance(value, ast.Constant) and value.value is True
                else Severity.NOTE,
            )


def _is_switch(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, bool)


# -- uses -------------------------------------------------------------------------------------


def _used(old: World, new: World, client: frozenset[str], module: ModuleInfo) -> Iterator[Finding]:
    """Report functions and classes that client code names or calls and that changed."""
    for found in module.imports:
        if not found.attr or not old.program.is_internal(found.module):
            continue
        before = (
            old.program.resolve(found.module, found.attr)
            if old.program.exists(found.module)
            else None
        )
        after = (
            new.program.resolve(found.module, found.attr)
            if new.program.exists(found.module)
            else None
        )
        if before is None or after is None or isinstance(before, ModuleRef):
            continue
        if isinstance(before, FunctionInfo) and isinstance(after, FunctionInfo):
            yield from _function(module, found.line, before, after, client)
        elif isinstance(before, ClassInfo) and isinstance(after, ClassInfo):
            made_before, made_after = _constructor(old, before), _constructor(new, after)
            if made_before and made_after:
                yield from _function(module, found.line, made_before, made_after, client)
    for function in (
        *module.functions.values(),
        *(method for cls in module.classes.values() for method in cls.methods.values()),
    ):
        yield from _called(old, new, client, module, function)


def _constructor(world: World, cls: ClassInfo) -> FunctionInfo | None:
    member = world.classes.member(cls, "__init__")
    return member.function if member else None


def _called(
    old: World, new: World, client: frozenset[str], module: ModuleInfo, function: FunctionInfo
) -> Iterator[Finding]:
    me = Instance(function.owner) if function.owner else None
    frame = Frame(function.module, function, me)
    for call in function.calls:
        for value in new.interpreter.evaluate(call.func, frame):
            after: FunctionInfo | None = None
            if isinstance(value, Bound):
                after = value.info
            elif isinstance(value, ClassValue):
                after = _constructor(new, value.cls)
            elif isinstance(value, Instance):
                name = new.classes.called_as(value.cls)
                member = new.classes.member(value.cls, name)
                after = member.function if member else None
            if after is None or after.module.path in client:
                continue
            before = old.twin(after)
            if isinstance(before, FunctionInfo):
                yield from _function(module, call.lineno, before, after, client)


def _function(
    module: ModuleInfo,
    line: int,
    before: FunctionInfo,
    after: FunctionInfo,
    client: frozenset[str],
) -> Iterator[Finding]:
    if after.module.path in client or _head(before) == _head(after):
        return
    old, new = _parameters(before), _parameters(after)
    yield Finding(
        Code.USED_CHANGED,
        module.path,
        line,
        f"the signature of {after.qualname} changed from {_signature(before)} "
        f"to {_signature(after)}",
        (
            Site(after.module.path, after.node.lineno, after.qualname),
            Site(module.path, line, module.name),
        ),
        "compare the call with the new signature",
        Severity.NOTE if _compatible(old, new) else Severity.WARNING,
        diff=_diff(before, after),
    )


def _compatible(old: Signature, new: Signature) -> bool:
    """Say whether every call that fits the old signature fits the new one in the same sense."""
    if (old.var_positional and not new.var_positional) or (old.var_keyword and not new.var_keyword):
        return False
    known = {p.name: p for p in new.parameters}
    for parameter in old.parameters:
        now = known.get(parameter.name)
        if now is None or (now.required and not parameter.required):
            return False
    before = [p.name for p in old.positionals()]
    if [p.name for p in new.positionals()][: len(before)] != before:
        return False
    names = {p.name for p in old.parameters}
    return not any(p.required and p.name not in names for p in new.parameters)


# -- comparison -------------------------------------------------------------------------------


def _parameters(info: FunctionInfo) -> Signature:
    return signature_of(info.node, bound=bool(info.self_name))


def _signature(info: FunctionInfo) -> str:
    return str(_parameters(info))


def _head(info: FunctionInfo) -> str:
    """Return names, order and defaults of the parameters; annotations do not count."""
    args = info.node.args
    return "|".join(
        (
            str(_parameters(info)),
            *(ast.dump(node) for node in args.defaults),
            *(ast.dump(node) if node else "-" for node in args.kw_defaults),
            *(name for name in info.decorators if name in {"property", "classmethod"}),
        )
    )


def _body(info: FunctionInfo) -> str:
    body = info.node.body
    first = body[0] if body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        body = body[1:]
    return "".join(ast.dump(node) for node in body if not isinstance(node, ast.Pass))


def _dump(node: ast.expr | None) -> str:
    return ast.dump(node) if node is not None else ""


def _diff(before: FunctionInfo, after: FunctionInfo) -> str:
    """Return a unified diff of just the two functions."""
    return "\n".join(
        difflib.unified_diff(
            _lines(before), _lines(after), before.qualname, after.qualname, lineterm=""
        )
    )


def _lines(info: FunctionInfo) -> list[str]:
    end = info.node.end_lineno or info.node.lineno
    return info.module.lines[info.node.lineno - 1 : end]
