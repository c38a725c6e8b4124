"""Generated contract breaks: what upstream may do to the things a client relies on.

Each mutation is a change that upstream could make in one commit: it is consistent in upstream's own
files, and breaks only what the client assumed. Files are rewritten from their syntax trees.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tools.contract.program import Program
from tools.contract.shadows import World
from tools.contract.signature import signature_of
from tools.contract.source import ClassInfo, FunctionInfo, ModuleInfo
from tools.contract.values import Bound, ClassValue, Frame, Instance
from tools.tree import Tree


@dataclass(frozen=True)
class Edited:
    """A tree with some files replaced or added."""

    below: Tree
    files: dict[str, bytes] = field(default_factory=dict)

    def read(self, path: str) -> bytes | None:
        found = self.files.get(path)
        return found if found is not None else self.below.read(path)

    def paths(self, prefix: str = "") -> Iterator[str]:
        added = {path for path in self.files if path.startswith(prefix)}
        return iter(sorted(added | set(self.below.paths(prefix))))


@dataclass(frozen=True)
class Mutation:
    """One break.

    Attributes:
        kind: What upstream did.
        name: What it did it to.
        parameter: The parameter or new name concerned, "" where there is none.
        files: The new content of the files that it touches.
    """

    kind: str
    name: str
    parameter: str
    files: dict[str, bytes]

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name}" + (f" ({self.parameter})" if self.parameter else "")


@dataclass(frozen=True)
class _Use:
    """A function that client code calls, with one call."""

    target: FunctionInfo
    call: ast.Call


def generate(tree: Tree, client: list[str]) -> list[Mutation]:
    """Return every mutation that can be generated for a client's modules, in a stable order."""
    world = World.of(Program(tree))
    modules = [m for path in client if (m := world.program.module_at(path)) is not None]
    paths = frozenset(client)
    found: list[Mutation] = []
    for use in _uses(world, modules, paths):
        found += _signature_mutations(use)
    for function in _overridden(world, modules, paths):
        found += _override_mutations(function)
    for definition in _imported(world, modules, paths):
        found += _definition_mutations(definition)
    for cls, name in _switches(world, modules, paths):
        found.append(_flip(cls, name))
    unique = {mutation.label: mutation for mutation in found}
    return [unique[label] for label in sorted(unique)]


def _uses(world: World, modules: list[ModuleInfo], paths: frozenset[str]) -> Iterator[_Use]:
    for module in modules:
        functions = [
            *module.functions.values(),
            *(info for cls in module.classes.values() for info in cls.methods.values()),
        ]
        for info in functions:
            frame = Frame(module, info, Instance(info.owner) if info.owner else None)
            for call in info.calls:
                for value in world.interpreter.evaluate(call.func, frame):
                    target: FunctionInfo | None = None
                    if isinstance(value, Bound):
                        target = value.info
                    elif isinstance(value, ClassValue):
                        member = world.classes.member(value.cls, "__init__")
                        target = member.function if member else None
                    elif isinstance(value, Instance):
                        called = world.classes.called_as(value.cls)
                        member = world.classes.member(value.cls, called)
                        target = member.function if member else None
                    if target is not None and target.module.path not in paths:
                        yield _Use(target, call)


def _overridden(
    world: World, modules: list[ModuleInfo], paths: frozenset[str]
) -> Iterator[FunctionInfo]:
    for module in modules:
        for cls in module.classes.values():
            for name in cls.methods:
                member = world.classes.member(cls, name, cls)
                base = member.function if member else None
                if base and base.module.path not in paths and not name.startswith("__"):
                    yield base


def _imported(
    world: World, modules: list[ModuleInfo], paths: frozenset[str]
) -> Iterator[ClassInfo | FunctionInfo]:
    for module in modules:
        for name in module.imports:
            if name.attr and world.program.is_internal(name.module):
                symbol = world.program.resolve(name.module, name.attr)
                defined = isinstance(symbol, ClassInfo | FunctionInfo)
                if defined and symbol.module.path not in paths:
                    yield symbol


def _switches(
    world: World, modules: list[ModuleInfo], paths: frozenset[str]
) -> Iterator[tuple[ClassInfo, str]]:
    for module in modules:
        for cls in module.classes.values():
            for base in world.classes.line(cls)[1:]:
                for name, value in base.attributes.items():
                    member = world.classes.member(cls, name)
                    if base.module.path in paths or member is None or member.owner is not base:
                        continue
                    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                        yield base, name


# -- edits ------------------------------------------------------------------------------------


def _edit(info: ClassInfo | FunctionInfo, change: Callable[[ast.Module, ast.stmt], None]) -> bytes:
    """Return a module's source after a change to the statement that defines something."""
    tree = ast.parse(info.module.source)
    node = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, type(info.node))
        and node.lineno == info.node.lineno
        and node.name == info.name
    )
    change(tree, node)
    return ast.unparse(tree).encode() + b"\n"


def _mutation(
    kind: str,
    info: ClassInfo | FunctionInfo,
    parameter: str,
    change: Callable[[ast.Module, ast.stmt], None],
) -> Mutation:
    name = info.qualname if isinstance(info, FunctionInfo) else info.name
    return Mutation(kind, name, parameter, {info.module.path: _edit(info, change)})


def _signature_mutations(use: _Use) -> Iterator[Mutation]:
    info, call = use.target, use.call
    if any(isinstance(a, ast.Starred) for a in call.args) or any(
        k.arg is None for k in call.keywords
    ):
        return
    signature = signature_of(info.node, bound=bool(info.self_name))
    keywords = [k.arg for k in call.keywords if k.arg]
    if not signature.var_keyword:

        def add(_tree: ast.Module, node: ast.stmt) -> None:
            node.args.kwonlyargs.insert(0, ast.arg("brand_new"))  # type: ignore[attr-defined]
            node.args.kw_defaults.insert(0, None)  # type: ignore[attr-defined]

        yield _mutation("add required argument", info, "brand_new", add)
        for name in keywords[:2]:
            if name in signature.names():
                yield _mutation("rename argument", info, name, _renamer(name))
                yield _mutation("drop argument", info, name, _dropper(name))
    positional = [p.name for p in signature.positionals()]
    if len(call.args) >= 2 and len(positional) >= 2:
        yield _mutation("reorder arguments", info, ", ".join(positional[:2]), _swapper(positional))
    given = {*positional[: len(call.args)], *keywords}
    for parameter in signature.parameters:
        if not parameter.required and parameter.name not in given:
            yield _mutation(
                "make argument required", info, parameter.name, _requirer(parameter.name)
            )
            return


def _renamer(name: str) -> Callable[[ast.Module, ast.stmt], None]:
    def change(_tree: ast.Module, node: ast.stmt) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.arg) and part.arg == name:
                part.arg = f"{name}_renamed"
            elif isinstance(part, ast.Name) and part.id == name:
                part.id = f"{name}_renamed"

    return change


def _dropper(name: str) -> Callable[[ast.Module, ast.stmt], None]:
    def change(_tree: ast.Module, node: ast.stmt) -> None:
        args = node.args  # type: ignore[attr-defined]
        for position, arg in enumerate(args.args):
            if arg.arg == name:
                default = position - (len(args.args) - len(args.defaults))
                del args.args[position]
                if default >= 0:
                    del args.defaults[default]
        for position, arg in enumerate(args.kwonlyargs):
            if arg.arg == name:
                del args.kwonlyargs[position]
                del args.kw_defaults[position]

    return change


def _swapper(names: list[str]) -> Callable[[ast.Module, ast.stmt], None]:
    def change(_tree: ast.Module, node: ast.stmt) -> None:
        args = node.args.args  # type: ignore[attr-defined]
        first = next(i for i, arg in enumerate(args) if arg.arg == names[0])
        second = next(i for i, arg in enumerate(args) if arg.arg == names[1])
        args[first], args[second] = args[second], args[first]

    return change


def _requirer(name: str) -> Callable[[ast.Module, ast.stmt], None]:
    def change(_tree: ast.Module, node: ast.stmt) -> None:
        args = node.args  # type: ignore[attr-defined]
        for position, arg in enumerate(args.kwonlyargs):
            if arg.arg == name:
                args.kw_defaults[position] = None
                return
        position = next(i for i, arg in enumerate(args.args) if arg.arg == name)
        default = position - (len(args.args) - len(args.defaults))
        # What lies behind keeps its default as a keyword-only parameter.
        moved = args.args[position + 1 :]
        args.kwonlyargs = [*moved, *args.kwonlyargs]
        args.kw_defaults = [*args.defaults[default + 1 :], *args.kw_defaults]
        args.args = args.args[: position + 1]
        # Required parameters cannot follow optional ones: it becomes keyword-only too.
        args.kwonlyargs.insert(0, args.args.pop())
        args.kw_defaults.insert(0, None)
        args.defaults = args.defaults[:default]

    return change


def _override_mutations(info: FunctionInfo) -> Iterator[Mutation]:
    new = f"{info.name}_renamed"

    def rename(tree: ast.Module, node: ast.stmt) -> None:
        node.name = new  # type: ignore[attr-defined]
        for part in ast.walk(tree):
            if isinstance(part, ast.Attribute) and part.attr == info.name:
                part.attr = new

    yield _mutation("rename overridden method", info, new, rename)

    def drop(tree: ast.Module, node: ast.stmt) -> None:
        for part in ast.walk(tree):
            if isinstance(part, ast.ClassDef) and node in part.body:
                part.body.remove(node)
                part.body.append(ast.Pass())

    yield _mutation("drop overridden method", info, "", drop)

    def add(_tree: ast.Module, node: ast.stmt) -> None:
        node.args.kwonlyargs.insert(0, ast.arg("brand_new"))  # type: ignore[attr-defined]
        node.args.kw_defaults.insert(0, None)  # type: ignore[attr-defined]

    yield _mutation("add required argument to overridden", info, "brand_new", add)


def _definition_mutations(info: ClassInfo | FunctionInfo) -> Iterator[Mutation]:
    new = f"{info.name}Renamed"

    def rename(tree: ast.Module, node: ast.stmt) -> None:
        node.name = new  # type: ignore[attr-defined]
        for part in ast.walk(tree):
            if isinstance(part, ast.Name) and part.id == info.name:
                part.id = new

    yield _mutation("rename definition", info, new, rename)

    def move(tree: ast.Module, node: ast.stmt) -> None:
        tree.body.remove(node)

    if info.node in info.module.tree.body:
        moved = _mutation("move definition", info, "", move)
        files = moved.files | {"vllm/moved_here.py": ast.unparse(info.node).encode() + b"\n"}
        yield Mutation(moved.kind, moved.name, moved.parameter, files)


def _flip(cls: ClassInfo, name: str) -> Mutation:
    def change(_tree: ast.Module, node: ast.stmt) -> None:
        for part in node.body:  # type: ignore[attr-defined]
            targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", 0)]
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                part.value = ast.Constant(not part.value.value)

    return _mutation("flip switch", cls, name, change)
