"""Another git repository as a source: what it has, and one commit of it brought into the store.

Only the commit's own tree is wanted, so the fetch is shallow; and of its files only those that the
store lacks, so it asks for trees first and then for the missing blobs. A server that can do neither
gets a plain fetch. What arrives is checked by git (``fetch.fsckObjects``).
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tools.errors import EnvironmentLacks, ToolError, Unavailable
from tools.git import Git, guarded_directory
from tools.settings import check_git_url
from tools.upstream import downloads
from tools.upstream.refs import Ref, RefKind
from tools.upstream.store import INCOMING, Store

Notify = Callable[[str], None]
_NAME = "upstream"
_HISTORY = ("+refs/heads/*:refs/history/heads/*", "+refs/tags/*:refs/history/tags/*")
_PEELED = "^{}"
_OID = re.compile(r"[0-9a-f]{40}")
_FETCH = (
    # No "have" lines: the store's commits come without history, and a server told of one would
    # leave out what is only in its ancestors.
    *("-c", "core.alternateRefsPrefixes=refs/none/"),
    *("-c", "fetch.fsckObjects=true"),
    *("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60"),
    *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no"),
)


class Unreachable(Unavailable):
    """A git repository cannot be reached, or is none."""


@dataclass(frozen=True)
class Remote:
    """A git repository by URL or path.

    Args:
        url: As git takes it.
        shown: For messages: without credentials.
        key: Stands for it in the names of refs.
    """

    url: str
    shown: str
    key: str

    @classmethod
    def at(cls, url: str) -> "Remote":
        """Return the repository at a URL or an absolute path.

        Raises:
            BadInput: It is neither.
        """
        check_git_url(url)
        return cls(url, _shown(url), hashlib.sha256(_shown(url).encode()).hexdigest()[:12])


@dataclass(frozen=True)
class Advertised:
    """The tags and branches of a repository, each with its commit."""

    tags: Mapping[str, str]
    branches: Mapping[str, str]

    def find(self, ref: Ref) -> str | None:
        """Return the commit that a ref names here; a commit must be spelled out or be a tip."""
        if ref.kind is RefKind.TAG:
            return self.tags.get(ref.name)
        if ref.kind is RefKind.BRANCH:
            # A tag that is no version, such as `nightly`, is spelled like a branch.
            return self.branches.get(ref.name) or self.tags.get(ref.name)
        if _OID.fullmatch(ref.name):
            return ref.name
        tips = {*self.tags.values(), *self.branches.values()}
        matching = [oid for oid in tips if oid.startswith(ref.name)]
        return matching[0] if len(matching) == 1 else None


def advertised(store: Store, remote: Remote) -> Advertised:
    """Ask a repository for its tags and branches.

    Raises:
        Unreachable: It cannot be reached or is no git repository.
    """
    rows = _ask(store.git, remote, "ls-remote", "--heads", "--tags", "--", remote.url).decode(
        "utf-8", "surrogateescape"
    )
    tags: dict[str, str] = {}
    branches: dict[str, str] = {}
    for row in rows.splitlines():
        oid, _, name = row.partition("\t")
        if not _OID.fullmatch(oid):
            continue
        if name.startswith("refs/tags/"):
            # The row of an annotated tag's commit comes second, with ^{} at its end.
            tags[name.removeprefix("refs/tags/").removesuffix(_PEELED)] = oid
        elif name.startswith("refs/heads/"):
            branches[name.removeprefix("refs/heads/")] = oid
    return Advertised(tags, branches)


def fetch(store: Store, remote: Remote, commit: str, name: str, notify: Notify) -> None:
    """Bring one commit and its tree into the store.

    Args:
        store: Where to.
        remote: Where from.
        commit: The full id.
        name: The ref to publish it under, below ``refs/upstream/``.
        notify: Told what takes time.

    Raises:
        Unreachable: The repository cannot be read.
        Unavailable: It has no such commit.
        EnvironmentLacks: The cache is full or not writable.
        Busy: Another run holds the store.
    """
    notify(f"fetching {commit[:12]} from {remote.shown}")
    ways: tuple[tuple[bool, tuple[str, ...]], ...] = (
        (True, ("--depth=1", "--filter=blob:none", _NAME, commit)),
        (False, ("--depth=1", _NAME, commit)),
        # For a server that gives no commits by id, or cannot cut the history.
        (False, (_NAME, *_HISTORY)),
    )
    failure: Unreachable | None = None
    for filtered, way in ways:
        # A repository of its own for each: in one that expects files to be missing, a plain web
        # server's fetch would start another fetch for each of them, without end.
        with _incoming(store, remote, filtered=filtered) as incoming:
            try:
                _ask(incoming, remote, *_FETCH, *way)
                if filtered:
                    _fetch_missing(incoming, remote, commit)
            except Unreachable as error:
                if "not our ref" in error.message:
                    break
                failure = failure or error
                continue
            found = incoming.object(commit)
            if found is None or found[1] != "commit":
                break
            shallow = incoming.directory / "shallow"
            if not shallow.exists():  # all of the history came: cut it off as depth 1 does
                downloads.write_aside(shallow, f"{commit}\n".encode())
            store.adopt(name, commit, incoming)
            return
    else:
        if failure is not None:
            raise failure
    raise Unavailable(f"there is no commit {commit} in {remote.shown}")


def complete(store: Store, remote: Remote, prefix: str, tip: str, notify: Notify) -> str | None:
    """Return the full id of the commit that ``prefix`` abbreviates in a repository, or None.

    Servers answer only for full ids, so the history is fetched, where possible as commits without
    trees.

    Args:
        store: Where to fetch into, aside.
        remote: The repository.
        prefix: The first digits of the commit.
        tip: Any commit that the repository advertises.
        notify: Told what takes time.

    Raises:
        Unreachable: The repository cannot be read.
    """
    notify(f"looking for {prefix} in the history of {remote.shown}")
    with _commits(store, remote, tip, _HISTORY) as incoming:
        return incoming.resolve(f"{prefix}^{{commit}}")


@contextlib.contextmanager
def fetched_history(store: Store, remote: Remote, commits: Sequence[str]) -> Iterator[Git]:
    """Yield a repository with some commits and all that led to them, gone afterwards.

    Args:
        store: Where to fetch into, aside.
        remote: The repository.
        commits: Full ids.

    Raises:
        Unreachable: The repository cannot be read.
        Unavailable: It lacks one of the commits.
    """
    with contextlib.ExitStack() as stack:
        try:
            incoming = stack.enter_context(_commits(store, remote, commits[0], commits))
        except Unreachable:
            # A server that gives no commits by id gives them as part of its branches and tags.
            incoming = stack.enter_context(_commits(store, remote, commits[0], _HISTORY))
        for commit in commits:
            if incoming.resolve(f"{commit}^{{commit}}") is None:
                raise Unavailable(f"there is no commit {commit} in {remote.shown}")
        yield incoming


@contextlib.contextmanager
def _commits(store: Store, remote: Remote, tip: str, wanted: Sequence[str]) -> Iterator[Git]:
    """Yield a repository with the history of what is wanted, if possible without trees."""
    with _incoming(store, remote, filtered=True) as incoming:
        try:
            _ask(incoming, remote, *_FETCH, "--depth=1", "--filter=tree:0", _NAME, tip)
            filters = True
        except Unreachable:
            filters = False
    with _incoming(store, remote, filtered=filters) as incoming:
        _ask(incoming, remote, *_FETCH, *(["--filter=tree:0"] if filters else []), _NAME, *wanted)
        yield incoming


@contextlib.contextmanager
def _incoming(store: Store, remote: Remote, *, filtered: bool) -> Iterator[Git]:
    """Yield a repository that borrows the store's objects and is gone afterwards.

    Args:
        store: Whose objects.
        remote: What it fetches from, under the name ``upstream``.
        filtered: Whether objects that the remote has may be missing in it.
    """
    with (
        guarded_directory(store.settings.cache / INCOMING) as directory,
        Git.create(directory / "git") as incoming,
    ):
        alternates = incoming.directory / "objects" / "info" / "alternates"
        downloads.write_aside(alternates, f"{store.git.directory / 'objects'}\n".encode())
        incoming.run("config", "--local", f"remote.{_NAME}.url", remote.url)
        if filtered:
            incoming.run("config", "--local", f"remote.{_NAME}.promisor", "true")
            incoming.run("config", "--local", f"remote.{_NAME}.partialCloneFilter", "blob:none")
        yield incoming


def _fetch_missing(incoming: Git, remote: Remote, commit: str) -> None:
    listed = incoming.run(
        "rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=print", commit, "--"
    ).stdout
    missing = [row[1:] for row in listed.decode().split() if row.startswith("?")]
    if missing:
        _ask(
            incoming,
            remote,
            "-c",
            "fetch.negotiationAlgorithm=noop",
            *_FETCH,
            "--filter=blob:none",
            "--stdin",
            _NAME,
            stdin="".join(f"{oid}\n" for oid in missing).encode(),
        )


def _ask(git: Git, remote: Remote, *arguments: str, stdin: bytes = b"") -> bytes:
    try:
        return git.run(*arguments, stdin=stdin, network=True).stdout
    except EnvironmentLacks:
        raise
    except ToolError as error:
        said = error.message.replace(remote.url, remote.shown)
        raise Unreachable(
            f"the git repository {remote.shown} cannot be read: {said}",
            "check the network, the URL (git-url in pyproject.toml) and your access to it",
        ) from error


def _shown(url: str) -> str:
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def is_repository(path: Path) -> bool:
    """Return whether a directory looks like a checkout or a bare repository."""
    return (path / ".git").exists() or all((path / n).exists() for n in ("HEAD", "objects", "refs"))
