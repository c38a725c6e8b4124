"""A conflict is laid out, solved by a person, written back, and never solved again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.carry.conftest import Workshop
from tools.carry import Carrier, DoesNotFit, Outcome, read_resolutions
from tools.errors import BadInput, CheckFailed
from tools.maintain.payload import compare, payload
from tools.maintain.refresh import refit, refresh
from tools.maintain.resolve import lay_out, read_record
from tools.maintain.rewrite import Kept
from tools.series import read_series
from tools.upstream import Upstream, parse_ref

BASE = b"import os\n\n\ndef run(x):\n    y = x + 1\n    return y\n\n\ndef other():\n    return 0\n"
LATER = BASE.replace(b"y = x + 1", b"y = compute(x)")
SOLVED = LATER.replace(b"compute(x)", b"compute(x) * 2")


def _double(work: Path) -> None:
    file = work / "vllm/run.py"
    file.write_bytes(file.read_bytes().replace(b"y = x + 1", b"y = (x + 1) * 2"))


class Bench:
    """A series of one patch in a directory, that conflicts at v2.0.0."""

    def __init__(self, workshop: Workshop, directory: Path) -> None:
        self.workshop = workshop
        self.build = directory / "build/v2.0.0"
        self.patches = directory / "patches"
        self.patches.mkdir()
        self.old = workshop.release("v1.0.0", {"vllm/run.py": BASE, "b.bin": b"\0a"})
        self.new = workshop.release("v2.0.0", {"vllm/run.py": LATER, "b.bin": b"\0a"})
        self.write("0001-double", "v1.0.0", _double, "Skip-If: exists vllm/no.py\n")

    def write(self, name: str, base: str, change: object, fields: str = "") -> None:
        self.workshop.patch(name, base, change, fields=fields)  # type: ignore[arg-type]
        work = self.workshop.scratch / name
        self.workshop.user_git(
            work, "format-patch", "-1", "--full-index", "--binary", "-U1", "--output",
            str(self.patches / f"{name}.patch"),
        )  # fmt: skip
        names = sorted(p.name for p in self.patches.glob("*.patch"))
        (self.patches / "series").write_text("# hooks\n" + "".join(f"{n}\n" for n in names))

    def carrier(self) -> Carrier:
        empty = self.workshop.carrier()
        return replace(empty, series=read_series(self.patches), kept=read_resolutions(self.patches))

    def lay_out(self, upstream: Upstream) -> Path:
        stop = self.carrier().stop(upstream)
        assert stop is not None
        return lay_out(self.workshop.git, stop, self.build).checkout.path


@pytest.fixture
def bench(workshop: Workshop, tmp_path: Path) -> Bench:
    directory = tmp_path / "project"
    directory.mkdir()
    return Bench(workshop, directory)


def _commit_ref(upstream: Upstream) -> Upstream:
    return replace(upstream, ref=parse_ref("0123456789abcdef0123456789abcdef01234567"))


def test_a_conflict_is_laid_out_as_git_would(bench: Bench) -> None:
    path = bench.lay_out(bench.new)
    shown = (path / "vllm/run.py").read_text()
    assert "<<<<<<< v2.0.0\n    y = compute(x)\n||||||| v1.0.0\n    y = x + 1\n" in shown
    assert ">>>>>>> 0001-double\n" in shown
    git = bench.workshop.user_git
    assert git(path, "status", "--porcelain") == "UU vllm/run.py\n"
    assert git(path, "rev-parse", "HEAD").strip() == bench.new.commit
    intent = (bench.build / "resolve.patch").read_text()
    assert "Why.\n" in intent
    assert "+    y = (x + 1) * 2\n" in intent
    assert "written on v1.0.0, stops at v2.0.0" in intent


def test_nothing_of_a_person_is_overwritten(bench: Bench) -> None:
    path = bench.lay_out(bench.new)
    record = read_record(path)
    bench.lay_out(bench.new)
    assert read_record(path) == record
    (path / "vllm/run.py").write_bytes(SOLVED)
    with pytest.raises(BadInput, match="has changes of yours"):
        bench.lay_out(bench.new)
    assert (path / "vllm/run.py").read_bytes() == SOLVED
    shutil.rmtree(path)
    path.mkdir()
    (path / "mine").write_text("mine")
    with pytest.raises(BadInput, match="not a checkout made by resolve"):
        bench.lay_out(bench.new)
    assert (path / "mine").read_text() == "mine"


def test_at_a_release_the_resolution_becomes_a_variant(bench: Bench) -> None:
    path = bench.lay_out(bench.new)
    (path / "vllm/run.py").write_bytes(SOLVED)
    done = refresh(bench.carrier(), bench.new, path, bench.patches, why="upstream computes it")
    assert (done.kept, done.files) == (Kept.VARIANT, ("0001-double@v2.0.0.patch",))
    listed = (bench.patches / "series").read_text()
    assert listed == "# hooks\n0001-double.patch\n0001-double@v2.0.0.patch\n"
    variant = read_series(bench.patches).patches[1]
    assert variant.base == "v2.0.0"
    assert variant.field("Skip-If") == ("exists vllm/no.py",)
    assert "A variant for v2.0.0, where upstream computes it.\n" in variant.body
    text = (bench.patches / variant.file).read_bytes()
    assert text.count(b"\n ") <= 12  # one line of context around the hunk, and the diffstat
    carried = bench.carrier().carry(bench.new)
    assert [o.outcome for o in carried.outcomes] == [Outcome.CLEAN]
    assert bench.workshop.git.object(f"{carried.commit}:vllm/run.py")[2] == SOLVED
    assert bench.carrier().stop(bench.new) is None
    # The checkout is done with: another conflict may take its place.
    bench.write("0002-next", "v1.0.0", lambda work: (work / "b.bin").write_bytes(b"\0b"))
    bench.workshop.release("v2.0.0", {"vllm/run.py": LATER, "b.bin": b"\0c"})


def test_as_base_writes_the_patch_itself_anew(bench: Bench) -> None:
    path = bench.lay_out(bench.new)
    (path / "vllm/run.py").write_bytes(SOLVED)
    done = refresh(bench.carrier(), bench.new, path, bench.patches, as_base=True)
    assert (done.kept, done.files) == (Kept.REFRESHED, ("0001-double.patch",))
    (patch,) = read_series(bench.patches).patches
    assert patch.base == "v2.0.0"
    assert bench.carrier().carry(bench.new).outcomes[0].outcome is Outcome.CLEAN


def test_a_dry_run_writes_nothing(bench: Bench) -> None:
    path = bench.lay_out(bench.new)
    (path / "vllm/run.py").write_bytes(SOLVED)
    before = {file.name: file.read_bytes() for file in bench.patches.iterdir()}
    done = refresh(bench.carrier(), bench.new, path, bench.patches, dry_run=True)
    assert done.files == ("0001-double@v2.0.0.patch",)
    assert {file.name: file.read_bytes() for file in bench.patches.iterdir()} == before


def test_at_a_commit_the_resolution_is_kept_by_its_blobs(bench: Bench) -> None:
    commit = _commit_ref(bench.new)
    path = bench.lay_out(commit)
    (path / "vllm/run.py").write_bytes(SOLVED)
    done = refresh(bench.carrier(), commit, path, bench.patches)
    assert done.kept is Kept.RESOLUTION
    (kept,) = (bench.patches / "resolutions").iterdir()
    assert done.files == (f"resolutions/{kept.name}",)
    carried = bench.carrier().carry(commit)
    (outcome,) = carried.outcomes
    assert outcome.outcome is Outcome.STRUCTURAL
    assert outcome.rule == f"resolution {kept.stem}"
    assert [e.landed.qualname for e in outcome.edits] == ["run"]
    assert bench.workshop.git.object(f"{carried.commit}:vllm/run.py")[2] == SOLVED
    # The same conflict at another commit, whose other files differ.
    other = bench.workshop.release("v2.0.1", {"vllm/run.py": LATER, "new.txt": b"x\n"})
    assert bench.carrier().carry(other).outcomes[0].rule == f"resolution {kept.stem}"
    # And on the carried tree itself nothing is left to do.
    again = bench.workshop.release("v2.0.2", {"vllm/run.py": SOLVED})
    assert bench.carrier().carry(again).outcomes[0].outcome is Outcome.UPSTREAMED
    third = bench.workshop.release("v2.0.3", {"vllm/run.py": LATER.replace(b"(x)", b"(x, 2)")})
    assert bench.carrier().carry(third).outcomes[0].outcome is Outcome.CONFLICT


def test_a_resolution_that_needs_another_file_is_taken_only_with_it(bench: Bench) -> None:
    commit = _commit_ref(bench.new)
    path = bench.lay_out(commit)
    (path / "vllm/run.py").write_bytes(LATER)
    (path / "b.bin").write_bytes(b"\0b")
    (path / "vllm/neu.py").write_bytes(b"x = 1\n")
    done = refresh(bench.carrier(), commit, path, bench.patches)
    assert done.carried.outcomes[0].outcome is Outcome.STRUCTURAL
    carried = bench.carrier().carry(commit)
    assert bench.workshop.git.object(f"{carried.commit}:b.bin")[2] == b"\0b"
    assert bench.workshop.git.object(f"{carried.commit}:vllm/neu.py")[2] == b"x = 1\n"
    other = bench.workshop.release("v2.0.1", {"vllm/run.py": LATER, "b.bin": b"\0other"})
    assert bench.carrier().carry(other).outcomes[0].outcome is Outcome.CONFLICT


def test_two_files_in_conflict_are_kept_apart(bench: Bench) -> None:
    """So that one of them, met alone later, need not be solved again."""

    def both(work: Path) -> None:
        _double(work)
        (work / "b.bin").write_bytes(b"\0mine")

    shutil.rmtree(bench.workshop.scratch / "0001-double")
    bench.write("0001-double", "v1.0.0", both)
    target = bench.workshop.release("v2.0.0", {"vllm/run.py": LATER, "b.bin": b"\0theirs"})
    commit = _commit_ref(target)
    path = bench.lay_out(commit)
    (path / "vllm/run.py").write_bytes(SOLVED)
    with pytest.raises(CheckFailed, match=r"b\.bin is undecided"):
        refresh(bench.carrier(), commit, path, bench.patches)
    (path / "b.bin").write_bytes(b"\0both")
    done = refresh(bench.carrier(), commit, path, bench.patches)
    assert len(done.files) == 2
    one = bench.workshop.release("v2.0.1", {"vllm/run.py": LATER, "b.bin": b"\0a"})
    carried = bench.carrier().carry(one)
    assert carried.outcomes[0].rule.startswith("resolution ")
    assert bench.workshop.git.object(f"{carried.commit}:b.bin")[2] == b"\0mine"


@pytest.mark.parametrize("decision", ["add", "rm"])
def test_a_binary_conflict_is_decided_in_the_index(bench: Bench, decision: str) -> None:
    shutil.rmtree(bench.workshop.scratch / "0001-double")

    def both(work: Path) -> None:
        (work / "vllm/run.py").write_bytes(BASE + b"\n\nx = 1\n")
        (work / "b.bin").write_bytes(b"\0mine")

    bench.write("0001-double", "v1.0.0", both)
    target = bench.workshop.release("v2.0.0", {"vllm/run.py": BASE, "b.bin": b"\0theirs"})
    path = bench.lay_out(target)
    with pytest.raises(CheckFailed, match=r"b\.bin is undecided"):
        refresh(bench.carrier(), target, path, bench.patches)
    bench.workshop.user_git(path, decision, "b.bin")
    done = refresh(bench.carrier(), target, path, bench.patches)
    held = bench.workshop.git.resolve(f"{done.carried.commit}:b.bin")
    assert (held is not None) == (decision == "add")


def test_a_file_that_upstream_deleted_is_shown_whole(bench: Bench) -> None:
    gone = bench.workshop.release("v3.0.0", {"vllm/moved.py": b"new = 1\n", "b.bin": b"\0a"})
    path = bench.lay_out(gone)
    assert "<<<<<<< v3.0.0\n||||||| v1.0.0\nimport os\n" in (path / "vllm/run.py").read_text()
    (path / "vllm/run.py").unlink()
    with pytest.raises(CheckFailed, match="nothing of the patch is left"):
        refresh(bench.carrier(), gone, path, bench.patches)
    (path / "vllm/moved.py").write_bytes(b"new = 2\n")
    done = refresh(bench.carrier(), gone, path, bench.patches)
    assert done.carried.outcomes[0].outcome is Outcome.CLEAN


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SOLVED + b"<<<<<<< left\n", r"run\.py:11: a conflict is left"),
        (SOLVED.replace(b"def other():", b"def other(:"), "does not parse"),
        (LATER, "nothing of the patch is left"),
    ],
)
def test_what_is_not_finished_is_refused(bench: Bench, content: bytes, message: str) -> None:
    path = bench.lay_out(bench.new)
    with pytest.raises(CheckFailed, match="a conflict is left"):
        refresh(bench.carrier(), bench.new, path, bench.patches)
    (path / "vllm/run.py").write_bytes(content)
    with pytest.raises(CheckFailed, match=message):
        refresh(bench.carrier(), bench.new, path, bench.patches)
    assert [p.name for p in bench.patches.glob("*.patch")] == ["0001-double.patch"]


def test_a_series_that_changed_meanwhile_is_noticed(bench: Bench) -> None:
    path = bench.lay_out(bench.new)
    (path / "vllm/run.py").write_bytes(SOLVED)
    file = bench.patches / "0001-double.patch"
    file.write_bytes(file.read_bytes().replace(b"Why.", b"Why not."))
    with pytest.raises(BadInput, match="is not what it was"):
        refresh(bench.carrier(), bench.new, path, bench.patches)
    with pytest.raises(BadInput, match="not a checkout made by resolve"):
        refresh(bench.carrier(), bench.new, path.with_name("none"), bench.patches)


def test_attributes_of_the_tree_do_not_touch_the_bytes(bench: Bench, hermetic: Path) -> None:
    (hermetic / ".gitconfig").write_text("[core]\n\tautocrlf = true\n")
    attributes = b"* text=auto eol=crlf\n*.py ident\n"
    files = {"vllm/run.py": LATER, "b.bin": b"\0a", ".gitattributes": attributes}
    target = bench.workshop.release("v2.0.0", files | {"crlf.txt": b"a\r\nb\n"})
    path = bench.lay_out(target)
    assert (path / "crlf.txt").read_bytes() == b"a\r\nb\n"
    bench.lay_out(target)  # unchanged: nothing counts as a person's
    (path / "vllm/run.py").write_bytes(SOLVED)
    done = refresh(bench.carrier(), target, path, bench.patches)
    assert bench.workshop.git.object(f"{done.carried.commit}:vllm/run.py")[2] == SOLVED


def test_payload_is_told_apart_from_drift(bench: Bench) -> None:
    git = bench.workshop.git

    def tree(content: bytes) -> str:
        return bench.workshop.release("v9.0.0", {"vllm/run.py": content}).tree

    before = payload(
        git, tree(BASE), tree(BASE.replace(b"    return y", b"    y += 1\n    return y"))
    )
    moved = b"# a new first line\n" + LATER
    after = payload(
        git, tree(moved), tree(moved.replace(b"    return y", b"    y += 1\n    return y"))
    )
    same = compare(before, after)
    assert same.before == same.after
    assert (same.lost, same.gained) == ((), ())
    assert [str(line) for line in same.drift] == ["-    y = x + 1", "+    y = compute(x)"]
    other = payload(
        git, tree(moved), tree(moved.replace(b"    return y", b"    y += 2\n    return y"))
    )
    changed = compare(before, other)
    assert changed.before != changed.after
    assert [str(line) for line in (*changed.lost, *changed.gained)] == [
        "+    y += 1",
        "+    y += 2",
    ]


def test_a_malformed_resolution_is_named(bench: Bench) -> None:
    directory = bench.patches / "resolutions"
    directory.mkdir()
    (directory / "0123.patch").write_bytes(b"Patch: x\n\n")
    with pytest.raises(BadInput, match=r"0123\.patch: is no kept resolution"):
        read_resolutions(bench.patches)


def test_record_survives_its_file(bench: Bench) -> None:
    path = bench.lay_out(bench.new)
    held = json.loads((path / ".git/vllm-exaone-resolve.json").read_text())
    assert held["file"] == "0001-double.patch"
    assert read_record(path).stuck[0].path == "vllm/run.py"


def test_a_patch_that_an_earlier_one_moved_is_written_anew(bench: Bench) -> None:
    """The base is the release plus the earlier patches: a changed one changes the blobs."""
    first = read_series(bench.patches)
    tree = replace(bench.carrier(), series=first).carry(bench.old).tree
    bench.workshop.patch(
        "0002-more",
        "v1.0.0",
        lambda work: (work / "vllm/run.py").write_bytes(
            (work / "vllm/run.py").read_bytes() + b"\n\nmore = 1\n"
        ),
        tree=tree,
    )
    work = bench.workshop.scratch / "0002-more"
    bench.workshop.user_git(
        work, "format-patch", "-1", "--full-index", "-U1", "--output",
        str(bench.patches / "0002-more.patch"),
    )  # fmt: skip
    (bench.patches / "series").write_text("0001-double.patch\n0002-more.patch\n")
    assert [o.outcome for o in bench.carrier().carry(bench.old).outcomes] == [Outcome.CLEAN] * 2
    assert refit(bench.carrier(), bench.old, bench.patches) == ()
    shutil.rmtree(bench.workshop.scratch / "0001-double")
    bench.workshop.patch(
        "0001-double",
        "v1.0.0",
        lambda work: (work / "vllm/run.py").write_bytes(BASE.replace(b"x + 1", b"x + 2")),
    )
    bench.workshop.user_git(
        bench.workshop.scratch / "0001-double", "format-patch", "-1", "--full-index", "-U1",
        "--output", str(bench.patches / "0001-double.patch"),
    )  # fmt: skip
    with pytest.raises(DoesNotFit, match="0002-more"):
        bench.carrier().carry(bench.old)
    (done,) = refit(bench.carrier(), bench.old, bench.patches)
    assert (done.kept, done.files) == (Kept.REFRESHED, ("0002-more.patch",))
    assert done.comparison.before == done.comparison.after
    assert [o.outcome for o in bench.carrier().carry(bench.old).outcomes] == [Outcome.CLEAN] * 2
