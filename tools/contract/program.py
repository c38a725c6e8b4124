"""Names across the modules of a tree: what an import leads to, and what a class inherits."""

import ast
import re
from dataclasses import dataclass
from itertools import chain

from tools.contract.packages import Packages
from tools.contract.parsing import parse_module
from tools.contract.source import (
    ClassInfo,
    Definition,
    FunctionInfo,
    Guard,
    ImportName,
    ModuleInfo,
    dotted,
    last_name,
)
from tools.tree import Tree


@dataclass(frozen=True)
class ModuleRef:
    """A module of the tree."""

    name: str


@dataclass(frozen=True)
class External:
    """Something that another distribution provides, by its absolute dotted name."""

    name: str


@dataclass(frozen=True)
class VariableRef:
    """A module-level variable with an expression it may hold."""

    module: ModuleInfo
    name: str
    value: ast.expr


@dataclass(frozen=True)
class Dynamic:
    """A name that exists, or may, without a definition that can be read."""


Symbol = ClassInfo | FunctionInfo | VariableRef | ModuleRef | External | Dynamic

# A star import from outside the own package.
_FAR_STAR = re.compile(rb"^\s*from\s+(?:\.\.|\w)[\w.]*\s+import\s+\*", re.MULTILINE)
# Names that every module has.
_MODULE_NAMES = frozenset(
    ("__name__", "__file__", "__doc__", "__path__", "__package__", "__spec__", "__dict__")
)


class Program(Packages):
    """The Python packages of a tree, parsed on demand.

    Args:
        tree: Where the files are.
        roots: Top-level packages that belong to the tree; every other import is external.
    """

    def __init__(self, tree: Tree, roots: tuple[str, ...] = ("vllm",)) -> None:
        super().__init__(tree, roots)
        self.broken: dict[str, tuple[int, str]] = {}
        self._modules: dict[str, ModuleInfo | None] = {}
        self._resolving: set[tuple[str, str]] = set()
        self._resolved: dict[tuple[str, str], Symbol | None] = {}
        self._ancestors: dict[ClassInfo, tuple[Ancestor, ...]] = {}

    def close(self) -> None:
        """Let go of every module; nothing that was read from this program may be used after it.

        Modules, classes and functions refer to each other. Parted, they go at once, and the cycle
        collector need not find them among a million nodes of syntax trees.
        """
        for info in filter(None, self._modules.values()):
            for definition in chain.from_iterable(info.bindings.values()):
                if isinstance(definition, ClassInfo):
                    for method in vars(definition).get("methods", {}).values():
                        vars(method).clear()
                if isinstance(definition, ClassInfo | FunctionInfo):
                    vars(definition).clear()
            vars(info).clear()
        self._modules.clear()
        self._resolved.clear()
        self._ancestors.clear()

    def module(self, name: str) -> ModuleInfo | None:
        """Return a parsed module, or None where the tree has no such Python file."""
        if name not in self._modules:
            self._modules[name] = self._load(name)
        return self._modules[name]

    def module_at(self, path: str) -> ModuleInfo | None:
        """Return the module that a path holds."""
        return self.module(module_name(path))

    def _load(self, name: str) -> ModuleInfo | None:
        base = name.replace(".", "/")
        for path in (f"{base}.py", f"{base}/__init__.py"):
            if path in self.files:
                source = self.source(path)
                try:
                    return parse_module(name, path, source)
                except (SyntaxError, ValueError) as error:
                    line = getattr(error, "lineno", None) or 1
                    self.broken[path] = (line, str(getattr(error, "msg", error)))
                    return ModuleInfo(name, path, source, ast.Module([], []), package=False)
        return None

    def resolve(self, module: str, name: str) -> Symbol | None:
        """Return what ``from module import name`` gives, None where it fails."""
        key = (module, name)
        if key in self._resolved:
            return self._resolved[key]
        if key in self._resolving:
            return Dynamic()
        self._resolving.add(key)
        try:
            found = self._resolve(module, name)
        finally:
            self._resolving.discard(key)
        self._resolved[key] = found
        return found

    def _resolve(  # noqa: PLR0911 - one return for each way a module offers names
        self, module: str, name: str
    ) -> Symbol | None:
        if not self.is_internal(module):
            return External(f"{module}.{name}")
        if self.is_built(module):
            return Dynamic()
        info = self.module(module)
        if info is None:
            if self.exists(f"{module}.{name}"):
                return ModuleRef(f"{module}.{name}")
            return Dynamic() if self.exists(module) and module not in self.packages else None
        if info.path in self.broken or name in _MODULE_NAMES:
            return Dynamic()
        found = self._bound(info, name)
        if found is not None:
            return found
        if self.exists(f"{module}.{name}"):
            return ModuleRef(f"{module}.{name}")
        found = self._starred(info, name)
        if found is not None:
            return found
        return self._lazy(info, name)

    def _bound(self, info: ModuleInfo, name: str) -> Symbol | None:
        """Follow the definitions of a name; the most telling one wins."""
        best: Symbol | None = None
        for definition in reversed(info.bindings.get(name, ())):  # The last one stays bound.
            symbol = self.follow(info, name, definition)
            if isinstance(symbol, ClassInfo | FunctionInfo | ModuleRef):
                return symbol
            if symbol is not None and (best is None or isinstance(best, Dynamic)):
                best = symbol
        if best is None and name in info.bindings:
            return Dynamic()  # Bound, but to an import that fails: reported at that import.
        return best

    def follow(self, info: ModuleInfo, name: str, definition: Definition) -> Symbol | None:
        """Return what one definition stands for."""
        if isinstance(definition, ClassInfo | FunctionInfo):
            return definition
        if isinstance(definition, ImportName):
            if definition.attr:
                return self.resolve(definition.module, definition.attr)
            if self.is_internal(definition.module):
                return ModuleRef(definition.module)
            return External(definition.module)
        if isinstance(definition, ast.Name | ast.Attribute):
            target = self.expression(info, definition)
            if target is not None and not isinstance(target, Dynamic):
                return target
        return VariableRef(info, name, definition)

    def _starred(self, info: ModuleInfo, name: str) -> Symbol | None:
        """Look a name up in the modules that are star-imported."""
        external = False
        for star in info.bindings.get("*", ()):
            if not isinstance(star, ImportName):
                continue
            if not self.is_internal(star.module):
                external = external or star.guard is not Guard.TYPE_CHECKING
                continue
            if not self._may_offer(star.module, name):
                continue
            exported = self.exported(star.module)
            if exported is not None and name not in exported:
                continue
            if exported is None and name.startswith("_"):
                continue
            found = self.resolve(star.module, name)
            if found is not None:
                return found
        return Dynamic() if external else None

    def _may_offer(self, module: str, name: str) -> bool:
        """Say, by a text search, whether a module can define a name or star-import it.

        It spares parsing some hundred packages that one package star-imports.
        """
        base = module.replace(".", "/")
        files = [f"{base}.py"] if f"{base}.py" in self.files else self.below(f"{base}/")
        return any(
            name.encode() in (source := self.source(path)) or _FAR_STAR.search(source) is not None
            for path in files
        )

    def exported(self, module: str) -> frozenset[str] | None:
        """Return ``__all__`` where it is a plain list, None where there is none or it is made."""
        info = self.module(module)
        if info is None:
            return None
        values = info.bindings.get("__all__", [])
        names: set[str] = set()
        for value in values:
            if not isinstance(value, ast.List | ast.Tuple):
                return None
            for element in value.elts:
                if not (isinstance(element, ast.Constant) and isinstance(element.value, str)):
                    return None
                names.add(element.value)
        return frozenset(names) if values else None

    def _lazy(self, info: ModuleInfo, name: str) -> Symbol | None:
        """Resolve a name through the module's ``__getattr__`` and the tables that it uses."""
        getter = info.functions.get("__getattr__")
        if getter is None:
            replaced = any(
                dotted(node.value if isinstance(node, ast.Subscript) else node) == "sys.modules"
                for statement in info.tree.body
                if isinstance(statement, ast.Assign | ast.If)
                for node in ast.walk(statement)
                if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
            )
            # A package that swaps itself for a lazy one lists its names for type checkers.
            listed = any(i.guard is Guard.TYPE_CHECKING and not i.inner for i in info.imports)
            return Dynamic() if replaced and not listed else None
        tables = [
            value
            for node in ast.walk(getter.node)
            if isinstance(node, ast.Name)
            for value in info.bindings.get(node.id, ())
            if isinstance(value, ast.Dict)
        ]
        if not tables:
            return Dynamic()
        for table in tables:
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    return self._lazy_target(info, name, value)
        literals = {
            node.value
            for node in ast.walk(getter.node)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        spread = any(None in table.keys for table in tables)
        return Dynamic() if name in literals or spread else None

    def _lazy_target(self, info: ModuleInfo, name: str, value: ast.expr) -> Symbol | None:
        if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
            return Dynamic()
        module, _, attr = value.value.partition(":")
        if module.startswith("."):
            parent = info.name if info.package else info.name.rpartition(".")[0]
            module = parent + module
        if not self.is_internal(module):
            return External(f"{module}.{attr or name}")
        if not self.exists(module):
            return None
        return self.resolve(module, attr or name)

    def attribute(self, symbol: Symbol, name: str) -> Symbol | None:
        """Return an attribute of a module or external; Dynamic for everything else."""
        if isinstance(symbol, ModuleRef):
            return self.resolve(symbol.name, name)
        if isinstance(symbol, External):
            return External(f"{symbol.name}.{name}")
        return Dynamic()

    def expression(self, info: ModuleInfo, node: ast.expr) -> Symbol | None:
        """Return what a dotted name at module level stands for, None where it cannot be told."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(node, ast.Name):
            return self.resolve(info.name, node.id)
        if isinstance(node, ast.Attribute):
            base = self.expression(info, node.value)
            if isinstance(base, ModuleRef | External):
                return self.attribute(base, node.attr)
        return None

    def ancestors(self, cls: ClassInfo) -> tuple["Ancestor", ...]:
        """Return the method resolution order of a class, itself first, with external bases."""
        if cls not in self._ancestors:
            self._ancestors[cls] = (cls,)  # Ends a cycle.
            self._ancestors[cls] = (cls, *self._linear(cls))
        return self._ancestors[cls]

    def _linear(self, cls: ClassInfo) -> list["Ancestor"]:
        bases = [self.base(cls, node) for node in cls.node.bases]
        sequences = [
            list(self.ancestors(base)) if isinstance(base, ClassInfo) else [base] for base in bases
        ]
        sequences.append(list(bases))
        merged: list[Ancestor] = []
        while sequences := [sequence for sequence in sequences if sequence]:
            for sequence in sequences:
                head = sequence[0]
                if not any(head in other[1:] for other in sequences):
                    break
            else:
                head = sequences[0][0]  # An order Python would refuse; keep the source's.
            merged.append(head)
            sequences = [[item for item in sequence if item != head] for sequence in sequences]
        return merged

    def base(self, cls: ClassInfo, node: ast.expr) -> "Ancestor":
        """Return what a base expression stands for."""
        while isinstance(node, ast.Subscript):
            node = node.value
        symbol = self.expression(cls.module, node)
        if symbol is cls:  # ``class A(A)``: the base is what the name meant before.
            for definition in cls.module.bindings[cls.name]:
                earlier = self.follow(cls.module, cls.name, definition)
                if earlier is not cls and earlier is not None:
                    symbol = earlier
        if isinstance(symbol, ClassInfo | External):
            return symbol
        return External("?" + (dotted(node) or last_name(node)))


Ancestor = ClassInfo | External


def module_name(path: str) -> str:
    """Return the dotted name of the module at a path."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
