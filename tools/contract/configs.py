"""Rule CT231: a model reads from its checkpoint's config what the config's class declares.

A class that is registered for an architecture gets its config as ``hf_config``. For a drafter the
speculative config says which target's model type that is; the type leads to a config class of the
tree or of the newest admitted transformers. An attribute that this class does not declare exists
only where a checkpoint happens to carry it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tools.contract.calls import live_methods
from tools.contract.classes import OBJECT_MEMBERS, Classes
from tools.contract.dependencies import DependencyIndex
from tools.contract.findings import Code, Finding, Site
from tools.contract.infer import Interpreter
from tools.contract.program import Program
from tools.contract.registries import Registries
from tools.contract.source import ClassInfo, FunctionInfo
from tools.contract.values import Bound, ClassValue, Frame, HfConfig, Instance
from tools.errors import Unavailable
from tools.series.requirements import admitted

_LIBRARY = "transformers"
_TABLES = (
    "transformers/models/auto/auto_mappings.py",
    "transformers/models/auto/configuration_auto.py",
)
_CONFIG_PACKAGE = "vllm.transformers_utils.configs"
_DEPTH = 3
# Names under which composite configs of transformers hold the language model's config.
_SUB_CONFIGS = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True)
class ConfigClass:
    """A config class with the program that it stands in."""

    cls: ClassInfo
    classes: Classes
    where: str

    @property
    def is_composite(self) -> bool:
        """Say whether the class holds sub-configs, so that a read can be at the wrong level.

        A flat class is left alone: many declare a part of what checkpoints carry.
        """
        return any(self.declares(name) for name in _SUB_CONFIGS)

    def declares(self, name: str) -> bool:
        """Say whether objects of the class have an attribute by declaration."""
        if name in OBJECT_MEMBERS or self.classes.member(self.cls, name) is not None:
            return True
        for base in self.classes.line(self.cls):
            if name in self.classes.own_assignments(base):
                return True
            init = base.methods.get("__init__")
            if init is not None and name in {
                arg.arg for arg in (*init.node.args.args, *init.node.args.kwonlyargs)
            }:
                return True
            mapped = base.attributes.get("attribute_map")
            if isinstance(mapped, ast.Dict) and name in {
                key.value for key in mapped.keys if isinstance(key, ast.Constant)
            }:
                return True
        return False


class ConfigRules:
    """Checks config reads of registered model classes and of the classes that they build."""

    def __init__(
        self,
        program: Program,
        classes: Classes,
        interpreter: Interpreter,
        registries: Registries,
        dependencies: DependencyIndex | None,
    ) -> None:
        self.program = program
        self.classes = classes
        self.interpreter = interpreter
        self.registries = registries
        self.dependencies = dependencies
        self._library: tuple[Program, dict[str, str]] | None = None
        self._found: dict[str, ConfigClass | None] = {}

    def check_class(self, cls: ClassInfo, architecture: str) -> Iterator[Finding]:
        """Check a class that is registered for an architecture.

        Raises:
            Unavailable: The config class is transformers' and that cannot be read.
        """
        model_types = sorted(self.registries.model_types(architecture))
        kinds = [
            kind
            for model_type in model_types
            if (kind := self._config_class(model_type)) is not None and kind.is_composite
        ]
        # Where one target's config is flat or cannot be read, a read may be meant for that one.
        if not kinds or len(kinds) < len(model_types):
            return
        found: dict[str, Finding] = {}
        for name, finding in self._all_reads(cls, kinds):
            # One finding for an attribute, at its first read: the others have the same cure.
            found.setdefault(name, finding)
        yield from found.values()

    def _all_reads(self, cls: ClassInfo, kinds: list[ConfigClass]) -> Iterator[tuple[str, Finding]]:
        seen: set[ClassInfo] = set()
        pending = [cls]
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            for info in live_methods(self.classes, current):
                if info.module.path != cls.module.path:
                    continue
                frame = Frame(info.module, info, Instance(current))
                yield from self._reads(info, frame, kinds, info, 0, _DEPTH)
                pending += self._built(info, frame)

    def _built(self, info: FunctionInfo, frame: Frame) -> Iterator[ClassInfo]:
        """Yield the classes that are built with the same, unchanged ``vllm_config``."""
        for call in info.calls:
            if not any(
                keyword.arg == "vllm_config" and isinstance(keyword.value, ast.Name)
                for keyword in call.keywords
            ):
                continue
            for value in self.interpreter.evaluate(call.func, frame):
                if isinstance(value, ClassValue) and value.cls.module is info.module:
                    yield value.cls

    def _reads(
        self,
        info: FunctionInfo,
        frame: Frame,
        kinds: list[ConfigClass],
        origin: FunctionInfo,
        line: int,
        depth: int,
    ) -> Iterator[tuple[str, Finding]]:
        """Report undeclared reads in a function, and in what it passes the config to."""
        asked = {
            call.args[1].value
            for call in info.calls
            if isinstance(call.func, ast.Name)
            and call.func.id in {"hasattr", "getattr"}
            and len(call.args) > 1
            and isinstance(call.args[1], ast.Constant)
        }
        for node in info.attribute_reads:
            if node.attr in asked or not self._is_config(node.value, frame):
                continue
            if any(kind.declares(node.attr) for kind in kinds):
                continue
            place = line or node.lineno
            kind = kinds[0]
            lacks = f"{kind.cls.name} does not declare `{node.attr}`"
            if info is origin:
                message = f"{origin.qualname} reads `{node.attr}` of its config; {lacks}"
            else:
                message = (
                    f"{origin.qualname} hands its config to {info.qualname}, "
                    f"which reads `{node.attr}`; {lacks}"
                )
            finding = Finding(
                Code.CONFIG_UNDECLARED,
                origin.module.path,
                place,
                message,
                (
                    Site(info.module.path, node.lineno, info.qualname),
                    Site(kind.where, kind.cls.node.lineno, kind.cls.name),
                ),
                "read it from the sub-config that declares it, or give a default",
            )
            yield node.attr, finding
        if depth > 1:
            yield from self._passes(info, frame, kinds, origin, line, depth)

    def _passes(
        self,
        info: FunctionInfo,
        frame: Frame,
        kinds: list[ConfigClass],
        origin: FunctionInfo,
        line: int,
        depth: int,
    ) -> Iterator[tuple[str, Finding]]:
        for call in info.calls:
            if not any(
                self._is_config(value, frame)
                for value in (*call.args, *(keyword.value for keyword in call.keywords))
            ):
                continue
            for callee in self.interpreter.evaluate(call.func, frame):
                target, me = self._target(callee)
                if target is None:
                    continue
                args = self.interpreter.results.bind(target, me is not None, call, frame)
                configs = {
                    name: values
                    for name, values in args.items()
                    if any(isinstance(v, HfConfig) and not v.path for v in values)
                }
                inner = Frame(target.module, target, me, configs)
                where = line or call.lineno
                yield from self._reads(target, inner, kinds, origin, where, depth - 1)

    def _target(self, callee: object) -> tuple[FunctionInfo | None, Instance | None]:
        if isinstance(callee, ClassValue):
            member = self.classes.member(callee.cls, "__init__")
            return (member.function if member else None), Instance(callee.cls)
        if isinstance(callee, Bound) and not callee.filled:
            return callee.info, None
        return None, None

    def _is_config(self, node: ast.expr, frame: Frame) -> bool:
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        values = self.interpreter.evaluate(node, frame)
        return bool(values) and all(isinstance(v, HfConfig) and not v.path for v in values)

    # -- config classes ---------------------------------------------------------------------

    def _config_class(self, model_type: str) -> ConfigClass | None:
        if model_type not in self._found:
            self._found[model_type] = self._find(model_type)
        return self._found[model_type]

    def _find(self, model_type: str) -> ConfigClass | None:
        entry = self.registries.configs.get(model_type)
        if entry is not None:
            symbol = self.program.resolve(_CONFIG_PACKAGE, entry[0])
            if isinstance(symbol, ClassInfo):
                return ConfigClass(symbol, self.classes, symbol.module.path)
            return None
        if self.dependencies is None:
            return None
        library, table = self._open()
        name = table.get(model_type)
        if name is None:
            return None
        symbol = library.resolve(f"transformers.models.{model_type}", name)
        if not isinstance(symbol, ClassInfo):
            return None
        return ConfigClass(symbol, Classes(library), f"{_LIBRARY}:{symbol.module.path}")

    def _open(self) -> tuple[Program, dict[str, str]]:
        """Return the newest admitted transformers and its table of model types."""
        if self._library is None:
            if self.dependencies is None:
                raise Unavailable("there is no index to read transformers from")
            specifier = admitted(self.program.tree).get(_LIBRARY)
            versions = self.dependencies.versions(_LIBRARY, specifier) if specifier else ()
            if not versions:
                raise Unavailable("the release admits no transformers of the index")
            tree = self.dependencies.tree(_LIBRARY, versions[-1])
            table: dict[str, str] = {}
            for path in _TABLES:
                table = _pairs(tree.read(path) or b"") | table
            self._library = (Program(tree, (_LIBRARY,)), table)
        return self._library


def _pairs(source: bytes) -> dict[str, str]:
    """Return the (model type, config class) pairs of a table of transformers."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
            continue
        key, value = node.elts
        if (
            isinstance(key, ast.Constant)
            and isinstance(value, ast.Constant)
            and isinstance(value.value, str)
            and "Config" in value.value
        ):
            found.setdefault(str(key.value), value.value)
    return found
