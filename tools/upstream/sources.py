"""Bringing a ref into the store, from whichever source has it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from packaging.version import Version

from tools.errors import BadInput, Unavailable
from tools.upstream import remote as remotes
from tools.upstream.archive import Snapshot, read_sdist, read_wheel
from tools.upstream.downloads import digest
from tools.upstream.index import Index
from tools.upstream.page import IndexUnreachable
from tools.upstream.refs import Ref, RefKind, parse_ref, unknown_ref
from tools.upstream.remote import Remote
from tools.upstream.store import Store

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
    store: Store,
    ref: str,
    source: str = "auto",
    notify: Notify = lambda _line: None,
    *,
    commit: str = "",
) -> Upstream:
    """Return a ref's commit in the store, brought there if need be.

    Args:
        store: Where to.
        ref: What the user wrote; see :func:`tools.upstream.refs.parse_ref`.
        source: ``auto`` (the store, then the index for a release, then git), ``index``, ``git``,
            or a path to a checkout, a bare repository or an sdist.
        notify: Told, in one line, what takes time.
        commit: What ``git`` is known to have for a tag now: where the store has another commit, of
            before the tag was moved, it is fetched anew. "" takes what the store has.

    Raises:
        BadInput: ``ref`` or ``source`` is malformed, or an archive is hostile.
        Unavailable: There is no such ref, or no source can be reached.
        Busy: Another run holds the store.
        EnvironmentLacks: The cache is full or not writable.
    """
    parsed = parse_ref(ref)
    if source == "auto":
        return _from_anywhere(store, parsed, notify)
    if source == "index":
        return _from_index(store, parsed, notify)
    if source == "git":
        remote = Remote.at(store.settings.git_url)
        return _from_git(store, parsed, remote, "git", notify, wanted=commit)
    return _from_path(store, parsed, source, notify)


def list_releases(store: Store) -> tuple[ReleaseRow, ...]:
    """Return upstream's releases, oldest first: those on the index and those in the store.

    Raises:
        Unavailable: The index cannot be reached, no page of it is kept, and the store is empty.
    """
    held = {
        ref.version
        for name in store.names()
        if name.startswith(("index/", "git/"))
        and (ref := _release_of(name.rpartition("/")[2])) is not None
        and ref.version is not None
    }
    try:
        offered = {r.version: r for r in Index.configured(store.settings.cache).releases()}
    except Unavailable:
        if not held:
            raise
        offered = {}
    rows = []
    for version in sorted({*held, *offered}):
        release = offered.get(version)
        rows.append(
            ReleaseRow(
                version,
                f"v{version}",
                version in held,
                sdist=release is not None and release.sdist,
                wheel=release is not None and release.wheel,
                uploaded=release.uploaded if release else None,
            )
        )
    return tuple(rows)


def _release_of(name: str) -> Ref | None:
    try:
        ref = parse_ref(name)
    except BadInput:
        return None
    return ref if ref.kind is RefKind.TAG else None


# Auto -------------------------------------------------------------------------------------------


def _from_anywhere(store: Store, ref: Ref, notify: Notify) -> Upstream:
    git = Remote.at(store.settings.git_url)
    commit = store.find(f"index/{ref.name}", notify) if ref.version else None
    if commit is not None:
        return _archived(store, ref, commit, "index")
    held = _held(store, ref, git, notify)
    if held is not None:
        return _fetched(store, ref, held, "git")
    if not ref.is_release:
        return _from_git(store, ref, git, "git", notify)
    index = Index.configured(store.settings.cache, notify)
    try:
        commit = _import_release(store, ref, index, notify)
    except IndexUnreachable as failure:
        # Git may still be reachable; where it is not, the index's failure is the first to mend.
        try:
            return _from_git(store, ref, git, "git", notify)
        except remotes.Unreachable:
            raise failure from None
    if commit is not None:
        return _archived(store, ref, commit, "index")
    names = [f"v{release.version}" for release in index.releases()]
    try:
        return _from_git(store, ref, git, "git", notify, also_known=names)
    except remotes.Unreachable as failure:
        where = f"on the package index, and {git.shown} cannot be read"
        raise unknown_ref(ref, where, names) from failure


# The package index ------------------------------------------------------------------------------


def _from_index(store: Store, ref: Ref, notify: Notify) -> Upstream:
    if ref.version is None:
        raise BadInput(
            f"the package index has releases only, and {ref.name} is a {ref.kind.value}",
            "use --source git",
        )
    commit = store.find(f"index/{ref.name}", notify)
    if commit is None:
        index = Index.configured(store.settings.cache, notify)
        commit = _import_release(store, ref, index, notify)
        if commit is None:
            known = [f"v{release.version}" for release in index.releases()]
            raise unknown_ref(ref, "on the package index", known)
    return _archived(store, ref, commit, "index")


def _import_release(store: Store, ref: Ref, index: Index, notify: Notify) -> str | None:
    """Import a release's sdist, else its wheel; None where the index has neither."""
    if ref.version is None:
        return None
    name = f"index/{ref.name}"
    sdist = index.fetch_sdist(ref.version)
    if sdist is not None:
        snapshot = _checked(read_sdist(sdist.path), ref, sdist.filename)
        notify(f"importing {sdist.filename}")
        return _add(store, name, ref, snapshot, ("sdist", sdist.filename, sdist.sha256))
    wheel = index.fetch_any_wheel(ref.version)
    if wheel is None:
        return None
    notify(f"{ref.name} has no sdist: importing the Python tree of {wheel.filename}")
    snapshot = _checked(read_wheel(wheel.path), ref, wheel.filename)
    return _add(store, name, ref, snapshot, ("wheel", wheel.filename, wheel.sha256))


def _checked(snapshot: Snapshot, ref: Ref, filename: str) -> Snapshot:
    """Return the snapshot where its own metadata say that it is the release asked for."""
    if snapshot.version is None or snapshot.version.public != str(ref.version):
        raise BadInput(
            f"{filename} says that it is version {snapshot.version}, not {ref.name}",
            "give the archive of that release",
        )
    return snapshot


def _add(store: Store, name: str, ref: Ref, snapshot: Snapshot, file: tuple[str, str, str]) -> str:
    kind, filename, sha256 = file
    facts = {"Kind": kind, "File": filename, "Sha256": sha256}
    return store.add(name, snapshot, f"vLLM {ref.name} from its {kind}", facts)


def _archived(store: Store, ref: Ref, commit: str, source: str) -> Upstream:
    facts = store.facts(commit)
    return Upstream(
        ref,
        commit,
        store.git.tree_of(commit),
        source,
        facts["Kind"],
        {facts["File"]: facts["Sha256"]},
    )


# Git --------------------------------------------------------------------------------------------


def _from_git(
    store: Store,
    ref: Ref,
    remote: Remote,
    source: str,
    notify: Notify,
    *,
    also_known: Sequence[str] = (),
    wanted: str = "",
) -> Upstream:
    if source == "git":
        held = _held(store, ref, remote, notify)
        if held is not None and wanted in ("", held):
            return _fetched(store, ref, held, source)
    name = _name_of(source, remote, ref)
    try:
        offered = remotes.advertised(store, remote)
    except remotes.Unreachable as failure:
        kept = store.find(name, notify)
        if kept is None:
            raise
        notify(f"{failure.message}; using {ref.name} as it was fetched last")
        return _fetched(store, ref, kept, source)
    commit = offered.find(ref)
    if commit is None and ref.kind is RefKind.COMMIT:
        tips = [*offered.branches.values(), *offered.tags.values()]
        commit = remotes.complete(store, remote, ref.name, tips[0], notify) if tips else None
    if commit is None:
        known = [*also_known, *offered.tags, *offered.branches]
        raise unknown_ref(ref, f"in {remote.shown}", known)
    if ref.kind is RefKind.COMMIT:
        name = _name_of(source, remote, Ref(commit, RefKind.COMMIT))
    if store.find(name, notify) != commit:
        remotes.fetch(store, remote, commit, name, notify)
    return _fetched(store, ref, commit, source)


def _held(store: Store, ref: Ref, remote: Remote, notify: Notify) -> str | None:
    """Return the commit of a tag or commit that was fetched before; a branch may have moved."""
    if ref.kind is RefKind.TAG:
        return store.find(_name_of("git", remote, ref), notify)
    if ref.kind is RefKind.COMMIT:
        prefix = f"git/{remote.key}/"
        tips = {c for name, c in store.names().items() if name.startswith(prefix)}
        matching = [commit for commit in tips if commit.startswith(ref.name)]
        if len(matching) == 1 and store.is_whole(matching[0]):
            return matching[0]
    return None


def _name_of(source: str, remote: Remote, ref: Ref) -> str:
    # Quoted: `a` and `a/b` cannot both be refs, but can follow each other upstream.
    return f"{source}/{remote.key}/{ref.kind.value}/{quote(ref.name, safe='')}"


def _fetched(store: Store, ref: Ref, commit: str, source: str) -> Upstream:
    return Upstream(ref, commit, store.git.tree_of(commit), source, "commit", {})


# A local path -----------------------------------------------------------------------------------


def _from_path(store: Store, ref: Ref, source: str, notify: Notify) -> Upstream:
    try:
        path = Path(source).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(
            f"not a source: {source!a} does not exist",
            "use auto, index, git, or the path of a checkout, a bare repository or an sdist",
        ) from error
    if path.is_file():
        sha256 = digest(path)
        name = f"path/sdist/{sha256}"
        commit = store.find(name, notify)
        # Read also where it is in the store: the ref asked for must be this file's.
        snapshot = _checked(read_sdist(path), ref, path.name)
        if commit is None:
            notify(f"importing {path.name}")
            commit = _add(store, name, ref, snapshot, ("sdist", ascii(path.name)[1:-1], sha256))
        return _archived(store, ref, commit, "path")
    if not remotes.is_repository(path):
        raise BadInput(f"{path} is no git repository", "give a checkout or a bare repository")
    return _from_git(store, ref, Remote.at(str(path)), "path", notify)
