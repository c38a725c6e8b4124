"""Rule group CT4: the tables through which upstream finds models, configs and drafters.

What is declared here is where each table stands and how an entry is read, nothing about a model.
Upstream changed some shapes over time; each shape that a release had is listed.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tools.contract.findings import Code, Finding, Site
from tools.contract.program import Program
from tools.contract.source import ModuleInfo, last_name

_MODELS = "vllm.model_executor.models.registry"
_MODEL_PACKAGE = "vllm.model_executor.models"
_CONFIGS = "vllm.transformers_utils.config"
_CONFIG_PACKAGE = "vllm.transformers_utils.configs"
_CONFIG_TABLE = "_CONFIG_REGISTRY"
_SPECULATIVE = "vllm.config.speculative"
_SPECULATIVE_OLD = "vllm.config"
_PROPOSERS = (
    "vllm.v1.spec_decode.llm_base_proposer",
    "vllm.v1.spec_decode.eagle",
)
# Tables of the registry that name other packages' or absent models.
_NOT_HERE = frozenset(("_PREVIOUSLY_SUPPORTED_MODELS", "_OOT_SUPPORTED_MODELS"))


@dataclass(frozen=True)
class Entry:
    """One architecture of the model registry.

    Attributes:
        architecture: The name in a checkpoint's ``architectures``.
        module: Dotted module.
        cls: Class name.
        line: Line of the entry.
        table: Variable that holds it.
    """

    architecture: str
    module: str
    cls: str
    line: int
    table: str


@dataclass(frozen=True)
class Drafter:
    """One branch of the speculative config: model types that become a drafter."""

    sources: frozenset[str]
    becomes: str
    architectures: frozenset[str]
    line: int


class Registries:
    """The tables of one tree, read on demand."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def models(self) -> tuple[Entry, ...]:
        """Every architecture that the model registry lists."""
        module = self.program.module(_MODELS)
        return tuple(_entries(module)) if module else ()

    @cached_property
    def by_class(self) -> dict[tuple[str, str], list[Entry]]:
        """The architectures of each (module, class)."""
        found: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.models:
            found.setdefault((entry.module, entry.cls), []).append(entry)
        return found

    @cached_property
    def configs(self) -> dict[str, tuple[str, int]]:
        """Class name and line of each model type in the config registry."""
        module = self.program.module(_CONFIGS)
        found: dict[str, tuple[str, int]] = {}
        for value in module.bindings.get(_CONFIG_TABLE, []) if module else ():
            if isinstance(value, ast.Call):
                for keyword in value.keywords:
                    if keyword.arg:
                        found[keyword.arg] = (_text(keyword.value), keyword.value.lineno)
                for argument in value.args:
                    found |= _pairs(argument)
            elif isinstance(value, ast.Dict):
                found |= _pairs(value)
        return found

    @cached_property
    def speculative(self) -> ModuleInfo | None:
        """The module that turns a target's config into a drafter's."""
        for name in (_SPECULATIVE, _SPECULATIVE_OLD):
            module = self.program.module(name)
            if module is not None and "SpeculativeConfig" in module.classes:
                return module
        return None

    @cached_property
    def drafters(self) -> tuple[Drafter, ...]:
        """Every branch that renames a model type or sets a drafter's architectures."""
        module = self.speculative
        if module is None:
            return ()
        info = module.classes["SpeculativeConfig"].methods.get("hf_config_override")
        return tuple(_drafters(info.node)) if info else ()

    @cached_property
    def mtp_types(self) -> dict[str, int]:
        """The model types that are declared to be multi-token predictors, with lines."""
        module = self.speculative
        found: dict[str, int] = {}
        for name in ("MTPModelTypes", "MTP_MODEL_TYPES"):
            for value in module.bindings.get(name, []) if module else ():
                if isinstance(value, ast.AST):
                    for node in ast.walk(value):
                        if isinstance(node, ast.Constant) and isinstance(node.value, str):
                            found[node.value] = node.lineno
        return found

    def model_types(self, architecture: str) -> frozenset[str]:
        """Return the model types of the targets whose drafter has an architecture."""
        own = {
            name
            for drafter in self.drafters
            if architecture in drafter.architectures
            for name in (drafter.sources or {drafter.becomes})
        }
        before = {
            name for drafter in self.drafters if drafter.becomes in own for name in drafter.sources
        }
        return frozenset(before or own)


def check_registries(
    program: Program, registries: Registries, client: frozenset[str]
) -> Iterator[Finding]:
    """Check the entries that lead to client modules, and that client classes have entries."""
    module = program.module(_MODELS)
    if module is None or not any(path.startswith("vllm/model_executor/") for path in client):
        return
    if not registries.models:
        yield _shape(module, "holds no table of architectures")
        return
    named = {program_path(program, entry.module): entry for entry in registries.models}
    for entry in registries.models:
        path = entry.module.replace(".", "/") + ".py"
        if path not in client and program.exists(entry.module):
            continue
        if not program.exists(entry.module) or program.resolve(entry.module, entry.cls) is None:
            yield Finding(
                Code.ENTRY_BROKEN,
                module.path,
                entry.line,
                f"{entry.architecture} leads to {entry.module}.{entry.cls}, which does not exist",
                (Site(module.path, entry.line, entry.table), Site(path, 1, entry.cls)),
                "name the module and class as they are now, or drop the entry",
            )
    yield from _unregistered(program, client, module, named)
    yield from _configs(program, registries, client)
    yield from _speculative(registries, client)
    yield from _proposers(program, registries, client)


def _whole(client: frozenset[str]) -> bool:
    """Say whether the registry itself is a client's: then every entry is its business."""
    return f"{_MODELS.replace('.', '/')}.py" in client


def _defines(program: Program, client: frozenset[str], cls: str) -> bool:
    modules = (program.module_at(path) for path in client)
    return any(module is not None and cls in module.classes for module in modules)


def program_path(program: Program, module: str) -> str:
    """Return the path of a module, "" where the tree has none."""
    info = program.module(module) if program.exists(module) else None
    return info.path if info else ""


def _unregistered(
    program: Program,
    client: frozenset[str],
    registry: ModuleInfo,
    named: dict[str, Entry],
) -> Iterator[Finding]:
    """Report a class with a registered processor, or of a drafter's shape, without an entry."""
    for path in sorted(client):
        module = program.module_at(path)
        if module is None or path in named:
            continue
        for cls in module.classes.values():
            if "register_processor" in cls.decorators:
                yield Finding(
                    Code.ENTRY_LACKS,
                    path,
                    cls.node.lineno,
                    f"{cls.name} registers a processor, but no architecture leads to it",
                    (Site(path, cls.node.lineno, cls.name), Site(registry.path, 1)),
                    f"add an entry to a table of {registry.path}",
                )


def _configs(program: Program, registries: Registries, client: frozenset[str]) -> Iterator[Finding]:
    module = program.module(_CONFIGS)
    if module is None:
        return
    if not registries.configs:
        yield _shape(module, f"has no {_CONFIG_TABLE} that can be read")
        return
    for model_type, (cls, line) in registries.configs.items():
        if not (_whole(client) or _defines(program, client, cls)):
            continue
        if cls and program.resolve(_CONFIG_PACKAGE, cls) is None:
            yield Finding(
                Code.ENTRY_BROKEN,
                module.path,
                line,
                f"model type {model_type} leads to {_CONFIG_PACKAGE}.{cls}, which does not exist",
                (Site(module.path, line, _CONFIG_TABLE), Site(f"{_CONFIG_PACKAGE}", 1, cls)),
                f"export {cls} from {_CONFIG_PACKAGE}",
            )


def _speculative(registries: Registries, client: frozenset[str]) -> Iterator[Finding]:
    module = registries.speculative
    if module is None or not registries.drafters:
        if module is not None and registries.mtp_types:
            yield _shape(module, "has no hf_config_override that can be read")
        return
    known = {entry.architecture for entry in registries.models}
    ours = {
        entry.architecture
        for entry in registries.models
        if entry.module.replace(".", "/") + ".py" in client
    }
    types = registries.mtp_types
    for drafter in registries.drafters:
        concerned = _whole(client) or drafter.architectures & ours
        for architecture in sorted(drafter.architectures - known) if concerned else ():
            yield Finding(
                Code.REGISTRIES_DISAGREE,
                module.path,
                drafter.line,
                f"the speculative config sets architecture {architecture}, "
                "which the model registry does not list",
                (Site(module.path, drafter.line), Site(_MODELS.replace(".", "/") + ".py", 1)),
                "add the architecture to the registry's speculative table",
            )
        becomes = drafter.becomes or next(iter(drafter.sources), "")
        declared = not types or not becomes.endswith("_mtp") or becomes in types
        if drafter.architectures & ours and not declared:
            yield Finding(
                Code.REGISTRIES_DISAGREE,
                module.path,
                drafter.line,
                f"model type {becomes} becomes a drafter but is not among the MTP types",
                (Site(module.path, drafter.line),),
                f"add {becomes} to the MTP model types",
            )


def _proposers(
    program: Program, registries: Registries, client: frozenset[str]
) -> Iterator[Finding]:
    """Check the class names that proposers compare a target model's name with."""
    classes = {entry.cls for entry in registries.models}
    for name in _PROPOSERS:
        module = program.module(name)
        if module is None:
            continue
        for name_here, line in _compared_names(module):
            if name_here in classes:
                continue
            if not (_whole(client) or _defines(program, client, name_here)):
                continue
            yield Finding(
                Code.REGISTRIES_DISAGREE,
                module.path,
                line,
                f"the proposer names {name_here}, a class that no registry entry leads to",
                (Site(module.path, line), Site(_MODELS.replace(".", "/") + ".py", 1)),
                "name the class that the registry names",
            )


def _compared_names(module: ModuleInfo) -> Iterator[tuple[str, int]]:
    """Yield the strings that ``get_model_name(...)`` is compared with."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Compare) and last_name(node.left) == "get_model_name":
            for part in ast.walk(node.comparators[0]):
                if isinstance(part, ast.Constant) and _text(part):
                    yield _text(part), part.lineno


def _shape(module: ModuleInfo, what: str) -> Finding:
    return Finding(
        Code.REGISTRY_SHAPE,
        module.path,
        1,
        f"{module.name} {what}",
        (Site(module.path, 1, module.name),),
        "teach tools/contract/registries.py the new shape",
    )


def _entries(module: ModuleInfo) -> Iterator[Entry]:
    for name, values in module.bindings.items():
        if not name.startswith("_") or not name.endswith("_MODELS") or name in _NOT_HERE:
            continue
        for value in values:
            if not isinstance(value, ast.Dict):
                continue
            for key, item in zip(value.keys, value.values, strict=True):
                if not isinstance(item, ast.Tuple) or len(item.elts) != 2 or key is None:
                    continue
                part, cls = (_text(element) for element in item.elts)
                if part and cls:
                    full = part if part.startswith("vllm.") else f"{_MODEL_PACKAGE}.{part}"
                    yield Entry(_text(key), full, cls, key.lineno, name)


def _drafters(function: ast.AST) -> Iterator[Drafter]:
    for node in ast.walk(function):
        if not isinstance(node, ast.If):
            continue
        sources = {
            part.value
            for part in ast.walk(node.test)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        if "model_type" not in ast.unparse(node.test):
            continue
        becomes, architectures = "", set[str]()
        for statement in node.body:
            for part in ast.walk(statement):
                if isinstance(part, ast.Assign) and last_name(part.targets[0]) == "model_type":
                    becomes = _text(part.value) or becomes
                if isinstance(part, ast.Dict):
                    for key, value in zip(part.keys, part.values, strict=True):
                        if key is not None and _text(key) == "architectures":
                            architectures |= {
                                text for item in ast.walk(value) if (text := _text(item))
                            }
        if becomes or architectures:
            yield Drafter(frozenset(sources), becomes, frozenset(architectures), node.lineno)


def _pairs(node: ast.expr) -> dict[str, tuple[str, int]]:
    if not isinstance(node, ast.Dict):
        return {}
    return {
        _text(key): (_text(value), value.lineno)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is not None and _text(key)
    }


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
