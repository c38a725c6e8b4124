"""The record of what was proved: one cell for each wheel that a smoke ran on.

A cell's key is a hash of everything its verdict depends on. A cell whose key is no longer that of
the wheel, the fixture and transformers at hand is stale: it shows as such, with what changed, and
runs again, while cells that a change does not touch keep their verdict.
"""

import datetime
import functools
import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from packaging.version import Version

from tools.errors import BadInput, ToolError
from tools.smoke.checkpoint import checkpoint_files, digest
from tools.smoke.environment import requirements_of
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.run_sets import run_set
from tools.upstream.downloads import write_aside

FILE = Path("tests") / "verified.json"
# What a watch ran, beside its state: it does not change files of the project.
WATCHED = Path("build") / "smokes.json"
FORMAT = 1


class CellState(Enum):
    """How a cell stands to the wheel and the fixture at hand."""

    CURRENT = "current"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True, order=True)
class CellName:
    """Which smoke it is.

    Args:
        release: Such as ``v0.32.0``.
        device: ``cpu`` or ``cuda``.
        kind: ``carried`` or ``stock``.
        transformers: ``release``, ``newest`` or a version, as asked for.
        runs: Which set of runs: ``usual``, ``modes``, ``mutants``.
    """

    release: str
    device: str
    kind: str
    transformers: str
    runs: str = "usual"

    def __str__(self) -> str:
        return f"{self.release} {self.device} {self.kind} {self.transformers} {self.runs}"


@dataclass(frozen=True)
class Facts:
    """What a verdict depends on.

    Attributes:
        content: See :func:`content_of`.
        fixture: See :func:`fixture_of`.
        transformers: The version; "" where none is known.
    """

    content: str
    fixture: str
    transformers: str

    @property
    def key(self) -> str:
        """One hash of them all, and of the record's format."""
        text = json.dumps([FORMAT, self.content, self.fixture, self.transformers])
        return hashlib.sha256(text.encode()).hexdigest()

    def changed(self, now: "Facts") -> str:
        """Return which of them are others now, as words, or ""."""
        parts = {
            "the wheel changed": self.content != now.content,
            "the fixture changed": self.fixture != now.fixture,
            f"transformers is {now.transformers} now": self.transformers != now.transformers,
        }
        return ", ".join(text for text, changed in parts.items() if changed)


@dataclass(frozen=True)
class Cell:
    """What one smoke found.

    Attributes:
        facts: What the verdict depends on.
        date: When it ran (ISO 8601, UTC).
        commit: The carried commit, "" for a stock wheel.
        wheel: The wheel's file name.
        versions: Versions of vLLM, transformers and torch that ran.
        passed: Whether all checks passed.
        seconds: How long it took.
        checks: Every check.
        error: Why there was nothing to check, or "".
    """

    facts: Facts
    date: str
    commit: str
    wheel: str
    versions: Mapping[str, str]
    passed: bool
    seconds: float
    checks: tuple[Check, ...]
    error: str = ""


@dataclass(frozen=True)
class Standing:
    """How a cell stands, and why it is stale."""

    state: CellState
    reason: str = ""


@dataclass(frozen=True)
class Verified:
    """All cells by name."""

    cells: Mapping[CellName, Cell]

    def standing(self, name: CellName, content: str) -> Standing:
        """Return how a cell stands to a wheel.

        The recorded version of transformers counts as the present one: for a release's own time it
        is, and for the newest one a cell says with its date of which day that was.

        Args:
            name: The cell.
            content: See :func:`content_of`, of the wheel as it is now.
        """
        cell = self.cells.get(name)
        if cell is None:
            return Standing(CellState.MISSING)
        if cell.error:
            # Nothing was proved, so there is nothing that could be current.
            return Standing(CellState.STALE, f"it could not run: {cell.error}")
        now = replace(cell.facts, content=content, fixture=fixture_of(name))
        if cell.facts == now:
            return Standing(CellState.CURRENT)
        return Standing(CellState.STALE, cell.facts.changed(now))

    def record(
        self, name: CellName, report: SmokeReport, content: str, commit: str, now: datetime.datetime
    ) -> "Verified":
        """Return this record with a cell made of a report.

        Args:
            name: The cell.
            report: What the smoke found.
            content: See :func:`content_of`, of the wheel that ran.
            commit: The carried commit, "" for a stock wheel.
            now: The present moment.
        """
        version = report.versions.get("transformers", "")
        cell = Cell(
            facts=Facts(content, fixture_of(name), version),
            date=_moment(now),
            commit=commit,
            wheel=report.wheel,
            versions=dict(report.versions),
            passed=report.passed,
            seconds=report.seconds,
            checks=report.checks,
        )
        return Verified({**self.cells, name: cell})

    def joined(self, other: "Verified") -> "Verified":
        """Return the cells of both records, of two with one name the younger."""
        newer = {n: c for n, c in other.cells.items() if c.date > self._date(n)}
        return Verified({**self.cells, **newer})

    def _date(self, name: CellName) -> str:
        cell = self.cells.get(name)
        return cell.date if cell else ""

    def record_error(
        self, name: CellName, error: ToolError, content: str, commit: str, now: datetime.datetime
    ) -> "Verified":
        """Return this record with a cell that could not run; see :meth:`record`."""
        facts = Facts(content, fixture_of(name), "")
        cell = Cell(facts, _moment(now), commit, "", {}, False, 0.0, (), error.message)
        return Verified({**self.cells, name: cell})


def _moment(now: datetime.datetime) -> str:
    return now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def content_of(wheel: Path) -> str:
    """Return a hash of what a wheel installs that can change an answer.

    These are the files in RECORD, but for those that describe the wheel itself, and its
    requirements: another build number, or another description, is the same content.

    Raises:
        BadInput: It is no wheel, or has no RECORD.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".dist-info/RECORD")]
            rows = archive.read(names[0]).decode().splitlines()
    except (OSError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise BadInput(f"no RECORD in {wheel.name}: {error}") from None
    own = names[0].removesuffix("RECORD")
    files = sorted(row for row in rows if not row.startswith(own))
    needs = sorted(map(str, requirements_of(wheel)))
    return hashlib.sha256(json.dumps([files, needs]).encode()).hexdigest()


def fixture_of(name: CellName) -> str:
    """Return a hash of the runs that a cell's release can make."""
    release = Version(name.release.removeprefix("v"))
    pairs = zip(run_set(name.runs), run_digests(name.runs), strict=True)
    able = [sha256 for run, sha256 in pairs if not run.lacking(release, name.device)]
    return hashlib.sha256(json.dumps(able).encode()).hexdigest()


@functools.cache
def run_digests(runs: str) -> tuple[str, ...]:
    """Return a hash of each run of a set: of its checkpoint, of what is asked, and of how.

    Args:
        runs: The name of the set.
    """
    found = []
    for run in run_set(runs):
        steps = [probe.step(Path("checkpoint")) for probe in run.probes]
        how = {**run.extra, **run.environment}
        facts = [run.name, digest(checkpoint_files(run.variant)), steps, how]
        found.append(hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest())
    return tuple(found)


def load(file: Path) -> Verified:
    """Read the record; a missing file is an empty one.

    Raises:
        BadInput: The file is not a record.
    """
    try:
        document = json.loads(file.read_bytes())
        if document["format"] != FORMAT:
            raise BadInput(f"{file} has format {document['format']}, not {FORMAT}")
        return Verified(dict(_cell(entry) for entry in document["cells"]))
    except FileNotFoundError:
        return Verified({})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{file} is no record of smokes: {error}") from None


def _cell(entry: Mapping[str, Any]) -> tuple[CellName, Cell]:
    checks = tuple(
        Check(c["run"], c["case"], Verdict(c["verdict"]), c["detail"], c["seconds"])
        for c in entry["checks"]
    )
    kept = ("date", "commit", "wheel", "versions", "passed", "seconds", "error")
    facts = Facts(**entry["facts"])
    rest = {field: entry[field] for field in kept}
    return CellName(**entry["name"]), Cell(facts=facts, checks=checks, **rest)


def save(verified: Verified, file: Path) -> None:
    """Write the record with one rename, sorted, one check a line.

    Raises:
        EnvironmentLacks: The file cannot be written.
    """
    entries = []
    for name in sorted(verified.cells):
        cell = asdict(verified.cells[name])
        checks = ",\n".join(
            "   " + json.dumps({**check, "verdict": check["verdict"].value})
            for check in cell.pop("checks")
        )
        head = json.dumps({"key": verified.cells[name].facts.key, "name": asdict(name), **cell})
        entries.append(f' {head[:-1]}, "checks": [\n{checks}]}}')
    text = f'{{"format": {FORMAT}, "cells": [\n' + ",\n".join(entries) + "\n]}\n"
    write_aside(file, text.encode())
