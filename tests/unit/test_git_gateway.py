"""The gateway to git: objects in and out, whatever the user's settings are."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tools
from tools import git as gateway
from tools.errors import BadInput, EnvironmentLacks, ToolError
from tools.git import (
    DIRECTORY,
    EXECUTABLE,
    REGULAR,
    Commit,
    Entry,
    Git,
    GitTree,
    Person,
    guarded_directory,
    import_files,
    remove_abandoned,
)

UserGit = Callable[..., str]
AUTHOR = Person("A", "a@invalid", 1_700_000_000, "+0900")


@pytest.fixture
def store(tmp_path: Path) -> Git:
    return Git.create(tmp_path / "store.git")


def commit_of(git: Git, files: dict[bytes, bytes], *parents: str) -> str:
    tree = git.edit_tree(
        git.write_tree({}), {p: Entry(p, REGULAR, git.write_blob(c)) for p, c in files.items()}
    )
    return git.write_commit(Commit(tree, parents, AUTHOR, AUTHOR, b"message\n"))


NAMES = st.binary(min_size=1, max_size=6).filter(
    lambda n: b"/" not in n and b"\0" not in n and n not in (b".", b"..", b".git")
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.dictionaries(NAMES, st.binary(max_size=40), min_size=1, max_size=5))
def test_bytes_come_out_as_they_went_in(store: Git, files: dict[bytes, bytes]) -> None:
    commit = commit_of(store, {b"d/" + name: content for name, content in files.items()})
    for name, content in files.items():
        entry = store.entry(commit, b"d/" + name)
        assert entry is not None
        assert store.read_blob(entry.oid) == content
    listed = {e.path: store.read_blob(e.oid) for e in store.listing(commit)}
    assert listed == {b"d/" + name: content for name, content in files.items()}


def test_git_itself_finds_nothing_wrong(store: Git, user_git: UserGit) -> None:
    commit = commit_of(store, {b"a": b"1", b"a.b": b"2", b"a-/x": b"3", b"z/\xff\n": b""})
    store.update_ref("refs/heads/main", commit)
    user_git(store.directory, "fsck", "--strict", "--no-dangling")


def test_edits_add_replace_and_remove_and_drop_empty_directories(store: Git) -> None:
    commit = commit_of(store, {b"a/b/c": b"1", b"a/d": b"2", b"e": b"3"})
    blob = store.write_blob(b"4")
    tree = store.edit_tree(
        commit,
        {
            b"a/b/c": None,
            b"e": Entry(b"e", EXECUTABLE, blob),
            b"n/m": Entry(b"n/m", REGULAR, blob),
            b"absent": None,
        },
    )
    assert [(e.path, e.mode) for e in store.listing(tree)] == [
        (b"a/d", REGULAR),
        (b"e", EXECUTABLE),
        (b"n/m", REGULAR),
    ]
    assert [c.path for c in store.changes(commit, tree)] == [b"a/b/c", b"e", b"n/m"]
    children = store.children(tree, b"a")
    assert children is not None
    assert set(children) == {b"d"}
    assert store.children(tree, b"a/b") is None
    assert store.entry(tree, b"a") is None
    root = store.children(tree)
    assert root is not None
    assert root[b"a"].mode == DIRECTORY


def test_a_tree_shows_regular_files_only(store: Git) -> None:
    blob = store.write_blob(b"text")
    tree = store.edit_tree(
        store.write_tree({}),
        {
            b"vllm/a.py": Entry(b"vllm/a.py", REGULAR, blob),
            b"vllm/link": Entry(b"vllm/link", gateway.SYMLINK, blob),
            b"x": Entry(b"x", EXECUTABLE, blob),
        },
    )
    view = GitTree(store, tree)
    assert list(view.paths()) == ["vllm/a.py", "x"]
    assert list(view.paths("vllm/")) == ["vllm/a.py"]
    assert view.read("vllm/a.py") == b"text"
    assert view.read("vllm/link") is None
    assert view.read("vllm") is None


def test_merge_keeps_both_sides_or_names_the_stages(store: Git) -> None:
    base = commit_of(store, {b"f": b"1\n2\n3\n4\n5\n6\n"})
    ours = commit_of(store, {b"f": b"one\n2\n3\n4\n5\n6\n"}, base)
    theirs = commit_of(store, {b"f": b"1\n2\n3\n4\n5\nsix\n"}, base)
    merged = store.merge_trees(ours, theirs)
    entry = store.entry(merged.tree, b"f")
    assert entry is not None
    assert store.read_blob(entry.oid) == b"one\n2\n3\n4\n5\nsix\n"
    assert merged.stages == ()
    clash = commit_of(store, {b"f": b"uno\n2\n3\n4\n5\n6\n"}, base)
    assert [(s.path, s.number) for s in store.merge_trees(ours, clash).stages] == [
        (b"f", 1),
        (b"f", 2),
        (b"f", 3),
    ]


def test_user_settings_change_no_merge(
    store: Git, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traps of the user's attributes file and of GIT_* variables."""
    base = commit_of(store, {b"f": b"1\n"})
    ours = commit_of(store, {b"f": b"2\n"}, base)
    theirs = commit_of(store, {b"f": b"3\n"}, base)
    expected = store.merge_trees(ours, theirs)
    assert expected.stages
    (hermetic / ".config" / "git").mkdir(parents=True)
    (hermetic / ".config" / "git" / "attributes").write_text("* merge=union\n")
    (hermetic / ".gitconfig").write_text(
        "[merge]\nconflictStyle = diff3\nrenameLimit = 1\n[i18n]\ncommitEncoding = latin1\n"
    )
    monkeypatch.delenv("GIT_CONFIG_NOSYSTEM")
    for name, value in {
        "GIT_DIR": "/nonexistent",
        "GIT_INDEX_FILE": "/nonexistent/index",
        "GIT_OBJECT_DIRECTORY": "/nonexistent/objects",
        "GIT_CONFIG_PARAMETERS": "'merge.conflictstyle'='diff3'",
        "LC_ALL": "ko_KR.UTF-8",
        "TZ": "Asia/Seoul",
    }.items():
        monkeypatch.setenv(name, value)
    assert store.merge_trees(ours, theirs) == expected
    assert os.environ["GIT_DIR"] == "/nonexistent", "the caller's environment is the caller's"


def test_network_commands_find_the_users_settings_and_others_do_not(
    store: Git, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hermetic / ".gitconfig").write_text("[credential]\nhelper = mine\n")
    asked = ("config", "--get", "credential.helper")
    assert store.run(*asked, ok=(1,)).stdout == b""
    assert store.run(*asked, network=True).stdout == b"mine\n"
    pinned = store.run("config", "--get", "protocol.ext.allow", network=True)
    assert pinned.stdout == b"never\n"


def test_import_files_equals_what_objects_make(store: Git) -> None:
    files = {b"a b/\xc3\xa9": b"1\r\n", b'q"\\': b"", b"run": b"#!/bin/sh"}
    made = import_files(
        store,
        "refs/upstream/x",
        [(p, p == b"run", c) for p, c in files.items()],
        AUTHOR,
        b"subject\n",
    )
    tree = store.edit_tree(
        store.write_tree({}),
        {
            p: Entry(p, EXECUTABLE if p == b"run" else REGULAR, store.write_blob(c))
            for p, c in files.items()
        },
    )
    assert made == store.write_commit(Commit(tree, (), AUTHOR, AUTHOR, b"subject\n"))
    assert store.refs("refs/upstream/") == {"refs/upstream/x": made}


def test_quarantined_objects_vanish_unless_kept(store: Git) -> None:
    with store.quarantined() as inner:
        lost = commit_of(inner, {b"a": b"lost"})
        assert inner.resolve(lost) == lost
        assert store.resolve(lost) is None
    assert store.resolve(lost) is None
    with store.quarantined() as inner:
        kept = commit_of(inner, {b"a": b"kept"})
        commit_of(inner, {b"a": b"not asked for"})
        inner.keep(kept)
    assert store.resolve(kept) == kept
    assert [e.path for e in store.listing(kept)] == [b"a"]
    assert list((store.directory / gateway.QUARANTINE).iterdir()) == []


def test_a_ref_moves_only_from_where_it_is_expected(store: Git) -> None:
    first, second = (commit_of(store, {b"a": c}) for c in (b"1", b"2"))
    store.update_ref("refs/x/y", first, old="")
    with pytest.raises(ToolError):
        store.update_ref("refs/x/y", second, old=second)
    with pytest.raises(ToolError):
        store.update_ref("refs/x/y", second, old="")
    store.update_ref("refs/x/y", second, old=first)
    assert store.refs("refs/x/") == {"refs/x/y": second}
    store.delete_refs(["refs/x/y"])
    assert store.refs("refs/x/") == {}


@pytest.mark.parametrize("age", [0, 100])
def test_the_lock_of_a_killed_git_stops_no_one(store: Git, age: int) -> None:
    first = commit_of(store, {b"a": b"1"})
    lock = store.directory / "refs" / "x" / "y.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (time.time() - age,) * 2)
    store.update_ref("refs/x/y", first)
    assert store.refs("refs/x/") == {"refs/x/y": first}


def test_only_abandoned_directories_are_removed(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    code = (
        "import sys, time; from pathlib import Path; from tools.git import guarded_directory\n"
        "with guarded_directory(Path(sys.argv[1])) as path:\n"
        "    (path / 'ab').mkdir(); print(path.name, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(parent)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(tools.__file__).parent.parent,
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        long_ago = (time.time() - 100,) * 2
        os.utime(parent / name, long_ago)
        assert remove_abandoned(parent) == ()
        process.kill()
        process.wait()
        os.utime(parent / name, long_ago)
        assert remove_abandoned(parent) == (name,)
    assert list(parent.iterdir()) == []
    with guarded_directory(parent) as fresh:
        assert remove_abandoned(parent) == ()
        assert fresh.is_dir()
    assert remove_abandoned(tmp_path / "absent") == ()


def test_a_damaged_object_is_named_with_what_to_do(store: Git) -> None:
    oid = store.write_blob(b"x" * 1000)
    other = store.write_blob(b"other")
    file = store.directory / "objects" / oid[:2] / oid[2:]
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ToolError) as caught:
        store.read_blob(oid)
    assert "damaged" in caught.value.message or "lacks" in caught.value.message
    assert store.read_blob(other) == b"other", "the reader starts again"


def test_what_fails_is_one_line(store: Git, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        store.run("-c", "core.x=1", "ls-tree", "nothing")
    assert caught.value.message.startswith("git ls-tree: fatal:")
    with pytest.raises(ToolError, match="lacks the revision"):
        store.tree_of("refs/heads/none")
    with pytest.raises(BadInput):
        store.object("a\nb")
    file = tmp_path / "file"
    file.touch()
    with (
        pytest.raises(EnvironmentLacks, match="cannot write"),
        guarded_directory(file / "below"),
    ):
        pass


def test_names_of_people_cannot_add_headers() -> None:
    assert Person("A <b>\nparent x", "e\0@x", 1).line() == b"A bparent x <e@x> 1 +0000"
