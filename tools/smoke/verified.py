"""The record of what was proved: one cell for each wheel that a smoke ran on.

A cell's key is a hash of everything its verdict depends on. A cell whose key is no longer that of
the wheel, the fixture and transformers at hand is stale: it shows as such and runs again, while
cells that a change does not touch keep their verdict.
"""

import datetime
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tools.errors import BadInput
from tools.smoke.checkpoint import checkpoint_files, digest
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.runs import RUNS
from tools.upstream.downloads import write_aside

FILE = Path("tests") / "verified.json"
FORMAT = 1
# Run on every change: the oldest and the newest release with a CPU engine, and one of each window
# of releases with the same needs in between.
EVERY_CHANGE = ("v0.13.0", "v0.19.1", "v0.21.0", "v0.23.0", "v0.27.1", "v0.32.0")


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
    """

    release: str
    device: str
    kind: str
    transformers: str

    def __str__(self) -> str:
        return f"{self.release} {self.device} {self.kind} {self.transformers}"


@dataclass(frozen=True)
class Cell:
    """What one smoke found.

    Attributes:
        key: See :func:`cell_key`.
        date: When it ran (ISO 8601, UTC).
        commit: The carried commit, "" for a stock wheel.
        wheel: The wheel's file name.
        versions: Versions of vLLM, transformers and torch that ran.
        passed: Whether all checks passed.
        checks: Every check.
    """

    key: str
    date: str
    commit: str
    wheel: str
    versions: Mapping[str, str]
    passed: bool
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Verified:
    """All cells by name."""

    cells: Mapping[CellName, Cell]

    def state(self, name: CellName, wheel_sha256: str, transformers: str = "") -> CellState:
        """Return how a cell stands to a wheel.

        Args:
            name: The cell.
            wheel_sha256: Digest of the wheel as it is now.
            transformers: The version that would run now; "" where the recorded one still counts,
                as for a release's own time.
        """
        cell = self.cells.get(name)
        if cell is None:
            return CellState.MISSING
        version = transformers or cell.versions.get("transformers", "")
        same = cell.key == cell_key(wheel_sha256, fixture_digest(), version)
        return CellState.CURRENT if same else CellState.STALE

    def record(
        self, name: CellName, report: SmokeReport, commit: str, now: datetime.datetime
    ) -> "Verified":
        """Return this record with a cell made of a report.

        Args:
            name: The cell.
            report: What the smoke found.
            commit: The carried commit, "" for a stock wheel.
            now: The present moment.
        """
        version = report.versions.get("transformers", "")
        cell = Cell(
            key=cell_key(report.wheel_sha256, fixture_digest(), version),
            date=now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            commit=commit,
            wheel=report.wheel,
            versions=dict(report.versions),
            passed=report.passed,
            checks=report.checks,
        )
        return Verified({**self.cells, name: cell})


def cell_key(wheel_sha256: str, fixture: str, transformers: str) -> str:
    """Return a hash of what a verdict depends on: wheel content, fixture, transformers version."""
    facts = json.dumps([FORMAT, wheel_sha256, fixture, transformers])
    return hashlib.sha256(facts.encode()).hexdigest()


@functools.cache
def fixture_digest() -> str:
    """Return a hash of the checkpoints that the default runs use, and of what they are asked."""
    total = hashlib.sha256()
    for run in RUNS:
        names = [probe.name for probe in run.probes]
        facts = [run.name, digest(checkpoint_files(run.variant)), names, dict(run.extra)]
        total.update(json.dumps(facts, sort_keys=True).encode() + b"\n")
    return total.hexdigest()


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
    rest = {field: entry[field] for field in ("key", "date", "commit", "wheel", "versions")}
    return CellName(**entry["name"]), Cell(**rest, passed=entry["passed"], checks=checks)


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
        head = json.dumps({"name": asdict(name), **cell})
        entries.append(f' {head[:-1]}, "checks": [\n{checks}]}}')
    text = f'{{"format": {FORMAT}, "cells": [\n' + ",\n".join(entries) + "\n]}\n"
    write_aside(file, text.encode())
