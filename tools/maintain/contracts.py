"""What the overlay and the patches assume about a ref, checked on the carried or the stock tree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.contract import ContractReport
from tools.contract.check import check
from tools.contract.dependencies import WheelIndex
from tools.contract.since import bisect_since
from tools.git import Git, GitTree
from tools.overlay import Overlay
from tools.tree import Tree
from tools.upstream import Upstream
from tools.upstream.index import Index

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
    """

    ref: str
    tree: Tree
    modules: tuple[str, ...]
    baseline: Tree | None = None
    history: Sequence[tuple[str, Callable[[], Tree]]] = ()


def check_contract(request: ContractRequest, cache: Path, notify: Notify) -> ContractReport:
    """Check one tree, dependencies of its release included.

    Args:
        request: What to check.
        cache: Where wheels' names are kept.
        notify: Told what takes time.

    Raises:
        BadInput: A glob names no file of the tree.
    """
    dependencies = WheelIndex(Index.configured(cache, notify), cache)
    report = check(
        request.tree,
        modules=request.modules,
        baseline=request.baseline,
        dependencies=dependencies,
    )
    if not request.history:
        return report
    releases = [*request.history, (request.ref, lambda: request.tree)]
    return bisect_since(report, releases, modules=request.modules)


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
