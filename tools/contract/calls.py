"""Rule group CT20x: every call that meets a client's class fits the signature it meets."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.contract.classes import Classes
from tools.contract.findings import Code, Finding, Site
from tools.contract.infer import Interpreter
from tools.contract.program import Program
from tools.contract.signature import (
    Arguments,
    Signature,
    arguments_of,
    mismatches,
    signature_of,
)
from tools.contract.source import ClassInfo, FunctionInfo, ModuleInfo, Scope
from tools.contract.values import (
    Bound,
    ClassValue,
    Closure,
    Frame,
    Instance,
    Partial,
    Value,
)

# Decorators that leave a function's signature as it is written.
_KEEPING = frozenset(
    (
        "staticmethod",
        "classmethod",
        "property",
        "cached_property",
        "abstractmethod",
        "override",
        "final",
        "no_grad",
        "inference_mode",
        "lru_cache",
        "cache",
        "wraps",
        "contextmanager",
        "compile",
        "jit",
        "script",
        "torch_compile",
        "deprecated",
        "with_amdsmi_context",
        "instrument",
        "nvtx_annotate",
        "ignore",
        "typechecked",
    )
)
# Class decorators that leave the constructor as it is written.
_KEEPING_CLASS = frozenset(("register", "register_processor", "final", "runtime_checkable"))


@dataclass(frozen=True)
class Target:
    """What a call runs: a function, and its signature as the call meets it."""

    info: FunctionInfo
    signature: Signature
    lenient: bool = False


class CallRules:
    """Checks the calls in the methods of one class at a time."""

    def __init__(
        self, program: Program, classes: Classes, interpreter: Interpreter, client: frozenset[str]
    ) -> None:
        self.program = program
        self.classes = classes
        self.interpreter = interpreter
        self.client = client

    def check_class(self, me: Instance) -> Iterator[Finding]:
        """Check the calls in every method that objects of a class run."""
        for info in live_methods(self.classes, me.cls):
            frame = Frame(info.module, info, me)
            yield from self._check_body(info, frame, me)

    def check_function(self, info: FunctionInfo) -> Iterator[Finding]:
        """Check the calls in a function of a client's module."""
        yield from self._check_body(info, Frame(info.module, info), None)

    def _check_body(
        self, info: FunctionInfo, frame: Frame, me: Instance | None
    ) -> Iterator[Finding]:
        frames: dict[tuple[Scope, ...], Frame] = {(): frame}
        for call, scopes in info.call_sites:
            where = self._inner(scopes, frames)
            arguments = arguments_of(call)
            callees = self.interpreter.evaluate(call.func, where)
            found = [list(self._check(info, call, callee, arguments, me)) for callee in callees]
            # Which of several candidates is called depends on conditions that are not followed,
            # so a call is reported only where it fits none of them.
            if all(found):
                for findings in found:
                    yield from findings

    def _inner(self, scopes: tuple[Scope, ...], frames: dict[tuple[Scope, ...], Frame]) -> Frame:
        if scopes not in frames:
            outer = self._inner(scopes[:-1], frames)
            frames[scopes] = self.interpreter.inner_frame(scopes[-1], outer)
        return frames[scopes]

    def _check(
        self,
        info: FunctionInfo,
        call: ast.Call,
        callee: Value,
        arguments: Arguments,
        me: Instance | None,
    ) -> Iterator[Finding]:
        if isinstance(callee, Partial):
            inner = arguments.preceded_by(callee.arguments)
            yield from self._check(info, call, callee.target, inner, me)
            return
        target = self.target(callee)
        if target is None or not self._concerns(info, target):
            return
        for mismatch in mismatches(target.signature, arguments):
            if target.lenient and mismatch.code is Code.MISSING_ARGUMENT:
                continue
            caller = Site(info.module.path, call.lineno, info.qualname)
            provider = Site(target.info.module.path, target.info.node.lineno, target.info.qualname)
            ours = provider if provider.path in self.client else caller
            message = (
                f"{target.info.qualname} {mismatch.text}; "
                f"called by {_as_seen(info, me)} in {info.module.path}"
            )
            yield Finding(
                mismatch.code,
                ours.path,
                ours.line,
                message,
                (caller, provider),
                _hint(mismatch.code, mismatch.name, target),
            )

    def _concerns(self, info: FunctionInfo, target: Target) -> bool:
        """Say whether one of the two sides is the client's, or was brought together by it."""
        paths = {info.module.path, target.info.module.path}
        return bool(paths & self.client)

    def target(self, callee: Value) -> Target | None:  # noqa: PLR0911 - one case a kind of value
        """Return what calling a value runs, None where its signature cannot be told."""
        match callee:
            case Bound():
                if set(callee.info.decorators) - _KEEPING:
                    return None
                if callee.receiver and self.classes.is_protocol(callee.receiver.cls):
                    return None
                return Target(callee.info, signature_of(callee.info.node, bound=callee.filled))
            case ClassValue():
                return self.constructor(callee.cls)
            case Instance():
                if self.classes.is_protocol(callee.cls):
                    return None
                name = self.classes.called_as(callee.cls)
                member = self.classes.member(callee.cls, name)
                if member is None or member.function is None:
                    return None
                if set(member.function.decorators) - _KEEPING:
                    return None
                return Target(member.function, signature_of(member.function.node, bound=True))
            case Closure():
                return None
            case _:
                return None

    def constructor(self, cls: ClassInfo) -> Target | None:
        """Return the ``__init__`` that constructing a class runs, where it can be told."""
        member = self.classes.member(cls, "__init__")
        if member is None or member.function is None:
            return None
        for base in self.program.ancestors(cls):
            if base is member.owner:
                break
            if not isinstance(base, ClassInfo):
                if base.name not in {"abc.ABC", "typing.Generic", "typing.Protocol"}:
                    return None
            elif any(name in {"dataclass", "config"} for name in base.decorators):
                return None
        if set(member.function.decorators) - _KEEPING:
            return None
        # A decorator may wrap ``__init__`` and fill arguments in; it cannot invent parameters.
        lenient = any(set(base.decorators) - _KEEPING_CLASS for base in self.classes.line(cls))
        return Target(member.function, signature_of(member.function.node, bound=True), lenient)


def live_methods(classes: Classes, cls: ClassInfo) -> Iterator[FunctionInfo]:
    """Yield the methods that objects of a class can run.

    These are the nearest definition of each name, and definitions behind it that ``super()`` or an
    explicit ``Base.method(self)`` reaches.
    """
    line = classes.line(cls)
    names = {name for base in line for name in base.methods}
    for name in sorted(names):
        for base in line:
            info = base.methods.get(name)
            if info is None:
                continue
            yield info
            if not _continues(info, name):
                break


def _continues(info: FunctionInfo, name: str) -> bool:
    for call in info.calls:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == name:
            value = func.value
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "super":
                return True
            # ``Base.method(self, ...)`` names a class; its own base may be any of the line.
            first = call.args[0] if call.args else None
            if (
                isinstance(value, ast.Name | ast.Attribute)
                and isinstance(first, ast.Name)
                and first.id == info.self_name
                and not _is_external_base(value)
            ):
                return True
    return False


def _is_external_base(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "Module"


def _as_seen(info: FunctionInfo, me: Instance | None) -> str:
    if me is not None and info.owner is not None and info.owner is not me.cls:
        return f"{info.qualname} as inherited by {me.cls.name}"
    return info.qualname


def _hint(code: Code, name: str, target: Target) -> str:
    where = f"{target.info.qualname}{target.signature}"
    match code:
        case Code.UNKNOWN_KEYWORD:
            return f"accept `{name}` in {where}, or stop passing it"
        case Code.MISSING_ARGUMENT:
            return f"pass `{name}`, or give it a default in {where}"
        case Code.TOO_MANY_POSITIONALS:
            return f"compare the order of arguments with {where}"
        case _:
            return f"compare with {where}"


def check_dimensions(classes: Classes, module: ModuleInfo) -> Iterator[Finding]:
    """Check the tables of dynamic dimensions that class decorators are given.

    Such a table is the keyword ``dynamic_arg_dims`` with parameter names of ``forward`` as keys;
    upstream's ``support_torch_compile`` refuses an unknown name when the class is made.
    """
    for cls in module.classes.values():
        for decorator in cls.node.decorator_list:
            if isinstance(decorator, ast.Call):
                for keyword in decorator.keywords:
                    if keyword.arg == "dynamic_arg_dims" and isinstance(keyword.value, ast.Dict):
                        yield from _table(classes, cls, keyword.value)


def _table(classes: Classes, cls: ClassInfo, table: ast.Dict) -> Iterator[Finding]:
    member = classes.member(cls, "forward")
    if member is None or member.function is None:
        return
    info = member.function
    args = [*info.node.args.posonlyargs, *info.node.args.args, *info.node.args.kwonlyargs]
    there = Site(info.module.path, info.node.lineno, info.qualname)
    named: set[str] = set()
    for key in table.keys:
        if key is None:
            return
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            return
        named.add(key.value)
        if key.value not in {arg.arg for arg in args}:
            yield Finding(
                Code.DIMENSION_UNKNOWN,
                cls.module.path,
                key.lineno,
                f"the dimension table of {cls.name} names `{key.value}`, "
                f"which {info.qualname} does not take",
                (Site(cls.module.path, key.lineno, cls.name), there),
                f"drop `{key.value}` from the table or add the parameter",
            )
    for arg in args:
        annotation = ast.unparse(arg.annotation) if arg.annotation else ""
        if arg.arg in named or "Tensor" not in annotation.replace("IntermediateTensors", ""):
            continue
        # A tensor may be a scalar, or of one shape always: another table has to know better.
        other = _table_with(classes.program, cls.module, arg.arg)
        if other is not None:
            yield Finding(
                Code.DIMENSION_LACKS,
                cls.module.path,
                table.lineno,
                f"the dimension table of {cls.name} lacks the tensor `{arg.arg}`, "
                f"which a table in {other.path} has",
                (Site(cls.module.path, table.lineno, cls.name), other),
                f"add `{arg.arg}`, unless its shape never changes",
            )


def _table_with(program: Program, module: ModuleInfo, name: str) -> Site | None:
    """Return the first dimension table beside a module that holds a name, by a text search."""
    pattern = re.compile(rb"dynamic_arg_dims\s*=\s*\{[^}]*[\"']%s[\"']" % name.encode())
    for path in program.below(module.path.rpartition("/")[0] + "/"):
        source = program.source(path)
        if b"dynamic_arg_dims" in source and (match := pattern.search(source)):
            return Site(path, source.count(b"\n", 0, match.end()) + 1, name)
    return None
