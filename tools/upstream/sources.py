"""Bringing a ref into the store, from whichever source has it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from packaging.version import Version

from tools.errors import BadInput
from tools.upstream.archive import read_sdist
from tools.upstream.index import Index
from tools.upstream.refs import Ref, parse_ref, unknown_ref
from tools.upstream.store import UPSTREAM_REFS, Store

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Upstream:
    """A ref, in the store.

    Args:
        ref: What was asked for.
        commit: Its commit in the store.
        tree: That commit's tree.
        source: ``index``, ``git`` or ``path``.
        kind: ``sdist``, ``wheel`` (only the Python tree) or ``commit``.
        digests: sha256 by file name of what it was imported from; empty for git.
    """

    ref: Ref
    commit: str
    tree: str
    source: str
    kind: str
    digests: Mapping[str, str]


@dataclass(frozen=True)
class ReleaseRow:
    """One release for `tags`: what the index has of it, and whether the store holds it."""

    version: Version
    tag: str
    in_store: bool
    sdist: bool
    wheel: bool
    uploaded: datetime | None


def obtain(
    store: Store, ref: str, source: str = "auto", notify: Notify = lambda _line: None
) -> Upstream:
    """Return a ref's commit in the store, brought there if need be.

    Args:
        store: Where to.
        ref: What the user wrote; see :func:`tools.upstream.refs.parse_ref`.
        source: ``auto`` (the store, then the index for a release, then git), ``index``, ``git``,
            or a path to a checkout, a bare repository or an sdist.
        notify: Told, in one line, what takes time.

    Raises:
        BadInput: ``ref`` or ``source`` is malformed, or an archive is hostile.
        Unavailable: There is no such ref, or no source can be reached.
        Busy: Another run holds the store.
        EnvironmentLacks: The cache is full or not writable.
    """
    parsed = parse_ref(ref)
    if source not in ("auto", "index"):
        raise BadInput(f"not a source: {source!r}", "use auto, index, git or a path")
    return _from_index(store, parsed, notify)


def _from_index(store: Store, ref: Ref, notify: Notify) -> Upstream:
    name = f"index/{ref.name}"
    commit = store.find(name)
    if commit is None:
        commit = _import_release(store, ref, name, notify)
    return _described(store, ref, commit, "index")


def _import_release(store: Store, ref: Ref, name: str, notify: Notify) -> str:
    index = Index.configured(store.settings.cache, notify)
    sdist = index.fetch_sdist(ref.version) if ref.version else None
    if ref.version is None or sdist is None:
        raise unknown_ref(ref, "package index", [f"v{r.version}" for r in index.releases()])
    notify(f"importing {sdist.filename}")
    facts = {"Source": "index", "Kind": "sdist", "File": sdist.filename, "Sha256": sdist.sha256}
    return store.add(name, read_sdist(sdist.path), f"vLLM {ref.name} from its sdist", facts)


def _described(store: Store, ref: Ref, commit: str, source: str) -> Upstream:
    facts = store.facts(commit)
    digests = {facts["File"]: facts["Sha256"]} if "Sha256" in facts else {}
    return Upstream(
        ref,
        commit,
        store.git.tree_of(commit),
        source,
        facts.get("Kind", "commit"),
        digests,
    )


def list_releases(store: Store) -> tuple[ReleaseRow, ...]:
    """Return upstream's releases, oldest first: those on the index and those in the store.

    Raises:
        Unavailable: The index cannot be reached, no page of it is kept, and the store is empty.
    """
    prefix = f"{UPSTREAM_REFS}index/v"
    held = {Version(name.removeprefix(prefix)) for name in store.git.refs(f"{UPSTREAM_REFS}index/")}
    index = Index.configured(store.settings.cache)
    return tuple(
        ReleaseRow(r.version, f"v{r.version}", r.version in held, r.sdist, r.wheel, r.uploaded)
        for r in index.releases()
    )
