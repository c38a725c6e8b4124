"""What makes a matrix fast changes no result and leaves nothing in the store."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.carry.conftest import Workshop
from tests.unit.carry.test_carry_export import FILES, KINDS
from tools.carry import Carrier, Outcome, ladder
from tools.carry.chain import WRITTEN_REFS
from tools.carry.written import synthetic_commit
from tools.git import Git
from tools.maintain import run_matrix

MATRIX_RUNS = 5


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_merge_the_tree_is_what_a_merge_gives(workshop: Workshop, kind: str) -> None:
    files = FILES | {f"final{n}.txt": b"one\ntwo\nthree" + b"\n" * n for n in (0, 1)}
    workshop.release("v1.0.0", files)
    later = workshop.release("v2.0.0", files | {"new.txt": b"x\n", "docs/deep/er.txt": b"y\n"})
    patch = workshop.patch("0001-x", "v1.0.0", KINDS[kind])
    with workshop.git.quarantined() as git:
        written = workshop.carrier(patch).written(git, patch)
        made = ladder._file_by_file(git, written, later.tree)
        ours = synthetic_commit(git, later.tree, written.base)
        merged = git.merge_trees(ours, written.patched)
    assert not merged.stages
    assert made == merged.tree


@pytest.mark.parametrize(
    "other",
    [
        {"docs/text.txt": b"changed\n"},
        {"docs/text.txt": None},
        {"neu": b"a file where the patch makes a directory\n"},
        {"neu/leer/deep.txt": b"a directory where the patch makes a file\n"},
        {"neu/leer": b"there already\n"},
    ],
)
def test_what_upstream_changed_is_merged(
    workshop: Workshop, other: dict[str, bytes | None]
) -> None:
    def change(work: Path) -> None:
        KINDS["text"](work)
        KINDS["create"](work)

    workshop.release("v1.0.0", FILES)
    files = {path: content for path, content in (FILES | other).items() if content is not None}
    later = workshop.release("v2.0.0", files)
    patch = workshop.patch("0001-x", "v1.0.0", change)
    with workshop.git.quarantined() as git:
        written = workshop.carrier(patch).written(git, patch)
        assert ladder._file_by_file(git, written, later.tree) is None


LINES = b"".join(b"line %d\n" % n for n in range(30))


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("final", [True, False], ids=["newline", "no newline"])
def test_lines_merge_as_git_merges_them(workshop: Workshop, ending: bytes, final: bool) -> None:
    def form(text: bytes) -> bytes:
        made = text.replace(b"\n", ending)
        return made if final else made.removesuffix(ending)

    base, path = form(LINES), "docs/text.txt"
    workshop.release("v1.0.0", FILES | {path: base})
    moved = form(b"new\n" + LINES.replace(b"line 8\n", b"").replace(b"line 25\n", b"25\n25\n"))
    later = workshop.release("v2.0.0", FILES | {path: moved})

    def change(work: Path) -> None:
        (work / path).write_bytes(base.replace(b"line 15", b"fifteen").replace(b"line 2\r", b"2\r"))

    patch = workshop.patch("0001-x", "v1.0.0", change)
    with workshop.git.quarantined() as git:
        written = workshop.carrier(patch).written(git, patch)
        made = ladder._file_by_file(git, written, later.tree)
        merged = git.merge_trees(synthetic_commit(git, later.tree, written.base), written.patched)
    assert not merged.stages
    assert made == merged.tree != later.tree


@pytest.mark.parametrize("kind", ["mode", "binary", "symlink"])
def test_what_is_no_merge_of_lines_is_left_to_git(workshop: Workshop, kind: str) -> None:
    path = "docs/text.txt"
    end = b"\0" if kind == "binary" else b""
    workshop.release("v1.0.0", FILES | {path: LINES + end})
    later = workshop.release("v2.0.0", FILES | {path: b"new\n" + LINES + end})

    def change(work: Path) -> None:
        file = work / path
        if kind == "mode":
            file.chmod(0o755)
        elif kind == "binary":
            file.write_bytes(LINES.replace(b"line 15", b"fifteen") + end)
        else:
            file.unlink()
            file.symlink_to("elsewhere")

    patch = workshop.patch("0001-x", "v1.0.0", change)
    with workshop.git.quarantined() as git:
        written = workshop.carrier(patch).written(git, patch)
        assert ladder._file_by_file(git, written, later.tree) is None


def test_changes_are_those_of_git(workshop: Workshop) -> None:
    one = workshop.release("v1.0.0", FILES | {"a/b": b"1", "a.c": b"2", "d": b"3", "e/f/g": b"4"})
    two = workshop.release("v2.0.0", {**FILES, "a": b"1", "d/x": b"3", "e/f/h": b"4"})
    for old, new in ((one, two), (two, one)):
        listed = workshop.git.run(
            "diff-tree", "-r", "-z", "--name-only", "--no-renames", old.tree, new.tree
        ).stdout
        assert [c.path for c in workshop.git.changes(old.tree, new.tree)] == (
            listed.split(b"\0")[:-1]
        )


def _size(git: Git) -> tuple[int, int]:
    files = [file for file in git.directory.rglob("*") if file.is_file()]
    return len(files), sum(file.stat().st_size for file in files)


def test_many_matrix_runs_leave_the_store_as_one(workshop: Workshop, tmp_path: Path) -> None:
    upstreams = [
        workshop.release(f"v{n}.0.0", FILES | {"docs/text.txt": b"%d\n" % n * 40})
        for n in (1, 2, 3)
    ]
    patch = workshop.patch("0001-x", "v1.0.0", KINDS["latin"])

    def opener() -> Carrier:
        return workshop.carrier(patch)

    def run() -> None:
        done = run_matrix(opener, upstreams, tmp_path / "none.toml", jobs=1)
        assert [cell.outcome.outcome for cell in done.cells["0001-x"]] == [Outcome.CLEAN] * 3

    run()
    once = _size(workshop.git)
    for _ in range(MATRIX_RUNS):
        run()
    assert _size(workshop.git) == once


def test_a_carry_of_many_refs_is_the_carry_of_each(workshop: Workshop) -> None:
    upstreams = [
        workshop.release(f"v{n}.0.0", FILES | {"docs/new.txt": b"%d\n" % n}) for n in (1, 2, 3)
    ]
    patch = workshop.patch("0001-x", "v1.0.0", KINDS["rename"])
    together = list(workshop.carrier(patch).carry_each(upstreams))
    shutil.rmtree(workshop.git.directory / "refs/written")
    apart = [workshop.carrier(patch).carry(upstream) for upstream in upstreams]
    assert together == apart


def test_written_patches_that_the_series_no_longer_has_are_forgotten(workshop: Workshop) -> None:
    upstream = workshop.release("v1.0.0", {"m.py": b"a = 1\nb = 2\nc = 3\n"})

    def to(text: bytes) -> Callable[[Path], object]:
        return lambda work: (work / "m.py").write_bytes(text)

    first = workshop.patch("0001-a", "v1.0.0", to(b"a = 9\nb = 2\nc = 3\n"))
    workshop.carrier(first).carry(upstream)
    old = set(workshop.git.refs(WRITTEN_REFS))
    second = workshop.patch("0002-a", "v1.0.0", to(b"a = 8\nb = 2\nc = 3\n"))
    carrier = workshop.carrier(second)
    carried = carrier.carry(upstream)
    assert carrier.expire() == len(old) == 1
    kept = set(workshop.git.refs(WRITTEN_REFS))
    assert len(kept) == 1
    assert not kept & old
    assert carrier.expire() == 0
    assert workshop.carrier(second).carry(upstream) == carried
