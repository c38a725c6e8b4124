"""From a file's bytes to a module with its bindings and imports.

A module is parsed once; what its top-level names may be bound to is collected over every branch
(``if``, ``try``, ``with``), because which branch runs is not known.
"""

import ast
from collections.abc import Iterator

from tools.contract.source import (
    ClassInfo,
    Definition,
    FunctionInfo,
    Guard,
    ImportName,
    ModuleInfo,
    blocks,
    bound_names,
    last_name,
)
from tools.imports import imported_module


def parse_module(name: str, path: str, source: bytes) -> ModuleInfo:
    """Parse a module and collect its bindings and imports.

    Raises:
        SyntaxError: The source does not parse.
        ValueError: The source holds a null byte.
    """
    package = path.endswith("/__init__.py")
    module = ModuleInfo(name, path, source, ast.parse(source), package)
    _collect(module, module.tree.body, Guard.NONE)
    _collect_inner(module)
    return module


def is_type_checking(test: ast.expr) -> bool:
    """Say whether an ``if`` test is ``TYPE_CHECKING``."""
    return last_name(test) == "TYPE_CHECKING"


def _catches_import_error(node: ast.Try | ast.TryStar) -> bool:
    broad = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "AttributeError"}
    for handler in node.handlers:
        if handler.type is None:
            return True
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(last_name(kind) in broad for kind in kinds):
            return True
    return False


def branches(node: ast.stmt, guard: Guard) -> list[tuple[list[ast.stmt], Guard]]:
    """Return the blocks of a compound statement with the guard that each adds."""
    match node:
        case ast.If():
            if is_type_checking(node.test):
                return [(node.body, Guard.TYPE_CHECKING), (node.orelse, guard)]
            weaker = guard if guard is not Guard.NONE else Guard.CONDITION
            return [(node.body, weaker), (node.orelse, weaker)]
        case ast.Try() | ast.TryStar():
            caught = Guard.CAUGHT if _catches_import_error(node) else guard
            if guard is Guard.TYPE_CHECKING:
                caught = guard
            return [
                (node.body, caught),
                *((handler.body, caught) for handler in node.handlers),
                (node.orelse, guard),
                (node.finalbody, guard),
            ]
        case _:
            return [(block, guard) for block in blocks(node)]


def _collect(  # noqa: PLR0912 - one case for each kind of statement
    module: ModuleInfo, body: list[ast.stmt], guard: Guard
) -> None:
    def bind(name: str, definition: Definition) -> None:
        module.bindings.setdefault(name, []).append(definition)

    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                for found in import_names(module, node, guard):
                    module.imports.append(found)
                    if found.local != "*":
                        bind(found.local, found)
                    else:
                        bind("*", found)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                bind(node.name, FunctionInfo(module, node))
            case ast.ClassDef():
                bind(node.name, ClassInfo(module, node))
            case ast.Assign():
                for target in node.targets:
                    for name in bound_names(target):
                        bind(name, node.value)
            case ast.AnnAssign() | ast.AugAssign():
                for name in bound_names(node.target):
                    bind(name, node.value or ast.Constant(None))
            case ast.With():
                for item in node.items:
                    for name in bound_names(item.optional_vars) if item.optional_vars else ():
                        bind(name, item.context_expr)
            case ast.For():
                for name in bound_names(node.target):
                    bind(name, node.iter)
            case ast.Expr() if isinstance(node.value, ast.NamedExpr):
                bind(node.value.target.id, node.value.value)
            case _:
                pass
        for block, inner in branches(node, guard):
            _collect(module, block, inner)


def import_names(
    module: ModuleInfo, node: ast.Import | ast.ImportFrom, guard: Guard, *, inner: bool = False
) -> Iterator[ImportName]:
    """Yield what an import statement binds, with absolute module names."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            if alias.asname:
                yield ImportName(alias.asname, alias.name, "", alias.lineno, guard, inner)
            else:
                # ``import a.b`` binds ``a`` and makes ``a.b`` a module that must exist.
                yield ImportName(top, top, "", alias.lineno, guard, inner)
                if alias.name != top:
                    yield ImportName(alias.name, alias.name, "", alias.lineno, guard, inner)
        return
    base = imported_module(node, module.name if module.package else module.name.rpartition(".")[0])
    for alias in node.names:
        local = alias.asname or alias.name
        yield ImportName(local, base, alias.name, alias.lineno, guard, inner)


def _collect_inner(module: ModuleInfo) -> None:
    """Collect the imports that stand inside functions and class bodies."""

    def visit(body: list[ast.stmt], guard: Guard, inside: bool) -> None:
        for node in body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                if inside:
                    module.imports.extend(import_names(module, node, guard, inner=True))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(node.body, guard, True)
            for block, weaker in branches(node, guard):
                visit(block, weaker, inside)

    visit(module.tree.body, Guard.NONE, False)
