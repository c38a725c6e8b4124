"""The bot's branch: one commit made beside a person's work, and never over it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.errors import BadInput, Busy, CheckFailed, Unavailable
from tools.maintain.branch import BRANCH, Repository, State, publish, push

Git = Callable[..., str]
FILES = {"patches/0001-a.patch": b"new\n", "patches/0002-b.patch": None}


@pytest.fixture
def root(tmp_path: Path, user_git: Git) -> Path:
    root = tmp_path / "project"
    (root / "patches").mkdir(parents=True)
    user_git(root, "init", "-q", "-b", "main")
    (root / "patches/0001-a.patch").write_text("old\n")
    (root / "patches/0002-b.patch").write_text("b\n")
    (root / "README").write_text("r\n")
    user_git(root, "add", "-A")
    user_git(root, "commit", "-qm", "start")
    return root


def _state(root: Path, user_git: Git) -> tuple[str, str, str, bytes]:
    index = (root / ".git/index").read_bytes()
    status = user_git(root, "--no-optional-locks", "status", "--porcelain=v2", "--branch")
    return status, user_git(root, "stash", "list"), user_git(root, "rev-parse", "HEAD"), index


def test_one_commit_beside_a_persons_work(root: Path, user_git: Git) -> None:
    (root / "README").write_text("changed\n")
    (root / "new.txt").write_text("untracked\n")
    user_git(root, "add", "new.txt")
    before = _state(root, user_git)
    done = publish(Repository.at(root), FILES, "Rebase onto v1.1.0")
    assert (done.state, done.before) == (State.CREATED, "")
    assert _state(root, user_git) == before
    assert user_git(root, "rev-parse", BRANCH).strip() == done.commit
    assert user_git(root, "rev-list", "--count", f"main..{BRANCH}").strip() == "1"
    assert user_git(root, "diff", "--name-status", f"main..{BRANCH}") == (
        "M\tpatches/0001-a.patch\nD\tpatches/0002-b.patch\n"
    )
    assert user_git(root, "show", f"{BRANCH}:patches/0001-a.patch") == "new\n"
    tree = user_git(root, "rev-parse", f"{BRANCH}^{{tree}}").strip()
    message = user_git(root, "log", "-1", "--format=%B", BRANCH).strip()
    assert message == f"Rebase onto v1.1.0\n\nMade-With-Tree: {tree}"
    user_git(root, "fsck", "--strict")


def test_the_same_again_changes_nothing(root: Path, user_git: Git) -> None:
    first = publish(Repository.at(root), FILES, "Rebase")
    again = publish(Repository.at(root), FILES, "Rebase")
    assert (again.commit, again.state) == (first.commit, State.UNCHANGED)
    other = publish(Repository.at(root), {"patches/0001-a.patch": b"newer\n"}, "Rebase")
    assert (other.state, other.before) == (State.UPDATED, first.commit)


def test_a_dry_run_moves_nothing(root: Path, user_git: Git) -> None:
    objects = sorted(p for p in (root / ".git/objects").rglob("*") if p.is_file())
    done = publish(Repository.at(root), FILES, "Rebase", dry_run=True)
    assert done.state is State.CREATED
    assert user_git(root, "branch", "--list", BRANCH) == ""
    assert sorted(p for p in (root / ".git/objects").rglob("*") if p.is_file()) == objects


def _on_bot_branch(root: Path, user_git: Git, *commit: str) -> str:
    user_git(root, "switch", "-q", BRANCH)
    (root / "patches/0001-a.patch").write_text("a person's\n")
    user_git(root, "add", "-A")
    user_git(root, "commit", "-q", *commit)
    found = user_git(root, "rev-parse", "HEAD").strip()
    user_git(root, "switch", "-q", "main")
    return found


@pytest.mark.parametrize(
    "commit",
    [
        ("-m", "mine"),
        ("--amend", "--no-edit"),
        ("--amend", "--no-edit", "--author=vllm-exaone bot <bot@vllm-exaone.invalid>"),
    ],
)
def test_a_persons_commit_is_not_overwritten(
    root: Path, user_git: Git, commit: tuple[str, ...]
) -> None:
    publish(Repository.at(root), FILES, "Rebase")
    theirs = _on_bot_branch(root, user_git, *commit)
    with pytest.raises(CheckFailed, match=f"did not make: {theirs[:12]} ") as raised:
        publish(Repository.at(root), {"patches/0001-a.patch": b"newer\n"}, "Rebase")
    assert "delete the branch" in raised.value.hint
    assert user_git(root, "rev-parse", BRANCH).strip() == theirs


def test_content_edited_under_the_bots_own_name_is_noticed(
    root: Path, user_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(Repository.at(root), FILES, "Rebase")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "vllm-exaone bot")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "bot@vllm-exaone.invalid")
    theirs = _on_bot_branch(root, user_git, "--amend", "--no-edit")
    with pytest.raises(CheckFailed, match=theirs[:12]):
        publish(Repository.at(root), FILES, "Rebase again")


def test_what_was_merged_is_not_in_the_way(root: Path, user_git: Git) -> None:
    publish(Repository.at(root), FILES, "Rebase")
    _on_bot_branch(root, user_git, "-m", "mine")
    user_git(root, "merge", "-q", "--no-edit", BRANCH)
    done = publish(Repository.at(root), {"patches/0003-c.patch": b"c\n"}, "Rebase")
    assert done.state is State.UPDATED


def test_the_branch_that_someone_is_on_is_left_alone(
    root: Path, tmp_path: Path, user_git: Git
) -> None:
    publish(Repository.at(root), FILES, "Rebase")
    user_git(root, "switch", "-q", BRANCH)
    with pytest.raises(BadInput, match="is checked out in"):
        publish(Repository.at(root), {"patches/0001-a.patch": b"x"}, "Rebase")
    user_git(root, "switch", "-q", "main")
    user_git(root, "worktree", "add", "-q", str(tmp_path / "linked"), BRANCH)
    with pytest.raises(BadInput, match="linked"):
        publish(Repository.at(root), {"patches/0001-a.patch": b"x"}, "Rebase")


def test_it_works_from_a_linked_work_tree(root: Path, tmp_path: Path, user_git: Git) -> None:
    linked = tmp_path / "linked"
    user_git(root, "worktree", "add", "-q", "-b", "feature", str(linked))
    user_git(linked, "commit", "-q", "--allow-empty", "-m", "on a feature")
    repository = Repository.at(linked)
    repository.check_clean()
    done = publish(repository, FILES, "Rebase")
    assert done.parent == user_git(linked, "rev-parse", "feature").strip()
    assert user_git(root, "rev-parse", BRANCH).strip() == done.commit
    (linked / "patches/0001-a.patch").write_text("edited\n")
    with pytest.raises(BadInput, match=r"patches/0001-a\.patch is not as HEAD has it"):
        repository.check_clean()


def test_what_a_rebase_starts_from_must_be_committed(root: Path, user_git: Git) -> None:
    repository = Repository.at(root)
    (root / "README").write_text("may change\n")
    repository.check_clean()
    (root / "patches/0009-new.patch").write_text("untracked\n")
    with pytest.raises(BadInput, match=r"patches/0009-new\.patch"):
        repository.check_clean()


def test_a_place_without_a_repository_is_refused(tmp_path: Path, user_git: Git) -> None:
    with pytest.raises(BadInput, match="not the work tree"):
        Repository.at(tmp_path)
    user_git(tmp_path, "init", "-q")
    with pytest.raises(BadInput, match="no commit yet"):
        publish(Repository.at(tmp_path), FILES, "Rebase")


def test_a_run_at_the_same_time_is_noticed(
    root: Path, user_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository.at(root)
    original = type(repository.git).keep

    def meanwhile(git: object, *tips: str) -> None:
        original(git, *tips)  # type: ignore[arg-type]
        user_git(root, "branch", "-f", BRANCH, "main")

    monkeypatch.setattr(type(repository.git), "keep", meanwhile)
    with pytest.raises(Busy, match="moved meanwhile"):
        publish(repository, FILES, "Rebase")
    assert user_git(root, "rev-parse", BRANCH) == user_git(root, "rev-parse", "main")


# A remote -----------------------------------------------------------------------------------------


@pytest.fixture
def remote(root: Path, tmp_path: Path, user_git: Git) -> Path:
    path = tmp_path / "remote.git"
    user_git(tmp_path, "init", "-q", "--bare", "-b", "main", str(path))
    user_git(root, "remote", "add", "origin", str(path))
    user_git(root, "push", "-q", "origin", "main")
    return path


def test_the_branch_is_pushed_and_brought_up_to_date(
    root: Path, remote: Path, user_git: Git
) -> None:
    repository = Repository.at(root)
    publish(repository, FILES, "Rebase")
    assert push(repository, "origin") is State.CREATED
    assert push(repository, "origin") is State.UNCHANGED
    user_git(root, "commit", "-q", "--allow-empty", "-m", "main goes on")
    done = publish(repository, FILES, "Rebase")
    assert push(repository, str(remote)) is State.UPDATED
    assert user_git(remote, "rev-parse", BRANCH).strip() == done.commit


@pytest.mark.parametrize("fetched", [True, False])
def test_a_persons_commit_on_the_remote_is_not_overwritten(
    root: Path, remote: Path, tmp_path: Path, user_git: Git, fetched: bool
) -> None:
    """As one is made in the web page of a pull request, or pushed from another clone."""
    repository = Repository.at(root)
    publish(repository, FILES, "Rebase")
    push(repository, "origin")
    other = tmp_path / "other"
    user_git(tmp_path, "clone", "-q", str(remote), str(other))
    user_git(other, "switch", "-q", BRANCH)
    theirs = _on_bot_branch(other, user_git, "-m", "a review fix")
    user_git(other, "push", "-q", "origin", BRANCH)
    user_git(root, "branch", "-D", BRANCH)  # a fresh clone has no such branch of its own
    if fetched:
        user_git(root, "fetch", "-q")
        with pytest.raises(CheckFailed, match=f"{theirs[:12]} a review fix"):
            publish(repository, {"patches/0001-a.patch": b"newer\n"}, "Rebase")
    else:
        publish(repository, {"patches/0001-a.patch": b"newer\n"}, "Rebase")
        with pytest.raises(CheckFailed, match=f"{theirs[:12]} a review fix"):
            push(repository, "origin")
    assert user_git(remote, "rev-parse", BRANCH).strip() == theirs


def test_a_push_in_between_is_noticed(
    root: Path, remote: Path, user_git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository.at(root)
    publish(repository, FILES, "Rebase")
    monkeypatch.setattr("tools.maintain.branch._there", lambda *_: "")
    push(repository, "origin")
    publish(repository, {"patches/0001-a.patch": b"newer\n"}, "Rebase")
    with pytest.raises(Busy, match="moved on origin meanwhile"):
        push(repository, "origin")


@pytest.mark.parametrize("name", ["--upload-pack=x", "ext::sh -c x", "-f", "../elsewhere"])
def test_a_hostile_remote_is_refused(root: Path, name: str) -> None:
    publish(Repository.at(root), FILES, "Rebase")
    with pytest.raises(BadInput, match="not a git URL"):
        push(Repository.at(root), name)


def test_an_unreachable_remote_is_told_in_one_line(root: Path) -> None:
    publish(Repository.at(root), FILES, "Rebase")
    with pytest.raises(Unavailable, match="git ls-remote"):
        push(Repository.at(root), str(root.parent / "none.git"))


def test_options_reach_the_server_and_its_refusal_reaches_us(
    root: Path, remote: Path, user_git: Git
) -> None:
    """GitLab opens a merge request for one."""
    hook = remote / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\necho "$GIT_PUSH_OPTION_0" > "$PWD/seen"\n')
    hook.chmod(0o755)
    user_git(remote, "config", "receive.advertisePushOptions", "true")
    publish(Repository.at(root), FILES, "Rebase")
    push(Repository.at(root), "origin", ("merge_request.create",))
    assert (remote / "seen").read_text() == "merge_request.create\n"
    hook.write_text("#!/bin/sh\nexit 1\n")
    publish(Repository.at(root), {"patches/0001-a.patch": b"newer\n"}, "Rebase")
    with pytest.raises(Unavailable, match=r"does not take bot/rebase: .*hook declined"):
        push(Repository.at(root), "origin")


def test_a_kill_before_the_branch_moves_leaves_it(root: Path, user_git: Git) -> None:
    script = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from tools.git import Git\n"
        "from tools.maintain.branch import Repository, publish\n"
        "Git.update_ref = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"publish(Repository.at(Path({str(root)!r})), {FILES!r}, 'Rebase')\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    assert killed.returncode == -9
    assert user_git(root, "branch", "--list", BRANCH) == ""
    user_git(root, "fsck", "--strict")
    assert publish(Repository.at(root), FILES, "Rebase").state is State.CREATED
