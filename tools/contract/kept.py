"""Reports that are kept between runs: one small file for each tree that was checked.

A report follows from the tree, from the checker, and from what the package index said about the
versions of other distributions. The first two are in the name of a file. The third is in the file,
with the time at which it was asked, so that it can be asked again after a day.

Files are written aside and renamed, so that two runs, or one that is killed, leave whole ones; the
least recently used go where there are many.
"""

import contextlib
import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from tools.contract.findings import ContractReport
from tools.errors import ToolError
from tools.upstream.downloads import write_aside

_FORMAT = 1
_FRESH_SECONDS = 86_400
# Of a few kilobytes each: a dozen states of the series on every release.
MOST = 512
_ABANDONED_SECONDS = 3_600


@dataclass(frozen=True, order=True)
class Answer:
    """What the index said: the versions of a distribution that a specifier admits."""

    distribution: str
    specifier: str
    versions: str


@dataclass(frozen=True)
class Kept:
    """A report with what it follows from beside the tree and the checker.

    Attributes:
        report: The report.
        answers: What the index said.
        asked: When (seconds since the epoch).
    """

    report: ContractReport
    answers: tuple[Answer, ...]
    asked: float

    def is_fresh(self, now: float) -> bool:
        """Say whether the answers are young enough to be taken as they are."""
        return not self.answers or 0 <= now - self.asked < _FRESH_SECONDS


def key_of(tree: str, modules: Sequence[str], baseline: str = "") -> str:
    """Return the name under which a report is kept.

    Args:
        tree: The id of the tree.
        modules: The client's modules, or those it would have if the tree had them.
        baseline: The id of the tree that is compared with, or "".
    """
    parts = [_FORMAT, checker_digest(), tree, list(modules), baseline]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@functools.cache
def checker_digest() -> str:
    """Return a hash of the checker: its source, and the Python whose parser it uses."""
    here = Path(__file__).parent
    digest = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for file in (*sorted(here.glob("*.py")), here.parent / "series" / "requirements.py"):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


@dataclass(frozen=True)
class KeptReports:
    """The reports in one directory of the cache."""

    directory: Path

    def get(self, key: str) -> Kept | None:
        """Return what is kept under a name, or None where nothing whole is."""
        file = self.directory / f"{key}.json"
        try:
            data = json.loads(file.read_bytes())
            if data["format"] != _FORMAT:
                return None
            found = Kept(
                ContractReport.from_dict(data["report"]),
                tuple(Answer(*map(str, row)) for row in data["answers"]),
                float(data["asked"]),
            )
        except (OSError, LookupError, TypeError, ValueError):
            return None
        with contextlib.suppress(OSError):  # A cache that is only read still serves.
            os.utime(file)
        return found

    def put(self, key: str, kept: Kept) -> None:
        """Keep a report; where the cache cannot be written, it is not kept."""
        data = {
            "format": _FORMAT,
            "asked": kept.asked,
            "answers": [astuple(answer) for answer in sorted(kept.answers)],
            "report": kept.report.to_dict(),
        }
        with contextlib.suppress(ToolError, OSError):
            write_aside(self.directory / f"{key}.json", json.dumps(data).encode())
            self._prune()

    def _prune(self) -> None:
        """Remove the least recently used files beyond the bound, and what killed runs left."""
        used: list[tuple[float, Path]] = []
        for file in self.directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # Another run has removed it.
                at = file.stat().st_mtime
                if not file.name.startswith("."):
                    used.append((at, file))
                elif time.time() - at > _ABANDONED_SECONDS:
                    file.unlink()
        for _, file in sorted(used)[: max(0, len(used) - MOST)]:
            file.unlink(missing_ok=True)
