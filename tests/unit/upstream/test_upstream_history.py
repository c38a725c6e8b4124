"""What a git source offers, and the commits between two refs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tools.errors import BadInput, Unavailable
from tools.settings import Settings
from tools.upstream import Store, obtain
from tools.upstream.history import Logged, history, offered, remote_of

UserGit = Callable[..., str]
SUBJECTS = ("one (#1)", "two", "three (#22)", "four ü (#333) again")


@pytest.fixture
def upstream_git(tmp_path: Path, user_git: UserGit) -> Path:
    """A repository whose release v1.1.0 stands on a branch of its own, off v1.0.0's line."""
    path = tmp_path / "upstream"
    path.mkdir()
    user_git(path, "init", "-q", "-b", "main")
    for number, subject in enumerate(SUBJECTS):
        (path / "file").write_text(f"{number}\n")
        user_git(path, "add", "-A")
        user_git(path, "commit", "-qm", f"{subject}\n\nbody")
        if subject.startswith("two"):
            user_git(path, "checkout", "-qb", "releases/v1.0")
            user_git(path, "commit", "-qm", "picked (#9)", "--allow-empty")
            user_git(path, "tag", "-am", "v1.0.0", "v1.0.0")
            user_git(path, "checkout", "-q", "main")
    user_git(path, "tag", "v1.1.0")
    user_git(path, "tag", "v1.2.0rc1")
    user_git(path, "tag", "nightly")
    return path


@pytest.fixture
def store(settings: Settings, upstream_git: Path) -> Any:
    with Store.open(replace(settings, git_url=str(upstream_git))) as opened:
        yield opened


def commit(user_git: UserGit, path: Path, ref: str) -> str:
    return user_git(path, "rev-parse", f"{ref}^{{commit}}").strip()


def test_a_history_starts_where_the_two_part(
    store: Store, upstream_git: Path, user_git: UserGit
) -> None:
    ids = [commit(user_git, upstream_git, ref) for ref in ("v1.0.0", "v1.1.0")]
    remote = remote_of(store, "git")
    assert remote is not None
    # A commit that the store holds without its parents must not hide them.
    obtain(store, "v1.1.0", "git")
    found = history(store, remote, ids[0], ids[1], lambda _line: None)
    assert found.parted.subject == "two"
    assert [logged.subject for logged in found.commits] == list(SUBJECTS[2:])
    assert found.commits[-1].commit == ids[1]
    assert [logged.pull_request for logged in found.commits] == [22, None]
    assert list((store.settings.cache / "incoming").iterdir()) == []


def test_a_history_from_an_ancestor_has_it_at_its_start(
    store: Store, upstream_git: Path, user_git: UserGit
) -> None:
    first, last = (commit(user_git, upstream_git, ref) for ref in ("main~3", "main"))
    remote = remote_of(store, str(upstream_git))
    assert remote is not None
    found = history(store, remote, first, last, lambda _line: None)
    assert found.parted == Logged(first, 1_700_000_000, "one (#1)")
    assert found.parted.pull_request == 1
    assert len(found.commits) == 3


def test_what_has_no_history_is_told(store: Store, upstream_git: Path, user_git: UserGit) -> None:
    remote = remote_of(store, "git")
    assert remote is not None
    last = commit(user_git, upstream_git, "main")
    with pytest.raises(Unavailable, match="no commit 0000"):
        history(store, remote, "0" * 40, last, lambda _line: None)
    user_git(upstream_git, "checkout", "-q", "--orphan", "apart")
    user_git(upstream_git, "commit", "-qm", "apart")
    apart = commit(user_git, upstream_git, "apart")
    with pytest.raises(BadInput, match="no ancestor in common"):
        history(store, remote, apart, last, lambda _line: None)


def test_git_offers_tags_in_order_and_the_branches_asked_for(
    store: Store, upstream_git: Path, user_git: UserGit
) -> None:
    names = [row.ref.name for row in offered(store, "git")]
    assert names == ["v1.0.0", "v1.1.0"]
    rows = offered(store, str(upstream_git), ["main"], prereleases=True)
    assert [row.ref.name for row in rows] == ["v1.0.0", "v1.1.0", "v1.2.0rc1", "main"]
    assert rows[-1].commit == commit(user_git, upstream_git, "main")
    assert rows[0].commit == commit(user_git, upstream_git, "v1.0.0"), "not the tag's own id"
    with pytest.raises(Unavailable, match="no branch mian"):
        offered(store, "git", ["mian"])


def test_auto_offers_the_index_and_from_git_what_that_cannot_have(
    store: Store, index: Any, make_sdist: Callable[..., bytes], make_wheel: Callable[..., bytes]
) -> None:
    index.files["vllm-1.0.0.tar.gz"] = make_sdist("1.0.0", {})
    index.files["vllm-1.0.5-py3-none-any.whl"] = make_wheel("1.0.5", {})
    assert [row.ref.name for row in offered(store, "auto")] == ["v1.0.0"]
    rows = offered(store, "auto", ["main"], prereleases=True)
    assert [(row.ref.name, row.source) for row in rows] == [
        ("v1.0.0", "auto"), ("v1.1.0", "git"), ("v1.2.0rc1", "git"), ("main", "git"),
    ]  # fmt: skip
    with pytest.raises(BadInput, match="releases only"):
        offered(store, "index", ["main"])


def test_what_offers_nothing_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"")
    with pytest.raises(BadInput, match="offers no refs"):
        offered(store, str(tmp_path / "x.tar.gz"))
    with pytest.raises(BadInput, match="does not exist"):
        offered(store, str(tmp_path / "nowhere"))
