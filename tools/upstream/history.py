"""What a git source has beside trees: the refs that it offers, and the commits between two of them.

Only commits are fetched for a history, where the server can leave the rest out.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tools.errors import BadInput
from tools.git import Git
from tools.upstream import remote as remotes
from tools.upstream.refs import Ref, RefKind, parse_ref, unknown_ref
from tools.upstream.remote import Advertised, Remote
from tools.upstream.sources import list_releases
from tools.upstream.store import Store

Notify = Callable[[str], None]
_NO_VERSION = Version("0")
# As the host's squash merge writes it: "[Core] Speed things up (#12345)".
_PULL_REQUEST = re.compile(r"\(#(\d+)\)\s*$")


@dataclass(frozen=True)
class Logged:
    """One commit of a history.

    Attributes:
        commit: Its id.
        when: Seconds since 1970, as its committer had them.
        subject: The first line of its message.
    """

    commit: str
    when: int
    subject: str

    @property
    def pull_request(self) -> int | None:
        """The number of the pull request that its subject ends with, or None."""
        found = _PULL_REQUEST.search(self.subject)
        return int(found[1]) if found else None


@dataclass(frozen=True)
class History:
    """The commits that lead to a newer commit and not to an older one.

    Attributes:
        parted: The commit at which the two part; the older one itself where it is an ancestor.
        commits: From there to the newer one along first parents, oldest first.
    """

    parted: Logged
    commits: tuple[Logged, ...]


@dataclass(frozen=True)
class Offered:
    """A ref that a source has.

    Attributes:
        ref: The ref.
        commit: Its commit upstream, or "" for a release of the package index, whose files stay.
        source: Where :func:`tools.upstream.obtain` finds it.
    """

    ref: Ref
    commit: str
    source: str


def remote_of(store: Store, source: str) -> Remote | None:
    """Return the git repository that a source is, or None for ``auto``, ``index`` and an sdist.

    Raises:
        BadInput: The source is a path that does not exist.
    """
    if source in ("auto", "index"):
        return None
    if source == "git":
        return Remote.at(store.settings.git_url)
    path = Path(source).expanduser().resolve()
    if not path.exists():
        raise BadInput(f"not a source: {source!a} does not exist", "use git, or a checkout's path")
    return Remote.at(str(path)) if remotes.is_repository(path) else None


def offered(
    store: Store, source: str, branches: Sequence[str] = (), *, prereleases: bool = False
) -> tuple[Offered, ...]:
    """Return what a source has to follow: releases, oldest first, then branches.

    Args:
        store: Whose settings name the index and the git repository.
        source: ``auto`` (releases of the index; git for what the index cannot have), ``index``,
            ``git``, or the path of a repository.
        branches: The branches to list too.
        prereleases: Whether to list the tags of release candidates as well.

    Raises:
        BadInput: The source has no list of refs, or a branch is none.
        Unavailable: It cannot be reached, or a branch is not there.
    """
    remote = remote_of(store, source)
    heads = [parse_ref(name) for name in branches]
    if remote is None and source not in ("auto", "index"):
        raise BadInput(f"{source!a} is one archive and offers no refs", "name the ref itself")
    if remote is None and source == "index" and (heads or prereleases):
        raise BadInput("the package index has releases only", "use --source git for the rest")
    if remote is not None:
        had = remotes.advertised(store, remote)
        return (
            *_tags(had, source, prereleases=prereleases),
            *_branches(had, remote, heads, source),
        )
    found = [
        Offered(parse_ref(row.tag), "", source)
        for row in list_releases(store)
        # A release with wheels alone has no docs or tests in its tree: it is asked for by name.
        if row.sdist or (row.in_store and not row.wheel)
    ]
    if heads or prereleases:
        remote = Remote.at(store.settings.git_url)
        had = remotes.advertised(store, remote)
        known = {row.ref.name for row in found}
        tags = _tags(had, "git", prereleases=prereleases)
        found = _ordered([*found, *(tag for tag in tags if tag.ref.name not in known)])
        found += _branches(had, remote, heads, "git")
    return tuple(found)


def _tags(had: Advertised, source: str, *, prereleases: bool) -> list[Offered]:
    found = []
    for name, commit in had.tags.items():
        try:
            ref = parse_ref(name)
        except BadInput:
            continue  # a tag that these tools could not ask for either
        if ref.name == name and (ref.is_release or (prereleases and ref.version is not None)):
            found.append(Offered(ref, commit, source))
    return _ordered(found)


def _ordered(rows: list[Offered]) -> list[Offered]:
    return sorted(rows, key=lambda row: row.ref.version or _NO_VERSION)


def _branches(had: Advertised, remote: Remote, heads: Sequence[Ref], source: str) -> list[Offered]:
    found = []
    for ref in heads:
        commit = had.branches.get(ref.name)
        if ref.kind is not RefKind.BRANCH or commit is None:
            raise unknown_ref(ref, f"in {remote.shown}", had.branches)
        found.append(Offered(ref, commit, source))
    return found


def history(store: Store, remote: Remote, older: str, newer: str, notify: Notify) -> History:
    """Return the commits between two commits of a git repository.

    Args:
        store: Fetched into aside; nothing of it stays.
        remote: The repository.
        older: A full commit id.
        newer: A full commit id.
        notify: Told what takes time.

    Raises:
        Unavailable: The repository cannot be read or lacks one of the two.
        BadInput: The two have no ancestor in common.
    """
    notify(f"reading the history of {remote.shown}")
    with remotes.fetched_history(store, remote, (older, newer)) as git:
        found = git.run("merge-base", older, newer, ok=(0, 1)).stdout.decode().strip()
        if not found:
            raise BadInput(f"{older[:12]} and {newer[:12]} have no ancestor in common")
        (parted,) = _log(git, "--max-count=1", found)
        return History(parted, _log(git, "--reverse", "--first-parent", newer, f"^{found}"))


def _log(git: Git, *arguments: str) -> tuple[Logged, ...]:
    listed = git.run(
        "rev-list", "--no-commit-header", "--encoding=UTF-8", "--format=%H %ct %s", *arguments, "--"
    ).stdout.decode("utf-8", "replace")
    rows = (row.split(" ", 2) for row in listed.splitlines() if row)
    return tuple(Logged(commit, int(when), subject) for commit, when, subject in rows)
