"""Bring the record of what was proved up to date, one cell after another.

The record is written after each cell, so a run that is cut short goes on where it stopped; one
environment is used at a time.
"""

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.smoke import verified
from tools.smoke.environment import engine_plan
from tools.smoke.results import SmokeReport
from tools.smoke.smoke import smoke
from tools.smoke.verified import FILE, Cell, CellName, CellState
from tools.upstream.index import Index


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
class Verification:
    """One cell, how it stood before, and what it holds now (None: it was only looked at)."""

    name: CellName
    before: CellState
    cell: Cell | None


def verify(
    releases: Iterable[str],
    *,
    built: Callable[[str], Built],
    device: str,
    root: Path,
    cache: Path,
    transformers: str = "release",
    run: bool = True,
    progress: Callable[[str], None] = lambda _: None,
    ask: Callable[..., SmokeReport] = smoke,
) -> list[Verification]:
    """Run the smoke of each release whose cell is not current, and record it.

    Args:
        releases: The releases, in the order to take them.
        built: Gives the wheel of a release.
        device: ``cpu`` or ``cuda``.
        root: The repository's root, where the record lies.
        cache: The cache directory.
        transformers: See :func:`tools.smoke.environment.engine_plan`.
        run: False to look at the cells alone.
        progress: Told, in one line, what is being done.
        ask: The smoke.

    Raises:
        ToolError: See :func:`tools.smoke.smoke.smoke`; the cells done before are recorded.
    """
    index = Index.configured(cache, progress)
    found = []
    for release in releases:
        wheel = built(release)
        plan = engine_plan(
            release, device=device, wheel=wheel.wheel, transformers=transformers, index=index
        )
        kind = "stock" if wheel.wheel is None else "carried"
        name = CellName(release, device, kind, transformers)
        # Read anew each time: another run may have recorded a cell meanwhile.
        record = verified.load(root / FILE)
        before = record.state(name, plan.wheel_sha256)
        progress(f"{name}: {before.value}")
        if before is not CellState.CURRENT and run:
            report = ask(
                release,
                wheel=wheel.wheel,
                device=device,
                root=root,
                cache=cache,
                transformers=transformers,
                progress=progress,
            )
            now = datetime.datetime.now(datetime.UTC)
            record = verified.load(root / FILE).record(name, report, wheel.commit, now)
            verified.save(record, root / FILE)
        found.append(Verification(name, before, record.cells.get(name)))
    return found
