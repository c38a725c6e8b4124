"""Patches by releases: every patch carried to every ref, in parallel, nothing kept.

A conflict may be recorded as expected in ``patches/expected.toml``, with the reason::

    [[conflict]]
    patch = "0006-proposer-image-token"
    refs = ["v0.10.0", "v0.10.1"]
    reason = "the proposer has no image token there"

Anything else that conflicts fails the matrix, and so does a recorded conflict that is none.

Each carried tree is also checked against its contract: an error there fails the matrix too.
"""

import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.carry import Carried, Carrier, Outcome, PatchOutcome
from tools.contract import ContractReport, Finding, Severity, unused_everywhere
from tools.errors import BadInput
from tools.maintain.parallel import spread
from tools.tree import Tree
from tools.upstream import Store, Upstream, list_releases, parse_ref

Opener = Callable[[], Carrier]
# Checks a carried tree; None says that it was not checked.
Contract = Callable[[Carried, Tree], ContractReport | None]


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
class Break:
    """One contract finding and the refs that have it, in order."""

    finding: Finding
    refs: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """The carries of every ref, in the order asked for, with the expected conflicts beside them.

    Attributes:
        carried: The carries.
        patches: The steps of the series.
        cells: By step, a cell a ref.
        contracts: The contract report of each carry, None where it was not checked.
        unused: Ignore comments of the overlay that no ref needs; none where not all were asked for.
    """

    carried: tuple[Carried, ...]
    patches: tuple[str, ...]
    cells: dict[str, tuple[Cell, ...]]
    contracts: tuple[ContractReport | None, ...]
    unused: tuple[Finding, ...] = ()

    @property
    def refs(self) -> tuple[str, ...]:
        """The refs, in order."""
        return tuple(carried.upstream.ref.name for carried in self.carried)

    @property
    def failures(self) -> tuple[Cell, ...]:
        """The cells that fail the matrix."""
        return tuple(cell for row in self.cells.values() for cell in row if cell.failed)

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The contract's errors and warnings, each once with the refs that have it."""
        found: dict[tuple[str, str, str], tuple[Finding, list[str]]] = {}
        for ref, report in zip(self.refs, self.contracts, strict=True):
            for finding in report.findings if report else ():
                if finding.severity is not Severity.NOTE:
                    found.setdefault(finding.key, (finding, []))[1].append(ref)
        return tuple(Break(finding, tuple(refs)) for finding, refs in found.values())

    @property
    def contract_errors(self) -> tuple[Break, ...]:
        """The breaks that fail the matrix."""
        return tuple(one for one in self.breaks if one.finding.severity is Severity.ERROR)

    def summaries(self) -> tuple[Summary, ...]:
        """Return one summary a patch."""
        return tuple(_summary(patch, self.cells[patch]) for patch in self.patches)


def unchecked(_carried: Carried, _tree: Tree) -> None:
    """Check no contract."""


def run_matrix(
    opener: Opener,
    upstreams: Iterable[Upstream],
    expected: Path,
    *,
    jobs: int,
    contract: Contract = unchecked,
    whole: bool = False,
) -> Matrix:
    """Carry the series to every upstream ref, and check the contract of each carried tree.

    Args:
        opener: Opens a carrier; called once for each run of refs, so it must be picklable.
        upstreams: The refs, already in the store.
        expected: The file of recorded conflicts; it may be absent.
        jobs: Processes to use; 1 stays in this one.
        contract: Checks a carried tree; it must be picklable too.
        whole: The refs are all that the overlay serves: an ignore comment that none of them needs
            is a finding.

    Raises:
        BadInput: The file of recorded conflicts is malformed.
    """
    wanted = tuple(upstreams)
    recorded = read_expected(expected)
    done = spread(partial(_carry, opener, contract), wanted, jobs)
    carried = tuple(one for one, _ in done)
    contracts = tuple(report for _, report in done)
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
    unused = unused_everywhere(filter(None, contracts)) if whole else ()
    return Matrix(carried, names, cells, contracts, unused)


def _carry(
    opener: Opener, contract: Contract, upstreams: tuple[Upstream, ...]
) -> tuple[tuple[Carried, ContractReport | None], ...]:
    return tuple(opener().look_each(upstreams, contract))


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
