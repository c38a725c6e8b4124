"""Another git repository as a source: what it has, and one commit of it brought into the store.

Only the commit's own tree is wanted, so the fetch is shallow; and of its files only those that the
store lacks, so it asks for trees first and then for the missing blobs. A server that can do neither
gets a plain fetch. What arrives is checked by git (``fetch.fsckObjects``).
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
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
# No "have" lines: the store's commits come without history, and a server told of one would leave
# out what is only in its ancestors.
_HAVE_NOTHING = ("-c", "core.alternateRefsPrefixes=refs/none/", "-c", "fetch.fsckObjects=true")


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
    with _incoming(store, remote) as incoming:
        if not _fetch_tree(incoming, remote, commit):
            raise Unavailable(f"there is no commit {commit} in {remote.shown}")
        shallow = incoming.directory / "shallow"
        if not shallow.exists():  # all of the history came: cut it off as a shallow fetch does
            shallow.write_text(f"{commit}\n", "ascii")
        store.adopt(name, commit, incoming)


def complete(store: Store, remote: Remote, prefix: str, notify: Notify) -> str | None:
    """Return the full id of the commit that ``prefix`` abbreviates in a repository, or None.

    Servers answer only for full ids, so the history is fetched, as commits without trees.

    Raises:
        Unreachable: The repository cannot be reached.
    """
    notify(f"looking for {prefix} in the history of {remote.shown}")
    with _incoming(store, remote) as incoming:
        _ask(
            incoming,
            remote,
            *_HAVE_NOTHING,
            "fetch",
            "--quiet",
            "--no-tags",
            "--filter=tree:0",
            _NAME,
            *_HISTORY,
        )
        return incoming.resolve(f"{prefix}^{{commit}}")


@contextlib.contextmanager
def _incoming(store: Store, remote: Remote) -> Iterator[Git]:
    """Yield a repository that borrows the store's objects and is gone afterwards."""
    with (
        guarded_directory(store.settings.cache / INCOMING) as directory,
        Git.create(directory / "git") as incoming,
    ):
        alternates = incoming.directory / "objects" / "info" / "alternates"
        downloads.write_aside(alternates, f"{store.git.directory / 'objects'}\n".encode())
        for key, value in {
            f"remote.{_NAME}.url": remote.url,
            f"remote.{_NAME}.promisor": "true",
            f"remote.{_NAME}.partialCloneFilter": "blob:none",
        }.items():
            incoming.run("config", "--local", key, value)
        yield incoming


def _fetch_tree(incoming: Git, remote: Remote, commit: str) -> bool:
    """Fetch a commit and its whole tree; return whether the repository has that commit."""
    plain = (*_HAVE_NOTHING, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head")
    ways: tuple[tuple[str, ...], ...] = (
        ("--depth=1", "--filter=blob:none", _NAME, commit),
        ("--depth=1", "--no-filter", _NAME, commit),
        # For a server that gives no commits by id, or cannot cut the history.
        ("--no-filter", _NAME, *_HISTORY),
    )
    failure: Unreachable | None = None
    for way in ways:
        try:
            _ask(incoming, remote, *plain, *way)
            _fetch_missing(incoming, remote, commit)
        except Unreachable as error:
            if "not our ref" in error.message:
                return False
            failure = failure or error
            continue
        found = incoming.object(commit)
        return found is not None and found[1] == "commit"
    raise failure or Unreachable(f"{remote.shown} cannot be read")


def _fetch_missing(incoming: Git, remote: Remote, commit: str) -> None:
    listed = incoming.run(
        "rev-list", "--objects", "--no-object-names", "--no-walk", "--missing=print", commit, "--"
    ).stdout
    missing = [row[1:] for row in listed.decode().split() if row.startswith("?")]
    if missing:
        _ask(
            incoming,
            remote,
            *_HAVE_NOTHING,
            "-c",
            "fetch.negotiationAlgorithm=noop",
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--recurse-submodules=no",
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
