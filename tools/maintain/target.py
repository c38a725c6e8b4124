"""The repository that releases are pushed to: what it holds, whose its branch is, and the push.

Nothing of a person's is ever overwritten: a release branch is ours only while its tip is the commit
that one of our release tags records, and every push names what it expects to find there.
"""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.carry.chain import COMMITTER
from tools.errors import BadInput, Busy, CheckFailed, EnvironmentLacks, ToolError, Unavailable
from tools.git import Git, guarded_directory
from tools.maintain.released import TAG, Record, is_signed, latest, next_number, parse_record
from tools.upstream import Store, downloads
from tools.upstream.remote import Advertised, Remote, advertised

WORKING = "releasing"  # below the cache
_BRANCH = "release/"


@dataclass(frozen=True)
class Target:
    """A repository as it was when it was read.

    Attributes:
        remote: Where it is.
        held: A repository of our own with what was fetched from it, gone at the end.
        work: Another one that borrows the store's objects, to push from; gone at the end too.
        ref: The release of upstream's that this is about.
        refs: Its tags and branches.
        records: The releases in it that were read: those of ``ref``, and of the one before.
    """

    remote: Remote
    held: Git = field(repr=False)
    work: Git = field(repr=False)
    ref: str
    refs: Advertised
    records: tuple[Record, ...]

    @property
    def branch(self) -> str:
        """The name of the release branch."""
        return f"{_BRANCH}{self.ref}"

    @property
    def tip(self) -> str:
        """The commit that the branch is at; "" where there is none."""
        return self.refs.branches.get(self.branch, "")

    @property
    def number(self) -> int:
        """The next free N."""
        return next_number(self.refs.tags, self.ref)

    @property
    def last(self) -> Record | None:
        """The newest release of ``ref``, where the branch is at it."""
        held = [r for r in self.records if _ref_of(r.tag) == self.ref and r.carried == self.tip]
        return max(held, key=lambda record: record.number, default=None)

    @property
    def before(self) -> Record | None:
        """The release that the next one follows."""
        return latest(self.records, self.ref)


@contextlib.contextmanager
def read_target(store: Store, to: str, ref: str) -> Iterator[Target]:
    """Read a repository.

    Args:
        store: Where the commits are that may be pushed.
        to: A URL or a path.
        ref: The release of upstream's.

    Yields:
        The repository.

    Raises:
        BadInput: ``to`` names no repository.
        Unavailable: It cannot be reached.
    """
    place = Path(to)
    remote = Remote.at(str(place.resolve()) if place.is_dir() else to)
    refs = advertised(store, remote)
    with (
        guarded_directory(store.settings.cache / WORKING) as directory,
        Git.create(directory / "held") as held,
        Git.create(directory / "work") as work,
    ):
        objects = work.directory / "objects" / "info" / "alternates"
        downloads.write_aside(objects, f"{store.git.directory / 'objects'}\n".encode())
        shallow = store.git.directory / "shallow"
        if shallow.exists():
            downloads.write_aside(work.directory / "shallow", shallow.read_bytes())
        names = _wanted(refs, ref)
        _fetch(held, remote, [*(f"refs/tags/{name}" for name in names), *_branches(refs, ref)])
        records = tuple(_records(held, names, refs.tags))
        yield Target(remote, held, work, ref, refs, records)


def check_owned(target: Target, upstream: str) -> None:
    """Refuse where the release branch is not at a commit that a release of ours put it at.

    Args:
        target: The repository.
        upstream: Upstream's commit, which the branch begins with.

    Raises:
        CheckFailed: It is not; the message names a person's commit.
    """
    if not target.tip or target.last is not None:
        return
    begins = {upstream, *(record.upstream for record in target.records)}
    foreign = _foreign(target.held, target.tip)
    # With all commits ours and no tag of ours at the tip, someone took the tag or moved the branch.
    commit = target.tip if foreign in begins else foreign or target.tip
    shown = target.held.run("show", "-s", "--format=%h %cn: %s", commit, "--").stdout
    raise CheckFailed(
        f"{target.branch} in {target.remote.shown} holds a commit that no release made, and is "
        f"left as it is: {shown.decode('utf-8', 'replace').strip()}",
        "move that work to a branch of its own, or release into another repository",
    )


def write_tag(target: Target, tag: str, commit: str, message: bytes, key: str) -> str:
    """Make the annotated tag in our own repository and return its id.

    Args:
        target: The repository it is meant for.
        tag: Its name.
        commit: What it names.
        message: Its message, taken as it is.
        key: The key that git signs it with, or "".

    Raises:
        EnvironmentLacks: git cannot sign it.
    """
    name, email = COMMITTER
    who = {
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": email,
        "GIT_COMMITTER_DATE": f"{int(time.time())} +0000",
    }
    kind = [f"--local-user={key}"] if key else ["--annotate", "--no-sign"]
    said = ""
    try:
        done = target.work.run(
            "tag", *kind, "--force", "--cleanup=verbatim", "--file=-", "--", tag, commit,
            stdin=message, environment=who, network=bool(key),
        )  # fmt: skip
        said = done.stderr.decode("utf-8", "replace").strip()
    except ToolError as error:
        if not key:
            raise
        said = error.message
    made = target.work.object(f"refs/tags/{tag}")
    # git 2.39 makes the tag without a signature, and succeeds, where the key cannot be read.
    if key and (made is None or not is_signed(made[2])):
        raise EnvironmentLacks(
            f"git could not sign {tag}: {said or 'no message'}",
            "set signing-key to a key that git can sign with, and gpg.format where it is no GPG's",
        )
    if made is None:
        raise ToolError(f"git made no tag {tag}")
    return made[0]


def push(store: Store, target: Target, tag: str, commit: str, made: str) -> None:
    """Push branch and tag, both or neither, where the repository is still as it was read.

    Args:
        store: Asked again what the repository holds, where it refuses.
        target: The repository.
        tag: The tag's name.
        commit: The branch's new tip.
        made: The tag's id.

    Raises:
        Busy: Another release came first.
        CheckFailed: The repository refuses it; its reason is given.
        Unavailable: It cannot be reached.
    """
    branch = f"refs/heads/{target.branch}"
    done = target.work.run(
        "push", "--porcelain", "--atomic", "--no-verify", "--no-follow-tags",
        f"--force-with-lease={branch}:{target.tip}", f"--force-with-lease=refs/tags/{tag}:",
        "--", target.remote.url, f"{commit}:{branch}", f"{made}:refs/tags/{tag}",
        ok=tuple(range(256)), network=True,
    )  # fmt: skip
    if done.status == 0:
        return
    now = advertised(store, target.remote)
    if now.branches.get(target.branch, "") != target.tip or tag in now.tags:
        raise Busy(
            f"another release into {target.remote.shown} came first: {tag} was not pushed",
            "run the same command again; it looks at what is there now",
        )
    said = (done.stdout + done.stderr).decode("utf-8", "replace").replace(target.remote.url, "")
    if "shallow update not allowed" in said:
        raise BadInput(
            f"{target.remote.shown} lacks the commit of upstream's that {commit[:12]} grows from, "
            "and the store has no history of it to send",
            "push upstream's history there first, or release with --source index",
        )
    rejected = re.search(
        r"^!\t.*\t\[(?:remote )?rejected\] \((?!atomic)(.*)\)$", said, re.MULTILINE
    )
    if rejected:
        raise CheckFailed(f"{target.remote.shown} refuses {tag}: {rejected[1]}")
    lines = [line for line in said.splitlines() if line.startswith(("fatal:", "error:", "remote:"))]
    raise Unavailable(
        f"{target.remote.shown} cannot be pushed to: {lines[0] if lines else 'no message'}",
        "check the network, the URL and your right to push there",
    )


def _ref_of(tag: str) -> str:
    match = TAG.fullmatch(tag)
    return match["ref"] if match else ""


def _wanted(refs: Advertised, ref: str) -> list[str]:
    """Return the tags to read: those of ``ref``, and those of the nearest release before it."""
    marks = [Record(tag, "", "", (), {}, {}, ()) for tag in refs.tags if TAG.fullmatch(tag)]
    own = [mark.tag for mark in marks if _ref_of(mark.tag) == ref]
    before = latest((mark for mark in marks if mark.tag not in own), ref)
    near = _ref_of(before.tag) if before else ""
    return sorted([*own, *(mark.tag for mark in marks if near and _ref_of(mark.tag) == near)])


def _branches(refs: Advertised, ref: str) -> list[str]:
    name = f"{_BRANCH}{ref}"
    return [f"refs/heads/{name}"] if name in refs.branches else []


def _fetch(held: Git, remote: Remote, names: list[str]) -> None:
    if not names:
        return
    # Only commits and tags are looked at; a repository that cannot leave the files out sends them.
    held.run("config", "--local", "remote.target.url", remote.url)
    held.run("config", "--local", "remote.target.promisor", "true")
    held.run("config", "--local", "remote.target.partialCloneFilter", "tree:0")
    try:
        held.run(
            "-c", "fetch.fsckObjects=true",
            "-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60",
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--filter=tree:0",
            "--recurse-submodules=no", "target", *(f"+{name}:{name}" for name in names),
            network=True,
        )  # fmt: skip
    except EnvironmentLacks:
        raise
    except ToolError as error:
        said = error.message.replace(remote.url, remote.shown)
        raise Unavailable(
            f"the git repository {remote.shown} cannot be read: {said}",
            "check the network, the URL and your access to it",
        ) from error


def _records(held: Git, names: list[str], commits: Mapping[str, str]) -> Iterator[Record]:
    for name in names:
        found = held.object(f"refs/tags/{name}")
        if found is None or found[1] != "tag":
            continue  # a light tag is none of ours
        record = parse_record(name, found[2].partition(b"\n\n")[2])
        # What the tag says must be what it names.
        if record is not None and record.carried == commits.get(name):
            yield record


def _foreign(held: Git, tip: str) -> str:
    """Return the newest commit at or before ``tip`` that has another committer than we have."""
    listed = held.run("log", "--topo-order", "--format=%H %cn <%ce>", tip, "--").stdout
    ours = f"{COMMITTER[0]} <{COMMITTER[1]}>"
    for row in listed.decode("utf-8", "replace").splitlines():
        oid, _, committer = row.partition(" ")
        if committer != ours:
            return oid
    return ""
