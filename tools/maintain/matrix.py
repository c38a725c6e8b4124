"""Patches by releases: every patch carried to every ref, in parallel, nothing kept.

A conflict may be recorded as expected in ``patches/expected.toml``, with the reason::

    [[conflict]]
    patch = "0006-proposer-image-token"
    refs = ["v0.10.0", "v0.10.1"]
    reason = "the proposer has no image token there"

Anything else that conflicts fails the matrix, and so does a recorded conflict that is none.
"""

import multiprocessing
import sys
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.carry import Carried, Carrier, Outcome, PatchOutcome
from tools.errors import BadInput
from tools.upstream import Store, Upstream, list_releases, parse_ref

Opener = Callable[[], Carrier]
# A forked process need not import everything again, which takes longer than many a carry. Only
# Linux forks safely below the libraries in use.
_START = "fork" if sys.platform == "linux" else "spawn"


@dataclass(frozen=True)
class Cell:
    """One patch at one ref; ``expected`` is the reason that was recorded for a conflict, or ""."""

    ref: str
    outcome: PatchOutcome
    expected: str = ""

    @property
    def failed(self) -> bool:
        """Whether a person must look: an unrecorded conflict, or a record that is out of date."""
        return (self.outcome.outcome is Outcome.CONFLICT) != bool(self.expected)


@dataclass(frozen=True)
class Summary:
    """One patch over all refs: where it is carried, and how long on text and on syntax."""

    patch: str
    first: str
    last: str
    text: int
    syntax: int
    upstreamed: int
    not_needed: int
    conflicts: int


@dataclass(frozen=True)
class Matrix:
    """The carries of every ref, in the order asked for, with the expected conflicts beside them."""

    carried: tuple[Carried, ...]
    patches: tuple[str, ...]
    cells: dict[str, tuple[Cell, ...]]

    @property
    def refs(self) -> tuple[str, ...]:
        """The refs, in order."""
        return tuple(carried.upstream.ref.name for carried in self.carried)

    @property
    def failures(self) -> tuple[Cell, ...]:
        """The cells that fail the matrix."""
        return tuple(cell for row in self.cells.values() for cell in row if cell.failed)

    def summaries(self) -> tuple[Summary, ...]:
        """Return one summary a patch."""
        return tuple(_summary(patch, self.cells[patch]) for patch in self.patches)


def run_matrix(
    opener: Opener, upstreams: Iterable[Upstream], expected: Path, *, jobs: int
) -> Matrix:
    """Carry the series to every upstream ref.

    Args:
        opener: Opens a carrier; called once for each run of refs, so it must be picklable.
        upstreams: The refs, already in the store.
        expected: The file of recorded conflicts; it may be absent.
        jobs: Processes to use; 1 stays in this one.

    Raises:
        BadInput: The file of recorded conflicts is malformed.
    """
    wanted = tuple(upstreams)
    recorded = read_expected(expected)
    if jobs == 1 or len(wanted) < 2:
        carried = _carry(opener, wanted)
    else:
        # Each release's neighbours go to the same process: they share blobs and parsed files.
        size = -(-len(wanted) // (jobs * 2))
        runs = [wanted[at : at + size] for at in range(0, len(wanted), size)]
        context = multiprocessing.get_context(_START)
        with ProcessPoolExecutor(jobs, context) as pool:
            done = pool.map(partial(_carry, opener), runs)
            carried = tuple(one for run in done for one in run)
    names = tuple(dict.fromkeys(o.name for one in carried for o in one.outcomes))
    cells = {
        name: tuple(
            Cell(one.upstream.ref.name, outcome, recorded.get((name, one.upstream.ref.name), ""))
            for one in carried
            for outcome in one.outcomes
            if outcome.name == name
        )
        for name in names
    }
    return Matrix(carried, names, cells)


def _carry(opener: Opener, upstreams: tuple[Upstream, ...]) -> tuple[Carried, ...]:
    return tuple(opener().carry_each(upstreams))


def releases_since(store: Store, oldest: str) -> list[str]:
    """Return the tags of upstream's releases from ``oldest`` on that have an sdist, in order.

    A release without one has no docs, examples or tests in its tree, and is asked for by name.

    Raises:
        BadInput: ``oldest`` is no release.
    """
    start = parse_ref(oldest).version
    if start is None:
        raise BadInput(f"{oldest} is no release", "name a tag such as v0.11.0")
    return [row.tag for row in list_releases(store) if row.sdist and row.version >= start]


def read_expected(file: Path) -> dict[tuple[str, str], str]:
    """Return (patch, ref) -> reason for each conflict that is recorded as expected.

    Raises:
        BadInput: The file is malformed, or a record gives no reason.
    """
    try:
        rows = tomllib.loads(file.read_text("utf-8")).get("conflict", [])
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"cannot read {file}: {error}", "correct the line it names") from error
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        if not row.get("patch") or not row.get("refs") or not row.get("reason"):
            raise BadInput(f"{file}: a [[conflict]] needs patch, refs and reason", "add them")
        found |= {(row["patch"], ref): row["reason"] for ref in row["refs"]}
    return found


def _summary(patch: str, cells: tuple[Cell, ...]) -> Summary:
    def count(outcome: Outcome) -> int:
        return sum(cell.outcome.outcome is outcome for cell in cells)

    carried = [
        cell.ref for cell in cells if cell.outcome.outcome in (Outcome.CLEAN, Outcome.STRUCTURAL)
    ]
    return Summary(
        patch,
        carried[0] if carried else "",
        carried[-1] if carried else "",
        count(Outcome.CLEAN),
        count(Outcome.STRUCTURAL),
        count(Outcome.UPSTREAMED),
        count(Outcome.NOT_NEEDED),
        count(Outcome.CONFLICT),
    )
