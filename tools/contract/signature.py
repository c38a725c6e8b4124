"""Signatures as written, and what a call does to them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tools.contract.findings import Code
from tools.contract.source import FunctionNode


@dataclass(frozen=True)
class Parameter:
    """One parameter."""

    name: str
    required: bool
    positional: bool
    keyword: bool


@dataclass(frozen=True)
class Signature:
    """What a function takes, without a bound first parameter."""

    parameters: tuple[Parameter, ...]
    var_positional: bool
    var_keyword: bool

    def names(self) -> tuple[str, ...]:
        """Names that may be passed by keyword."""
        return tuple(p.name for p in self.parameters if p.keyword)

    def positionals(self) -> tuple[Parameter, ...]:
        """Parameters that may be passed by position, in order."""
        return tuple(p for p in self.parameters if p.positional)

    def __str__(self) -> str:
        parts = [p.name if p.required else f"{p.name}=..." for p in self.parameters if p.positional]
        if self.var_positional:
            parts.append("*args")
        keyword_only = [p for p in self.parameters if not p.positional]
        if keyword_only and not self.var_positional:
            parts.append("*")
        parts += [p.name if p.required else f"{p.name}=..." for p in keyword_only]
        if self.var_keyword:
            parts.append("**kwargs")
        return f"({', '.join(parts)})"


@dataclass(frozen=True)
class Arguments:
    """What a call passes.

    Attributes:
        positional: Number of plain positionals.
        keywords: Names of plain keywords.
        starred: Whether ``*x`` is passed.
        double_starred: Whether ``**x`` is passed.
    """

    positional: int
    keywords: tuple[str, ...]
    starred: bool = False
    double_starred: bool = False

    def preceded_by(self, other: "Arguments") -> "Arguments":
        """Return the arguments of a partial application followed by these."""
        kept = tuple(name for name in other.keywords if name not in self.keywords)
        return Arguments(
            self.positional + other.positional,
            kept + self.keywords,
            self.starred or other.starred,
            self.double_starred or other.double_starred,
        )


@dataclass(frozen=True)
class Mismatch:
    """One way in which a call does not fit a signature."""

    code: Code
    name: str
    text: str


def signature_of(node: FunctionNode | ast.Lambda, *, bound: bool) -> Signature:
    """Return a function's signature.

    Args:
        node: The function.
        bound: Whether the first positional parameter is filled (``self``, ``cls``).
    """
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    parameters = [
        Parameter(arg.arg, index < required, True, index >= len(args.posonlyargs))
        for index, arg in enumerate(positional)
    ]
    parameters += [
        Parameter(arg.arg, default is None, False, True)
        for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    if bound and positional:
        parameters = parameters[1:]
    return Signature(tuple(parameters), args.vararg is not None, args.kwarg is not None)


def arguments_of(call: ast.Call) -> Arguments:
    """Return what a call passes."""
    return Arguments(
        sum(not isinstance(arg, ast.Starred) for arg in call.args),
        tuple(keyword.arg for keyword in call.keywords if keyword.arg),
        any(isinstance(arg, ast.Starred) for arg in call.args),
        any(keyword.arg is None for keyword in call.keywords),
    )


def mismatches(signature: Signature, arguments: Arguments) -> Iterator[Mismatch]:
    """Yield every way in which the call would raise TypeError."""
    positionals = signature.positionals()
    if arguments.positional > len(positionals) and not signature.var_positional:
        yield Mismatch(
            Code.TOO_MANY_POSITIONALS,
            "",
            f"takes {len(positionals)} positionals, {arguments.positional} are passed",
        )
    filled = {p.name for p in positionals[: arguments.positional]}
    by_keyword = set(signature.names())
    for name in arguments.keywords:
        if name in filled and name in by_keyword:
            yield Mismatch(Code.DUPLICATE_ARGUMENT, name, f"is passed `{name}` twice")
        elif name not in by_keyword and not signature.var_keyword:
            yield Mismatch(Code.UNKNOWN_KEYWORD, name, f"does not take `{name}`")
    if arguments.double_starred:
        return
    for parameter in signature.parameters:
        if not parameter.required or parameter.name in filled:
            continue
        if parameter.name in arguments.keywords and parameter.keyword:
            continue
        if arguments.starred and parameter.positional:
            continue
        yield Mismatch(
            Code.MISSING_ARGUMENT,
            parameter.name,
            f"requires `{parameter.name}`, which is not passed",
        )
