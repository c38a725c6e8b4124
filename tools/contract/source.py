"""Python modules of a tree, as the checker sees them: bindings, classes and functions.

Nothing is executed: these are syntax trees, and what can be read off them alone.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TypeVar

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Scope = Comprehension | ast.Lambda | FunctionNode
_LEAVES = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


class Guard(Enum):
    """Under what condition a statement runs."""

    NONE = "always"
    TYPE_CHECKING = "for type checkers only"
    CONDITION = "under a condition"
    CAUGHT = "where its failure is caught"


@dataclass(frozen=True)
class ImportName:
    """One name bound by an import statement.

    Attributes:
        local: The name in the importing module; "*" for a star import.
        module: Absolute name of the imported module.
        attr: Name taken from it, or "" where the module itself is bound.
        line: Line of the name.
        guard: When it runs.
        inner: Whether it stands in a function.
    """

    local: str
    module: str
    attr: str
    line: int
    guard: Guard
    inner: bool = False


@dataclass(eq=False)
class FunctionInfo:
    """A function or method."""

    module: "ModuleInfo"
    node: FunctionNode
    owner: "ClassInfo | None" = None

    @property
    def name(self) -> str:
        """Its own name."""
        return self.node.name

    @property
    def qualname(self) -> str:
        """Its name inside the module."""
        return f"{self.owner.name}.{self.name}" if self.owner else self.name

    @cached_property
    def decorators(self) -> tuple[str, ...]:
        """The last part of each decorator's name."""
        return tuple(last_name(decorator) for decorator in self.node.decorator_list)

    @cached_property
    def nodes(self) -> tuple[tuple[ast.AST, tuple["Scope", ...]], ...]:
        """Every node under the function with the inner scopes it stands in, outermost first."""
        found: list[tuple[ast.AST, tuple[Scope, ...]]] = []
        _collect_nodes(self.node, (), found)
        return tuple(found)

    @cached_property
    def call_sites(self) -> tuple[tuple[ast.Call, tuple["Scope", ...]], ...]:
        """Every call in the function with the inner scopes it stands in."""
        return tuple((n, scopes) for n, scopes in self.nodes if isinstance(n, ast.Call))

    @cached_property
    def calls(self) -> tuple[ast.Call, ...]:
        """Every call in the function, nested functions included."""
        return tuple(call for call, _ in self.call_sites)

    @cached_property
    def attribute_reads(self) -> tuple[ast.Attribute, ...]:
        """Every attribute that is read, nested functions included."""
        return tuple(
            node
            for node, _ in self.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        )

    @cached_property
    def inner_names(self) -> frozenset[str]:
        """Names that lambdas, comprehensions and nested functions bind."""
        found: set[str] = set()
        for node, scopes in self.nodes:
            if not scopes:
                continue
            if isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
        return frozenset(found)

    @cached_property
    def deferred(self) -> frozenset[int]:
        """Identities of the nodes inside lambdas, which run only where something calls them."""
        return frozenset(
            id(node)
            for node, scopes in self.nodes
            if any(isinstance(scope, ast.Lambda) for scope in scopes)
        )

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """Attribute names and strings that the function mentions."""
        found: set[str] = set()
        for node, _ in self.nodes:
            if isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
        return frozenset(found)

    @cached_property
    def self_reads(self) -> dict[str, int]:
        """Attributes read from the first parameter, with the line of the first read."""
        found: dict[str, int] = {}
        for node in self.attribute_reads:
            if isinstance(node.value, ast.Name) and node.value.id == self.self_name:
                found.setdefault(node.attr, node.lineno)
        return found

    @cached_property
    def flags(self) -> dict[int, frozenset[str]]:
        """Attributes of ``self`` that have to be true where a node runs, by node identity."""
        found: dict[int, frozenset[str]] = {}
        for node, _ in self.nodes:
            if not isinstance(node, ast.If):
                continue
            tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            if isinstance(node.test, ast.BoolOp) and not isinstance(node.test.op, ast.And):
                continue
            names = {
                test.attr
                for test in tests
                if isinstance(test, ast.Attribute)
                and isinstance(test.value, ast.Name)
                and test.value.id == self.self_name
            }
            for statement in node.body if names else ():
                for part in ast.walk(statement):
                    found[id(part)] = found.get(id(part), frozenset()) | names
        return found

    @cached_property
    def self_name(self) -> str:
        """Name of the first parameter of a method that has one bound, else ""."""
        if self.owner is None or "staticmethod" in self.decorators:
            return ""
        args = [*self.node.args.posonlyargs, *self.node.args.args]
        return args[0].arg if args else ""


@dataclass(eq=False)
class ClassInfo:
    """A top-level class."""

    module: "ModuleInfo"
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.name

    @cached_property
    def methods(self) -> dict[str, FunctionInfo]:
        """Methods by name; of overloads and setters the plain definition is kept."""
        found: dict[str, FunctionInfo] = {}
        for node in flatten(self.node.body):
            if isinstance(node, FunctionNode):
                info = FunctionInfo(self.module, node, self)
                if "overload" in info.decorators:
                    continue
                if any(name in {"setter", "deleter"} for name in info.decorators):
                    continue
                found[node.name] = info
        return found

    @cached_property
    def attributes(self) -> dict[str, ast.expr | None]:
        """Class-level names with the expression assigned, None where only annotated."""
        found: dict[str, ast.expr | None] = {}
        for node in flatten(self.node.body):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in bound_names(target):
                        found[name] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = node.value
            elif isinstance(node, ast.ClassDef):
                found[node.name] = None
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = None
        return found

    @cached_property
    def annotations(self) -> dict[str, ast.expr]:
        """Class-level annotations."""
        return {
            node.target.id: node.annotation
            for node in flatten(self.node.body)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }

    @cached_property
    def attribute_lines(self) -> dict[str, int]:
        """Line of each class-level assignment."""
        found: dict[str, int] = {}
        for node in flatten(self.node.body):
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            for target in targets:
                for name in bound_names(target):
                    found[name] = node.lineno
        return found

    @cached_property
    def decorators(self) -> tuple[str, ...]:
        """The last part of each decorator's name."""
        return tuple(last_name(decorator) for decorator in self.node.decorator_list)


Definition = ClassInfo | FunctionInfo | ImportName | ast.expr
_Kind = TypeVar("_Kind", ClassInfo, FunctionInfo)


@dataclass(eq=False)
class ModuleInfo:
    """A parsed module.

    Attributes:
        name: Absolute dotted name.
        path: Path in its tree.
        source: Its bytes.
        tree: Its syntax tree.
        package: Whether it is an ``__init__.py``.
        bindings: Everything each top-level name may be bound to, in source order.
        imports: Every import statement, those inside functions included.
    """

    name: str
    path: str
    source: bytes
    tree: ast.Module
    package: bool
    bindings: dict[str, list[Definition]] = field(default_factory=dict)
    imports: list[ImportName] = field(default_factory=list)

    @cached_property
    def classes(self) -> dict[str, ClassInfo]:
        """Top-level classes; of several under one name the first."""
        return _first_of(self.bindings, ClassInfo)

    @cached_property
    def functions(self) -> dict[str, FunctionInfo]:
        """Top-level functions; of several under one name the first."""
        return _first_of(self.bindings, FunctionInfo)

    @cached_property
    def lines(self) -> list[str]:
        """Source lines, for diffs and comments."""
        return self.source.decode("utf-8", "replace").splitlines()


def _collect_nodes(
    node: ast.AST, scopes: tuple[Scope, ...], found: list[tuple[ast.AST, tuple[Scope, ...]]]
) -> None:
    """Collect the nodes under a node; faster than ``ast.walk``, and classes are left out."""
    for name in node._fields:
        value = getattr(node, name, None)
        children = value if type(value) is list else (value,)
        for child in children:
            if not isinstance(child, ast.AST) or isinstance(child, _LEAVES):
                continue
            found.append((child, scopes))
            if not isinstance(child, ast.ClassDef):
                inner = (*scopes, child) if isinstance(child, Scope) else scopes
                _collect_nodes(child, inner, found)


def _first_of(bindings: dict[str, list[Definition]], kind: type[_Kind]) -> dict[str, _Kind]:
    found: dict[str, _Kind] = {}
    for name, definitions in bindings.items():
        for definition in definitions:
            if isinstance(definition, kind):
                found.setdefault(name, definition)
    return found


def last_name(node: ast.expr) -> str:
    """Return the last part of a dotted name, of a call's function or of a subscript's value."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` for a chain of attributes on a name, else ""."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


def flatten(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, those of its branches included, in order."""
    for node in body:
        yield node
        for part in blocks(node):
            yield from flatten(part)


def blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    """Return the bodies of a compound statement that binds names where it stands."""
    match node:
        case ast.If() | ast.For() | ast.While():
            return [node.body, node.orelse]
        case ast.Try() | ast.TryStar():
            return [
                node.body,
                *(handler.body for handler in node.handlers),
                node.orelse,
                node.finalbody,
            ]
        case ast.With():
            return [node.body]
        case ast.Match():
            return [case.body for case in node.cases]
        case _:
            return []


def bound_names(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment to a target binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from bound_names(part)
    elif isinstance(target, ast.Starred):
        yield from bound_names(target.value)
