"""Rule group CT1: every imported name exists."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tools.contract.findings import Code, Finding, Severity, Site
from tools.contract.parsing import branches
from tools.contract.program import ModuleRef, Program
from tools.contract.source import Guard, ImportName, ModuleInfo


@dataclass(frozen=True, order=True)
class Wanted:
    """A name that a client takes from another distribution.

    Attributes:
        module: Dotted module.
        attr: The name in it, "" where only the module is imported.
        path: The client's file.
        line: The client's line.
    """

    module: str
    attr: str
    path: str
    line: int


def check_imports(program: Program, module: ModuleInfo) -> Iterator[Finding]:
    """Check every import and every attribute of an imported module in one file."""
    for found in module.imports:
        if program.is_internal(found.module) and found.guard is not Guard.CAUGHT:
            yield from _check_import(program, module, found)
    yield from _check_attributes(program, module)


def wanted(program: Program, module: ModuleInfo) -> Iterator[Wanted]:
    """Yield what a file needs from other distributions, leaving out what it can do without."""
    for found in module.imports:
        if found.guard in {Guard.CAUGHT, Guard.TYPE_CHECKING} or program.is_internal(found.module):
            continue
        attr = "" if found.attr == "*" else found.attr
        yield Wanted(found.module, attr, module.path, found.line)


def _check_import(program: Program, module: ModuleInfo, found: ImportName) -> Iterator[Finding]:
    here = Site(module.path, found.line, found.local)
    severity, hint = None, ""
    if found.guard is Guard.CONDITION:
        severity = Severity.WARNING
    code = None
    if not program.exists(found.module):
        parent, _, last = found.module.rpartition(".")
        # ``import a.b`` may name an attribute of ``a`` only through a package's own tables.
        if not found.attr and parent and program.resolve(parent, last) is not None:
            return
        code = Code.MODULE_MISSING
        message = f"module {found.module} does not exist"
        hint = _moved(program, found.attr) if found.attr else ""
        there = Site(found.module.replace(".", "/") + ".py", 1)
    elif found.attr and found.attr != "*" and program.resolve(found.module, found.attr) is None:
        code = Code.NAME_MISSING
        message = f"{found.module} has no {found.attr}"
        hint = _moved(program, found.attr)
        info = program.module(found.module)
        there = Site(info.path if info else found.module, 1, found.attr)
    if code is None:
        return
    if found.guard is Guard.TYPE_CHECKING:
        message += " (imported for type checkers only)"
        yield Finding(Code.TYPE_ONLY_IMPORT, module.path, found.line, message, (here, there), hint)
        return
    yield Finding(
        code, module.path, found.line, message, (here, there), hint, severity or code.severity
    )


def _moved(program: Program, name: str) -> str:
    """Say where a definition of that name now stands, as a hint; a text search, then a parse."""
    if not name or name == "*":
        return ""
    needles = [f"class {name}".encode(), f"def {name}".encode(), f"\n{name}".encode()]
    hits: list[str] = []
    for path in sorted(program.files):
        if not path.endswith(".py"):
            continue
        source = program.source(path)
        if not any(needle in source for needle in needles):
            continue
        info = program.module_at(path)
        if info and any(not isinstance(d, ImportName) for d in info.bindings.get(name, ())):
            hits.append(info.name)
        if len(hits) > 3:
            break
    if not hits or len(hits) > 3:
        return "drop the import, or guard it where the name is optional"
    return f"{name} is defined in {' and '.join(hits)}"


def _check_attributes(program: Program, module: ModuleInfo) -> Iterator[Finding]:
    modules = {
        found.local: symbol.name
        for found in module.imports
        if not found.inner and isinstance(symbol := _imported(program, found), ModuleRef)
    }
    if not modules:
        return
    rebound = _rebound(module.tree)
    tested = {
        (node.args[0].id, node.args[1].value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"hasattr", "getattr"}
        and len(node.args) > 1
        and isinstance(node.args[0], ast.Name)
        and isinstance(node.args[1], ast.Constant)
    }
    deferred = {
        id(part)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Lambda)
        for part in ast.walk(node)
    }
    for node in _uncaught(module.tree.body, Guard.NONE):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        name = node.value.id
        if name not in modules or name in rebound or (name, node.attr) in tested:
            continue
        if isinstance(node.ctx, ast.Load) and program.resolve(modules[name], node.attr) is None:
            yield Finding(
                Code.MODULE_ATTRIBUTE,
                module.path,
                node.lineno,
                f"{modules[name]} has no {node.attr}",
                (
                    Site(module.path, node.lineno, f"{name}.{node.attr}"),
                    Site(modules[name].replace(".", "/") + ".py", 1),
                ),
                _moved(program, node.attr),
                # Whether a lambda runs at all is decided where it is called.
                Severity.WARNING if id(node) in deferred else Severity.ERROR,
            )


def _imported(program: Program, found: ImportName) -> object:
    if not program.is_internal(found.module):
        return None
    if not found.attr:
        return ModuleRef(found.module) if program.module(found.module) else None
    return program.resolve(found.module, found.attr)


def _rebound(tree: ast.Module) -> set[str]:
    """Names that are parameters or assigned anywhere: they need not be the imported module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def _uncaught(body: list[ast.stmt], guard: Guard) -> Iterator[ast.AST]:
    """Yield every node that is not inside a ``try`` that catches the failure."""
    for statement in body:
        inner = branches(statement, guard)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = [(statement.body, guard)]
            for part in (*statement.decorator_list, *_headers(statement)):
                yield from ast.walk(part)
        elif not inner:
            yield from ast.walk(statement)
        for block, weaker in inner:
            if weaker not in {Guard.CAUGHT, Guard.TYPE_CHECKING}:
                yield from _uncaught(block, weaker)
        for child in ast.iter_child_nodes(statement) if inner else ():
            if isinstance(child, ast.expr):
                yield from ast.walk(child)


def _headers(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.expr]:
    if isinstance(node, ast.ClassDef):
        return [*node.bases, *(keyword.value for keyword in node.keywords)]
    return [*node.args.defaults, *(value for value in node.args.kw_defaults if value)]
