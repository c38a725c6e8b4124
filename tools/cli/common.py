"""What the commands share: options, the project's parts, and where output goes.

Results go to stdout; progress and notes go to stderr.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tools.carry import Carrier, read_resolutions
from tools.contract import Finding
from tools.errors import CheckFailed
from tools.overlay import Overlay, read_overlay
from tools.series import Series, read_series
from tools.settings import Settings
from tools.upstream import Store, Upstream, obtain, parse_ref

Refs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[REF]...", help="Tags, branches or commits; default-ref without."),
]
SourceOption = Annotated[
    str, typer.Option("--source", metavar="auto|git|index|PATH", help="Where upstream comes from.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Do it all but keep nothing.")]
JobsOption = Annotated[int, typer.Option("--jobs", min=1, help="Processes to use.")]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda", help="Which of upstream's wheels.")
]
StockOption = Annotated[bool, typer.Option("--stock", help="Upstream without our changes.")]
TransformersOption = Annotated[
    str,
    typer.Option(
        "--transformers",
        metavar="release|newest|VERSION",
        help="As of the release's time, the newest admitted, or one version.",
    ),
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="Where to write; build/REF without.")
]

CORES = os.cpu_count() or 1
results = Console()
notes = Console(stderr=True)


def note(text: str) -> None:
    """Tell a person what is going on; machines read stdout and do not see it."""
    notes.print(text, markup=False, highlight=False, soft_wrap=True)


def print_lines(lines: Iterable[str]) -> None:
    """Print results a line each, whole: another program may read them."""
    for line in lines:
        results.print(line, markup=False, highlight=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print one JSON document on stdout, the same on every terminal width."""
    sys.stdout.write(json.dumps(data, indent=2, sort_keys=False, ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Project:
    """The parts that commands work with, opened when they are first needed."""

    source: str = "auto"

    @cached_property
    def settings(self) -> Settings:
        """``[tool.vllm-exaone]`` of pyproject."""
        return Settings.load()

    @cached_property
    def store(self) -> Store:
        """The store in the user's cache."""
        return Store.open(self.settings)

    @cached_property
    def series(self) -> Series:
        """``patches/``."""
        return read_series(self.settings.root / "patches")

    @cached_property
    def overlay(self) -> Overlay:
        """``vllm_exaone/``."""
        return read_overlay(self.settings.root / "vllm_exaone")

    @cached_property
    def carrier(self) -> Carrier:
        """What brings series and overlay to a ref."""
        kept = read_resolutions(self.settings.root / "patches")
        return Carrier(self.store.git, self.series, self.overlay, self._base, kept)

    def obtain(self, ref: str) -> Upstream:
        """Return an upstream ref, imported into the store where it is not there yet."""
        return obtain(self.store, ref, self.source, note)

    def refs(self, given: list[str] | None) -> list[str]:
        """Return the refs asked for, in upstream's spelling; ``default-ref`` where none was.

        All are checked before the first is worked on.
        """
        return [parse_ref(ref).name for ref in given or [self.settings.default_ref]]

    def directory(self, ref: str, output: Path | None) -> Path:
        """Return where the results for ``ref`` go: ``build/REF``, or below ``--output``."""
        return (output or self.settings.root / "build") / ref.replace("/", "-")

    def commit(self, ref: str, stock: bool) -> str:
        """Return the carried commit of ``ref``, which is kept, or upstream's own."""
        upstream = self.obtain(ref)
        return upstream.commit if stock else self.carrier.carry(upstream).commit

    def _base(self, release: str) -> str:
        # A patch's base is always the index's tree: its blobs are what `Base` promises.
        return obtain(self.store, release, "auto", note).commit


def open_carrier(source: str) -> Carrier:
    """Return a carrier of the project's own series; worker processes start with this."""
    return Project(source).carrier


def write_report(file: Path, text: str) -> None:
    """Write a file aside and rename it into place, as readable as other files, and say so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        aside.write_text(text, "utf-8")
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
    note(f"{file}: written")


def refuse_breaks(found: Sequence[tuple[str, Finding]]) -> None:
    """End a command that found contract errors, given with the ref of each.

    Raises:
        CheckFailed: There is one.
    """
    if found:
        ref, first = found[0]
        place = f"{first.path}:{first.line}"
        raise CheckFailed(
            f"{len(found)} contract errors, at {ref} first: "
            f"{first.code.code} {place} {first.message}",
            first.hint,
        )


def print_rows(rows: Sequence[Any]) -> None:
    """Print what was found for several refs as one JSON document; a single ref's without a list."""
    print_json(rows[0] if len(rows) == 1 else rows)


def each(refs: list[str], action: Callable[[str], Any], *, as_json: bool) -> None:
    """Run ``action`` for each ref; with ``as_json``, print what it returns as one document."""
    rows = [action(ref) for ref in refs]
    if as_json:
        print_rows(rows)
