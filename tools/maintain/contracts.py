"""What the overlay and the patches assume about a ref, checked on the carried or the stock tree."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.carry import Carried, Carrier
from tools.contract import ContractReport
from tools.contract.kept import Kept, KeptReports, key_of
from tools.errors import CheckFailed
from tools.git import Git, GitTree
from tools.overlay import Overlay
from tools.tree import Tree
from tools.upstream import Upstream

Notify = Callable[[str], None]


@dataclass(frozen=True)
class ContractRequest:
    """What to check.

    Attributes:
        ref: The ref, for the report.
        tree: The carried or the stock tree.
        modules: Paths or globs of the client modules.
        baseline: The tree of the last verified release, to compare with; None leaves that out.
        history: (ref, tree) of earlier releases, oldest first, to date the findings with.
        unused_ignores: Report ignore comments that cover nothing. The overlay serves many
            releases, of which some need a comment and others do not.
    """

    ref: str
    tree: Tree
    modules: tuple[str, ...]
    baseline: Tree | None = None
    history: Sequence[tuple[str, Callable[[], Tree]]] = ()
    unused_ignores: bool = False


def check_contract(request: ContractRequest, cache: Path, notify: Notify) -> ContractReport:
    """Check one tree, dependencies of its release included.

    Args:
        request: What to check.
        cache: Where wheels' names are kept.
        notify: Told what takes time.

    Raises:
        BadInput: A glob names no file of the tree.
    """
    from tools.contract.check import check  # noqa: PLC0415 (see below)
    from tools.contract.dependencies import WheelIndex  # noqa: PLC0415
    from tools.contract.since import bisect_since  # noqa: PLC0415
    from tools.upstream.index import Index  # noqa: PLC0415

    report = check(
        request.tree,
        modules=request.modules,
        baseline=request.baseline,
        dependencies=WheelIndex(Index.configured(cache, notify), cache),
        unused_ignores=request.unused_ignores,
    )
    if not request.history:
        return report
    releases = [*request.history, (request.ref, lambda: request.tree)]
    return bisect_since(report, releases, modules=request.modules)


@dataclass(frozen=True)
class ContractWish:
    """How several refs are checked; the usual way, as :func:`carried_contract` does, by default.

    Attributes:
        stock: Check upstream's own trees.
        package: Paths or globs of other modules than the overlay's.
        baseline: The commit to compare with, or "".
        history: Releases, oldest first, to date the findings with.
    """

    stock: bool = False
    package: tuple[str, ...] = ()
    baseline: str = ""
    history: tuple[Upstream, ...] = ()


def check_each(
    carrier: Carrier,
    upstreams: Sequence[Upstream],
    wish: ContractWish,
    cache: Path,
    notify: Notify,
) -> Iterator[ContractReport]:
    """Check several refs.

    Args:
        carrier: Carries the series.
        upstreams: The refs, already in the store.
        wish: How.
        cache: The user's cache.
        notify: Told what takes time.

    Raises:
        BadInput: A glob names no file of a tree.
        CheckFailed: A carry has conflicts.
    """
    git = carrier.git

    def look(upstream: Upstream, tree: Tree) -> ContractReport:
        modules = wish.package or client_modules(carrier.overlay, tree)
        if not modules:
            return ContractReport((), ())
        end = upstream.ref.version
        earlier = [one for one in wish.history if end and one.ref.version and one.ref.version < end]
        baseline = GitTree(git, wish.baseline) if wish.baseline else None
        request = ContractRequest(
            upstream.ref.name,
            tree,
            modules,
            baseline,
            upstream_trees(git, earlier),
            unused_ignores=bool(wish.package),
        )
        return check_contract(request, cache, notify)

    def look_at_carried(carried: Carried, tree: Tree) -> ContractReport:
        if carried.conflicts:
            ref = carried.upstream.ref.name
            raise CheckFailed(
                f"the series does not carry to {ref}: there is no contract to check",
                f"solve it: python -m tools resolve {ref}",
            )
        if wish == ContractWish():
            usual = carried_contract(cache, carried, tree)
            if usual is not None:
                return usual
        return look(carried.upstream, tree)

    if wish.stock:
        for upstream in upstreams:
            yield look(upstream, GitTree(git, upstream.commit))
    else:
        for _, report in carrier.look_each(upstreams, look_at_carried):
            yield report


def carried_contract(cache: Path, carried: Carried, tree: Tree) -> ContractReport | None:
    """Check a carried tree, or return the report that an earlier run kept of the same tree.

    The checker takes longer to import than most kept reports to read, and is imported where there
    is none.

    Args:
        cache: The user's cache.
        carried: What was carried.
        tree: Its tree.

    Returns:
        The report, with no modules where the ref has none of the overlay's; None where the carry
        has conflicts, since half a series fits nothing.
    """
    if carried.conflicts:
        return None
    targets = tuple(row.file.target for row in carried.overlay)
    kept, key = KeptReports(cache / "contract" / "reports"), key_of(carried.tree, targets)
    held, now = kept.get(key), time.time()
    if held is not None and held.is_fresh(now):
        return held.report
    from tools.contract.check import check  # noqa: PLC0415
    from tools.contract.dependencies import (  # noqa: PLC0415
        RecordingIndex,
        WheelIndex,
        answered_alike,
    )
    from tools.upstream.index import Index  # noqa: PLC0415

    index = WheelIndex(Index.configured(cache), cache)
    if held is not None and answered_alike(held.answers, index):
        kept.put(key, Kept(held.report, held.answers, now))
        return held.report
    recording = RecordingIndex(index)
    modules = [target for target in targets if tree.read(target) is not None]
    report = (
        check(tree, modules=modules, dependencies=recording, unused_ignores=False)
        if modules
        else ContractReport((), ())
    )
    # What could not be asked is asked again next time.
    if not report.unchecked:
        kept.put(key, Kept(report, tuple(recording.answers), now))
    return report


def client_modules(overlay: Overlay, tree: Tree) -> tuple[str, ...]:
    """Return the overlay's files that are in ``tree``, ours or upstream's own of that name."""
    return tuple(file.target for file in overlay.files if tree.read(file.target) is not None)


def upstream_trees(
    git: Git, upstreams: Iterable[Upstream]
) -> tuple[tuple[str, Callable[[], Tree]], ...]:
    """Return (ref, tree) of upstream commits, for :class:`ContractRequest`'s history."""

    def provider(commit: str) -> Callable[[], Tree]:
        return lambda: GitTree(git, commit)

    return tuple((upstream.ref.name, provider(upstream.commit)) for upstream in upstreams)
