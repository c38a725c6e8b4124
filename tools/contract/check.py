"""The check of one tree: every rule over every client module."""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from tools.contract.attributes import AttributeRules
from tools.contract.calls import CallRules, check_dimensions
from tools.contract.configs import ConfigRules
from tools.contract.construction import ConstructionRules
from tools.contract.dependencies import DependencyIndex, check_dependencies
from tools.contract.findings import Code, ContractReport, Finding, Site, ordered
from tools.contract.imports import check_imports, wanted
from tools.contract.program import Program
from tools.contract.registration import RegistrationRules
from tools.contract.registries import Registries, check_registries
from tools.contract.shadows import World, check_shadows
from tools.contract.source import ModuleInfo
from tools.contract.suppress import apply_ignores
from tools.contract.values import Instance
from tools.errors import BadInput, Unavailable
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


def check(
    tree: Tree,
    *,
    modules: Iterable[str],
    baseline: Tree | None = None,
    dependencies: DependencyIndex | None = None,
    unused_ignores: bool = True,
) -> ContractReport:
    """Check what client modules assume about the tree that they stand in.

    Args:
        tree: The tree, client modules included.
        modules: Paths or globs of the client modules.
        baseline: The tree of the last verified release; None leaves the comparison (CT3) out.
        dependencies: Where names of other distributions are looked up; None leaves them out.
        unused_ignores: Whether an ignore comment that covers nothing is a finding. One source that
            serves many releases needs some comments on some of them only: check each without, and
            ask :func:`tools.contract.findings.unused_everywhere` about all of them.

    Returns:
        The findings. Where the index cannot be reached the rest is still checked, and the report
        says what was not.

    Raises:
        BadInput: A pattern matches nothing.
    """
    with _without_gc():
        world = World.of(Program(tree))
        paths = client_paths(tree, modules)
        loaded = [m for path in paths if (m := world.program.module_at(path)) is not None]
        clients = [module for module in loaded if module.path not in world.program.broken]
        registries = Registries(world.program)
        findings = list(_findings(world, registries, clients, frozenset(paths)))
        unchecked: list[str] = []
        if baseline is not None:
            old = World.of(Program(baseline))
            findings += check_shadows(old, world, frozenset(paths), clients)
            old.program.close()
        try:
            findings += _configs(world, registries, clients, dependencies)
        except Unavailable as error:
            unchecked.append(f"config classes: {error.message}")
        if dependencies is not None:
            names = [name for module in clients for name in wanted(world.program, module)]
            more, lines = check_dependencies(tree, names, dependencies)
            findings += more
            unchecked += lines
        findings += [
            Finding(Code.SYNTAX, path, line, f"does not parse: {text}", (Site(path, line),))
            for path, (line, text) in world.program.broken.items()
        ]
        standing, covered = apply_ignores(ordered(findings), clients)
        world.program.close()
    idle = tuple(f for f in standing if f.code is Code.UNUSED_IGNORE)
    kept = standing if unused_ignores else [f for f in standing if f not in idle]
    return ContractReport(ordered(kept), paths, tuple(covered), tuple(unchecked), idle)


def _findings(
    world: World, registries: Registries, clients: list[ModuleInfo], paths: frozenset[str]
) -> Iterator[Finding]:
    program, classes, interpreter = world.program, world.classes, world.interpreter
    calls = CallRules(program, classes, interpreter, paths)
    attributes = AttributeRules(program, classes, interpreter, paths)
    construction = ConstructionRules(program, classes, interpreter)
    registration = RegistrationRules(classes, interpreter, calls)
    for module in clients:
        yield from check_imports(program, module)
        yield from check_dimensions(classes, module)
        for function in module.functions.values():
            yield from calls.check_function(function)
            yield from attributes.check_function(function)
        for cls in module.classes.values():
            me = Instance(cls)
            yield from calls.check_class(me)
            yield from attributes.check_class(me)
            yield from construction.check_class(cls)
            yield from registration.check_class(cls)
    yield from check_registries(program, registries, paths)


def _configs(
    world: World,
    registries: Registries,
    clients: list[ModuleInfo],
    dependencies: DependencyIndex | None,
) -> Iterator[Finding]:
    rules = ConfigRules(world.program, world.classes, world.interpreter, registries, dependencies)
    for module in clients:
        for name, cls in module.classes.items():
            for entry in registries.by_class.get((module.name, name), ()):
                yield from rules.check_class(cls, entry.architecture)


@contextmanager
def _without_gc() -> Iterator[None]:
    """Switch the cycle collector off: syntax trees are many, live long and hold no garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
