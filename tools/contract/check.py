"""The check of one tree: every rule over every client module."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from tools.contract.calls import CallRules, check_dimensions
from tools.contract.classes import Classes
from tools.contract.findings import Code, ContractReport, Finding, Site, ordered
from tools.contract.imports import check_imports
from tools.contract.infer import Interpreter
from tools.contract.program import Program, module_name
from tools.contract.values import Instance
from tools.errors import BadInput
from tools.tree import Tree


def client_paths(tree: Tree, modules: Iterable[str]) -> tuple[str, ...]:
    """Return the files that paths and globs name.

    Raises:
        BadInput: A path or glob names no Python file of the tree.
    """
    found: set[str] = set()
    for pattern in modules:
        head = pattern.split("*", 1)[0].split("?", 1)[0].split("[", 1)[0]
        hits = [
            path
            for path in tree.paths(head)
            if path.endswith(".py") and (path == pattern or fnmatchcase(path, pattern))
        ]
        if not hits:
            raise BadInput(f"no Python file matches {pattern!r}", "give a path or glob of the tree")
        found.update(hits)
    return tuple(sorted(found))


def check(tree: Tree, *, modules: Iterable[str]) -> ContractReport:
    """Check what client modules assume about the tree that they stand in.

    Args:
        tree: The tree, client modules included.
        modules: Paths or globs of the client modules.

    Raises:
        BadInput: A pattern matches nothing.
    """
    program = Program(tree)
    paths = client_paths(tree, modules)
    findings = list(_findings(program, paths))
    findings += [
        Finding(Code.SYNTAX, path, line, f"does not parse: {text}", (Site(path, line),))
        for path, (line, text) in program.broken.items()
    ]
    return ContractReport(ordered(findings), paths)


def _findings(program: Program, paths: tuple[str, ...]) -> Iterator[Finding]:
    classes = Classes(program)
    rules = CallRules(program, classes, Interpreter(program, classes), frozenset(paths))
    for path in paths:
        module = program.module(module_name(path))
        if module is None or path in program.broken:
            continue
        yield from check_imports(program, module)
        yield from check_dimensions(program, classes, module)
        for function in module.functions.values():
            yield from rules.check_function(function)
        for cls in module.classes.values():
            yield from rules.check_class(Instance(cls))
