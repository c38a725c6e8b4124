"""The overlay: whole files of ours that are laid over an upstream tree where it lacks them.

``vllm_exaone/overlay.toml`` lists the files::

    [[file]]
    source = "model_executor/models/exaone4_5.py"      # below vllm_exaone/
    target = "vllm/model_executor/models/exaone4_5.py" # in the tree
    reason = "..."                                     # why, and where it is needed
    only-if = ["exists vllm/..."]                      # all must hold
    skip-if = ["defines vllm/...::Name"]               # none may hold

The conditions are the probes of :mod:`tools.series.probes`, asked of the upstream tree.
"""

import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.errors import BadInput
from tools.series import Probe, check_path, parse_probe

# Says what a probe answers of a tree.
Holds = Callable[[Probe], bool]
_KEYS = {"source", "target", "reason", "only-if", "skip-if"}


@dataclass(frozen=True)
class OverlayFile:
    """One file of the overlay, its content, and the conditions under which it is laid."""

    source: str
    target: str
    reason: str
    content: bytes
    only_if: tuple[Probe, ...]
    skip_if: tuple[Probe, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hex."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Laid:
    """What became of one overlay file at one ref; ``why`` is the probe that kept it out, or ""."""

    file: OverlayFile
    laid: bool
    why: str


@dataclass(frozen=True)
class Overlay:
    """All files of the overlay, in the order of ``overlay.toml``."""

    files: tuple[OverlayFile, ...]

    def choose(self, holds: Holds) -> tuple[Laid, ...]:
        """Decide for each file whether it belongs on the tree that ``holds`` asks."""
        return tuple(
            Laid(file, not (why := unmet(file.only_if, file.skip_if, holds)), why)
            for file in self.files
        )


def unmet(only_if: tuple[Probe, ...], skip_if: tuple[Probe, ...], holds: Holds) -> str:
    """Return the first condition that keeps something off a tree, as text, or ""."""
    for probe in only_if:
        if not holds(probe):
            return f"Only-If: {probe.text}"
    for probe in skip_if:
        if holds(probe):
            return f"Skip-If: {probe.text}"
    return ""


def read_overlay(directory: Path) -> Overlay:
    """Read ``overlay.toml`` in ``directory`` and the files that it lists.

    Raises:
        BadInput: The table is malformed, a source is missing, or two files have one target.
    """
    table = directory / "overlay.toml"
    try:
        rows = tomllib.loads(table.read_text("utf-8")).get("file", [])
        files = tuple(_file(directory, row) for row in rows)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {table}: {error}", "run from the project") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{table} is not TOML: {error}", "correct the line it names") from error
    targets = [file.target for file in files]
    for target in targets:
        if targets.count(target) > 1:
            raise BadInput(f"{table} lays two files at {target}", "keep one of them")
    return Overlay(files)


def _file(directory: Path, row: dict[str, object]) -> OverlayFile:
    table = directory / "overlay.toml"
    unknown = sorted(set(row) - _KEYS)
    source, target = row.get("source"), row.get("target")
    if unknown or not isinstance(source, str) or not isinstance(target, str):
        raise BadInput(
            f"{table}: a [[file]] needs source and target"
            + (f", and knows no {unknown[0]!r}" if unknown else ""),
            f"its keys are {', '.join(sorted(_KEYS))}",
        )
    check_path(source.encode())
    check_path(target.encode())
    try:
        content = (directory / source).read_bytes()
    except OSError as error:
        raise BadInput(
            f"{table} lists {source}, which cannot be read: {error.strerror}", "add the file"
        ) from error
    return OverlayFile(
        source,
        target,
        str(row.get("reason", "")),
        content,
        _probes(table, row.get("only-if", [])),
        _probes(table, row.get("skip-if", [])),
    )


def _probes(table: Path, texts: object) -> tuple[Probe, ...]:
    if not isinstance(texts, list):
        raise BadInput(f"{table}: conditions are lists of probes", 'write skip-if = ["exists ..."]')
    return tuple(parse_probe(str(text)) for text in texts)
