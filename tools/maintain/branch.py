"""The bot's branch in the project's own repository: one commit, and nothing of a person's lost.

The commit is made on git objects: the work tree, the index and the branch that is checked out stay
as they are. It says of itself which tree it was made with, so that a commit that someone amended,
or put on top, is told apart from what these tools made; such a branch is not overwritten.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tools.errors import BadInput, Busy, CheckFailed, ToolError, Unavailable
from tools.git import REGULAR, Commit, Entry, Git, Person, Result
from tools.upstream.remote import Remote

BRANCH = "bot/rebase"
AUTHOR = ("vllm-exaone bot", "bot@vllm-exaone.invalid")
_OURS = ("patches", "vllm_exaone")  # what a rebase starts from
_SEAL = re.compile(r"^Made-With-Tree: ([0-9a-f]{40})$", re.MULTILINE)
_COMMITTER = re.compile(rb"^committer (.*) <(.*)> (\d+) [+-]\d{4}$", re.MULTILINE)
_REMOTE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_FULL = re.compile(r"[0-9a-f]{40}")


class State(StrEnum):
    """What happened to the branch."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Repository:
    """The project's repository.

    Args:
        root: Its work tree.
        git: Where its objects and branches are.
        here: The git directory of this work tree; another one in a linked work tree.
    """

    root: Path
    git: Git
    here: Git

    @classmethod
    def at(cls, root: Path) -> "Repository":
        """Return the repository whose work tree is ``root``.

        Raises:
            BadInput: It is none.
        """
        place = root / ".git"
        if place.is_file():  # a linked work tree
            place = root / place.read_text("utf-8").removeprefix("gitdir:").strip()
        common = place
        if (place / "commondir").is_file():
            common = place / (place / "commondir").read_text("utf-8").strip()
        if not (common / "objects").is_dir():
            raise BadInput(f"{root} is not the work tree of a git repository", "clone the project")
        return cls(root, Git(common.resolve()), Git(place.resolve()))

    def head(self) -> str:
        """Return the commit that is checked out.

        Raises:
            BadInput: There is none yet.
        """
        found = self.here.resolve("HEAD^{commit}")
        if found is None:
            raise BadInput(f"{self.root} has no commit yet", "commit the project first")
        return found

    def check_clean(self) -> None:
        """Refuse where what a rebase starts from is not what ``HEAD`` has.

        Raises:
            BadInput: The message names a file.
        """
        # -C: the names are those of the work tree, from where ``status`` looks.
        status = self.here.run(
            "-C", str(self.root), "status", "--porcelain", "-z", "--untracked-files=all", "--",
            *_OURS, environment={"GIT_WORK_TREE": str(self.root)},
        ).stdout  # fmt: skip
        if status:
            name = status.split(b"\0")[0][3:].decode("utf-8", "replace")
            raise BadInput(f"{name} is not as HEAD has it", "commit it first, or use --dry-run")


@dataclass(frozen=True)
class Published:
    """The commit on the bot's branch, and what the branch held before ("" for nothing)."""

    commit: str
    parent: str
    before: str
    state: State


def publish(
    repository: Repository,
    files: Mapping[str, bytes | None],
    message: str,
    *,
    dry_run: bool = False,
) -> Published:
    """Make the bot's branch one commit on ``HEAD``.

    The same files on the same commit give the same commit, whenever that is.

    Args:
        repository: The project's repository.
        files: By path from its root; None is removed.
        message: The commit's message.
        dry_run: Say what would happen, but move nothing.

    Raises:
        BadInput: The branch is checked out somewhere.
        Busy: Another run moved the branch meanwhile.
        CheckFailed: The branch holds a commit of a person's.
    """
    git, parent = repository.git, repository.head()
    name = f"refs/heads/{BRANCH}"
    before = git.refs(name).get(name, "")
    _check_checked_out(git, name)
    for tip in {before, *_tracked(git).values()} - {""}:
        check_ours(git, tip, parent)
    with git.quarantined() as inner:
        edits = {
            path.encode(): Entry(path.encode(), REGULAR, inner.write_blob(content))
            if content is not None
            else None
            for path, content in files.items()
        }
        tree = inner.edit_tree(parent, edits)
        when = _when(inner, parent)
        text = f"{message.rstrip()}\n\nMade-With-Tree: {tree}\n"
        person = Person(*AUTHOR, when)
        commit = inner.write_commit(Commit(tree, (parent,), person, person, text.encode()))
        if not dry_run and commit != before:
            inner.keep(commit)
            try:
                git.update_ref(name, commit, before)
            except ToolError as error:
                raise Busy(f"{BRANCH} moved meanwhile: {error.message}", "run it again") from error
    if commit == before:
        return Published(commit, parent, before, State.UNCHANGED)
    return Published(commit, parent, before, State.UPDATED if before else State.CREATED)


def push(repository: Repository, remote: str, options: tuple[str, ...] = ()) -> State:
    """Push the bot's branch, where the remote's holds nothing of a person's.

    Args:
        repository: The project's repository.
        remote: Its name in the repository, such as ``origin``, or a URL.
        options: Passed to the remote (``git push --push-option``).

    Raises:
        BadInput: The remote is malformed.
        Busy: The remote's branch moved meanwhile.
        CheckFailed: The remote's branch holds a commit of a person's.
        Unavailable: The remote cannot be reached, or refuses.
    """
    shown = shown_remote(remote)
    git = repository.git
    name = f"refs/heads/{BRANCH}"
    wanted = git.resolve(name) or ""
    there = _there(git, remote, name)
    if there == wanted:
        return State.UNCHANGED
    if there:
        if git.resolve(f"{there}^{{commit}}") is None:
            _ask(git, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", remote, name)
        check_ours(git, there, repository.head())
    # No `+` before the refspec: that would overrule the lease.
    done = _ask(
        git, "push", "--porcelain", "--no-verify", f"--force-with-lease={name}:{there}",
        *(f"--push-option={option}" for option in options), remote, f"{wanted}:{name}",
        ok=(0, 1),
    )  # fmt: skip
    if done.status:
        refused = re.search(r"^!\t.*\t(.*)$", done.stdout.decode("utf-8", "replace"), re.MULTILINE)
        why = refused[1] if refused else "no reason given"
        if "stale info" in why:
            raise Busy(f"{BRANCH} moved on {shown} meanwhile", "run it again")
        raise Unavailable(f"{shown} does not take {BRANCH}: {why}", "see that you may push to it")
    return State.UPDATED if there else State.CREATED


def shown_remote(remote: str) -> str:
    """Return a remote's name, or its URL without credentials.

    Raises:
        BadInput: It is neither.
    """
    return remote if _REMOTE.fullmatch(remote) else Remote.at(remote).shown


def check_ours(git: Git, tip: str, head: str) -> None:
    """Refuse where a commit of a person's is on the bot's branch, which would be lost.

    Args:
        git: The repository.
        tip: Where the branch stands.
        head: What is on the project's branch is not lost.

    Raises:
        CheckFailed: The message names the commit.
    """
    listed = git.run("rev-list", tip, f"^{head}", "--").stdout
    for commit in listed.decode().split():
        if not _is_ours(git, commit):
            found = git.object(commit)
            subject = found[2].partition(b"\n\n")[2].split(b"\n")[0] if found else b""
            shown = subject.decode("utf-8", "replace")
            raise CheckFailed(
                f"{BRANCH} has a commit that these tools did not make: {commit[:12]} {shown}",
                "merge the branch, or move the commit elsewhere and delete the branch",
            )


def _is_ours(git: Git, commit: str) -> bool:
    found = git.object(commit)
    if found is None:
        return False
    head, _, message = found[2].partition(b"\n\n")
    who = _COMMITTER.search(head)
    seal = _SEAL.findall(message.decode("utf-8", "replace"))
    if who is None or (who[1].decode(), who[2].decode()) != AUTHOR:
        return False
    return seal[-1:] == [git.tree_of(commit)]


def _tracked(git: Git) -> dict[str, str]:
    """Return what the repository knows of the bot's branch elsewhere."""
    tail = f"/{BRANCH}"
    return {name: tip for name, tip in git.refs("refs/remotes/").items() if name.endswith(tail)}


def _check_checked_out(git: Git, name: str) -> None:
    where = git.run("for-each-ref", "--format=%(worktreepath)", "--", name).stdout.decode().strip()
    if where:
        raise BadInput(f"{BRANCH} is checked out in {where}", "switch to another branch there")


def _when(git: Git, commit: str) -> int:
    found = git.object(commit)
    who = _COMMITTER.search(found[2]) if found else None
    return int(who[3]) if who else 0


def _there(git: Git, remote: str, name: str) -> str:
    """Return where the remote's branch stands, "" where there is none."""
    listed = _ask(git, "ls-remote", "--", remote, name).stdout.decode("utf-8", "replace")
    rows = (row.split("\t") for row in listed.splitlines())
    found = [oid for oid, ref in rows if ref == name and _FULL.fullmatch(oid)]
    return found[0] if found else ""


def _ask(git: Git, *arguments: str, ok: tuple[int, ...] = (0,)) -> Result:
    try:
        return git.run(*arguments, ok=ok, network=True)
    except ToolError as error:
        if type(error) is not ToolError:
            raise
        raise Unavailable(error.message, "check the remote, and that you may push to it") from error
