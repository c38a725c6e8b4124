"""Carrying on real git objects: outcomes, exactness, and independence of the user's settings."""

import os
import shutil
from pathlib import Path

import pytest

from tests.unit.carry.conftest import Workshop
from tools.carry import Outcome, check_out, export
from tools.errors import BadInput
from tools.overlay import Overlay, OverlayFile
from tools.series import parse_probe

V1 = {
    "vllm/table.py": b'TABLE = {\n    "a": 1,\n    "b": 2,\n    "d": 4,\n}\n',
    "vllm/other.py": b"def run():\n    return 1\n",
    "docs/crlf.txt": b"one\r\ntwo\r\nthree",
    "tool.sh": b"echo\n",
}


def _add_c(work: Path) -> None:
    file = work / "vllm/table.py"
    file.write_bytes(file.read_bytes().replace(b'"b": 2,\n', b'"b": 2,\n    "c": 3,\n'))


def test_same_text_lands_clean_and_says_where(workshop: Workshop) -> None:
    upstream = workshop.release("v1.0.0", V1)
    carrier = workshop.carrier(workshop.patch("0001-add", "v1.0.0", _add_c))
    carried = carrier.carry(upstream)
    (outcome,) = carried.outcomes
    assert outcome.outcome is Outcome.CLEAN
    assert [edit.landed.path for edit in outcome.edits] == ["vllm/table.py"]
    assert workshop.git.object(f"{carried.commit}:vllm/table.py")[2].count(b'"c": 3') == 1
    assert workshop.git.resolve(f"{carried.commit}^1") == upstream.commit


def test_changed_neighbours_are_merged_by_syntax(workshop: Workshop) -> None:
    workshop.release("v1.0.0", V1)
    changed = V1 | {"vllm/table.py": b'TABLE = {\n    "b": 20,\n    "e": 5,\n}\n'}
    later = workshop.release("v2.0.0", changed)
    carried = workshop.carrier(workshop.patch("0001-add", "v1.0.0", _add_c)).carry(later)
    assert [o.outcome for o in carried.outcomes] == [Outcome.STRUCTURAL]
    content = workshop.git.object(f"{carried.commit}:vllm/table.py")[2]
    assert content == b'TABLE = {\n    "b": 20,\n    "c": 3,\n    "e": 5,\n}\n'


def test_upstreamed_only_where_the_tree_stays(workshop: Workshop) -> None:
    workshop.release("v1.0.0", V1)
    patch = workshop.patch("0001-add", "v1.0.0", _add_c)
    has_it = V1 | {"vllm/table.py": b'TABLE = {\n    "a": 1,\n    "b": 2,\n    "c": 3,\n}\n'}
    carried = workshop.carrier(patch).carry(workshop.release("v2.0.0", has_it))
    assert carried.outcomes[0].outcome is Outcome.UPSTREAMED
    assert carried.commit == carried.upstream.commit


def test_carrying_onto_the_carried_tree_changes_nothing(workshop: Workshop) -> None:
    upstream = workshop.release("v1.0.0", V1)
    carrier = workshop.carrier(workshop.patch("0001-add", "v1.0.0", _add_c))
    first = carrier.carry(upstream)
    files = {
        e.path.decode(): workshop.git.read_blob(e.oid) for e in workshop.git.listing(first.tree)
    }
    again = carrier.carry(workshop.release("v1.0.1", files))
    assert again.tree == first.tree
    assert again.outcomes[0].outcome is Outcome.UPSTREAMED


def test_conditions_decide_by_content_and_variants_are_tried_in_turn(workshop: Workshop) -> None:
    old = workshop.release("v1.0.0", V1)
    new = workshop.release("v3.0.0", V1 | {"vllm/new.py": b""})
    patch = workshop.patch("0001-add", "v1.0.0", _add_c, fields="Skip-If: exists vllm/new.py\n")
    variant = workshop.patch(
        "0001-add@v3.0.0", "v3.0.0", _add_c, fields="Only-If: exists vllm/new.py\n"
    )
    alone = workshop.carrier(patch).carry(new)
    assert alone.outcomes[0].outcome is Outcome.NOT_NEEDED
    assert alone.outcomes[0].rule == "Skip-If: exists vllm/new.py"
    both = workshop.carrier(patch, variant)
    assert both.carry(new).outcomes[0].file == "0001-add@v3.0.0.patch"
    assert both.carry(old).outcomes[0].file == "0001-add.patch"


def test_conflict_names_the_place_and_the_rest_is_carried(workshop: Workshop) -> None:
    workshop.release("v1.0.0", V1)
    gone = {path: content for path, content in V1.items() if path != "vllm/table.py"}
    later = workshop.release("v2.0.0", gone)
    table = workshop.patch("0001-add", "v1.0.0", _add_c)
    other = workshop.patch(
        "0002-other",
        "v1.0.0",
        lambda work: (work / "vllm/other.py").write_bytes(b"def run():\n    return 2\n"),
    )
    carried = workshop.carrier(table, other).carry(later)
    assert [o.outcome for o in carried.outcomes] == [Outcome.CONFLICT, Outcome.CLEAN]
    assert carried.outcomes[0].conflicts[0].written.path == "vllm/table.py"
    assert workshop.git.resolve(f"{carried.commit}:vllm/table.py") is None


def test_a_patch_is_written_on_its_base_plus_the_earlier_patches(workshop: Workshop) -> None:
    upstream = workshop.release("v1.0.0", V1)
    first = workshop.patch("0001-add", "v1.0.0", _add_c)
    tree = workshop.carrier(first).carry(upstream).tree

    def change(work: Path) -> None:
        file = work / "vllm/table.py"
        file.write_bytes(file.read_bytes().replace(b'"c": 3', b'"c": 33'))

    second = workshop.patch("0002-more", "v1.0.0", change, tree=tree)
    carried = workshop.carrier(first, second).carry(upstream)
    assert [o.outcome for o in carried.outcomes] == [Outcome.CLEAN, Outcome.CLEAN]
    with pytest.raises(BadInput, match=r"patches/0002-more\.patch: vllm/table\.py is .* not"):
        workshop.carrier(second).carry(upstream)


def test_a_patch_whose_result_is_not_what_it_declares_is_refused(workshop: Workshop) -> None:
    """Two alike places: git would accept the hunk at either, the declared blob only at one."""
    alike = b"def a():\n    x = 1\n    return x\n\n\ndef b():\n    x = 1\n    return x\n"
    upstream = workshop.release("v1.0.0", {"m.py": alike})
    patch = workshop.patch(
        "0001-b",
        "v1.0.0",
        lambda work: (work / "m.py").write_bytes(alike[:30] + alike[30:].replace(b"1", b"2")),
    )
    moved = patch.diff.replace(b"@@ -6,3 +6,3", b"@@ -1,3 +1,3").replace(b" def b", b" def a")
    assert moved != patch.diff
    object.__setattr__(patch, "diff", moved)
    with pytest.raises(BadInput, match="does not become the blob"):
        workshop.carrier(patch).carry(upstream)


@pytest.mark.parametrize("final", [b"", b"\n"])
@pytest.mark.parametrize("upstream_final", [b"", b"\n"])
def test_bytes_modes_and_names_survive(
    workshop: Workshop, final: bytes, upstream_final: bytes
) -> None:
    files = V1 | {"docs/crlf.txt": b"one\r\ntwo\r\nthree" + upstream_final}
    upstream = workshop.release("v1.0.0", files)

    def change(work: Path) -> None:
        (work / "docs/crlf.txt").write_bytes(b"ONE\r\ntwo\r\nthree" + final)
        (work / "tool.sh").chmod(0o755)
        (work / "données.bin").write_bytes(bytes(range(256)))
        (work / "empty").write_bytes(b"")
        (work / "vllm/other.py").rename(work / "vllm/renamed.py")

    carried = workshop.carrier(workshop.patch("0001-all", "v1.0.0", change)).carry(upstream)
    assert carried.outcomes[0].outcome is Outcome.CLEAN
    held = {e.path.decode(): (e.mode, workshop.git.read_blob(e.oid)) for e in
            workshop.git.listing(carried.tree)}  # fmt: skip
    assert held["docs/crlf.txt"] == ("100644", b"ONE\r\ntwo\r\nthree" + final)
    assert held["tool.sh"] == ("100755", b"echo\n")
    assert held["données.bin"] == ("100644", bytes(range(256)))
    assert held["empty"] == ("100644", b"")
    assert held["vllm/renamed.py"][1] == V1["vllm/other.py"]
    assert "vllm/other.py" not in held


def test_an_upstream_rename_is_followed(workshop: Workshop) -> None:
    body = b"".join(b"line_%d = %d\n" % (n, n) for n in range(40))
    workshop.release("v1.0.0", {"examples/run.py": body})
    moved = workshop.release("v2.0.0", {"examples/offline/run.py": b"first = 0\n" + body})
    patch = workshop.patch(
        "0001-line",
        "v1.0.0",
        lambda work: (work / "examples/run.py").write_bytes(body + b"last = 1\n"),
    )
    carried = workshop.carrier(patch).carry(moved)
    assert carried.outcomes[0].outcome is Outcome.CLEAN
    content = workshop.git.object(f"{carried.commit}:examples/offline/run.py")[2]
    assert content == b"first = 0\n" + body + b"last = 1\n"
    assert carried.outcomes[0].edits[0].written.path == "examples/run.py"


def test_overlay_is_laid_where_its_conditions_hold(workshop: Workshop) -> None:
    upstream = workshop.release("v1.0.0", V1)
    has = parse_probe("exists vllm/model.py")
    overlay = Overlay((OverlayFile("model.py", "vllm/model.py", "", b"new = 1\n", (), (has,)),))
    carrier = workshop.carrier(workshop.patch("0001-add", "v1.0.0", _add_c), overlay=overlay)
    carried = carrier.carry(upstream)
    assert workshop.git.object(f"{carried.commit}:vllm/model.py")[2] == b"new = 1\n"
    theirs = workshop.release("v2.0.0", V1 | {"vllm/model.py": b"theirs = 1\n"})
    again = carrier.carry(theirs)
    assert workshop.git.object(f"{again.commit}:vllm/model.py")[2] == b"theirs = 1\n"
    assert [row.laid for row in again.overlay] == [False]


HOSTILE = """
[core]
    attributesFile = {home}/attributes
    autocrlf = true
    abbrev = 4
[merge]
    renameLimit = 1
    conflictStyle = diff3
[diff]
    renameLimit = 1
    noprefix = true
    context = 0
[i18n]
    commitEncoding = ISO-8859-1
[format]
    signature = --
[init]
    defaultObjectFormat = sha256
"""


def test_no_user_setting_reaches_the_result(
    workshop: Workshop, hermetic: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workshop.release("v1.0.0", V1)
    later = workshop.release(
        "v2.0.0", V1 | {"vllm/table.py": b'TABLE = {\n    "b": 20,\n    "e": 5,\n}\n'}
    )
    patch = workshop.patch("0001-umlaut", "v1.0.0", _add_c, subject="Füge c ein")
    plain = workshop.carrier(patch).carry(later)
    (hermetic / "attributes").write_text("* merge=union text eol=crlf\n")
    (hermetic / ".gitconfig").write_text(HOSTILE.format(home=hermetic))
    (hermetic / ".config/git").mkdir(parents=True)
    shutil.copy(hermetic / "attributes", hermetic / ".config/git/attributes")
    for name, value in {
        "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Seoul", "GIT_DIR": "/nowhere",
        "GIT_AUTHOR_DATE": "1 +0100", "GIT_CONFIG_PARAMETERS": "'merge.renames=false'",
        "GIT_EXTERNAL_DIFF": "false",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    hostile = workshop.carrier(patch)
    hostile.git.close()
    carried = hostile.carry(later)
    assert carried.commit == plain.commit
    done = check_out(workshop.git, carried, tmp_path / "out/src")
    assert (done.path / "vllm/table.py").read_bytes().count(b"\r") == 0
    assert check_out(workshop.git, carried, tmp_path / "out/src").state == "unchanged"


def test_what_a_person_did_in_the_checkout_is_never_overwritten(
    workshop: Workshop, tmp_path: Path
) -> None:
    upstream = workshop.release("v1.0.0", V1)
    carrier = workshop.carrier(workshop.patch("0001-add", "v1.0.0", _add_c))
    carried = carrier.carry(upstream)
    path = tmp_path / "build/v1.0.0/src"
    assert check_out(workshop.git, carried, path).state == "created"
    (path / "vllm/mine.py").write_text("mine")
    with pytest.raises(BadInput, match=r"has changes of yours, vllm/mine\.py"):
        check_out(workshop.git, carried, path)
    workshop.user_git(path, "add", "-A")
    workshop.user_git(path, "commit", "-qm", "mine")
    with pytest.raises(BadInput, match="holds commits that apply did not make"):
        check_out(workshop.git, carried, path)
    assert (path / "vllm/mine.py").read_text() == "mine"


@pytest.mark.parametrize(
    "subject", ["Plain", "Ünïcode " * 12, "[PATCH] in brackets", "=?utf-8?q?x?= already encoded"]
)
def test_git_am_of_the_export_gives_the_carried_tree(
    workshop: Workshop, tmp_path: Path, subject: str
) -> None:
    upstream = workshop.release("v1.0.0", V1)

    def change(work: Path) -> None:
        _add_c(work)
        (work / "docs/crlf.txt").write_bytes(b"ONE\r\ntwo\r\nthree\r\n")
        (work / "données.bin").write_bytes(bytes(range(256)))
        (work / "tool.sh").chmod(0o755)

    hostile = "From: someone@else\n---\ndiff --git a/x b/x\nIndex: x\n\nFrom 123\n\nBase: v1.0.0\n"
    patch = workshop.patch("0001-add", "v1.0.0", change, subject=subject)
    object.__setattr__(patch, "body", hostile)
    carried = workshop.carrier(patch).carry(upstream)
    done = export(workshop.git, carried, tmp_path / "patches")
    assert export(workshop.git, carried, tmp_path / "patches").patches == done.patches
    work = tmp_path / "am"
    work.mkdir()
    workshop.user_git(work, "init", "-q")
    objects = workshop.git.directory / "objects"
    (work / ".git/objects/info/alternates").write_text(f"{objects}\n")
    workshop.user_git(work, "reset", "-q", "--hard", upstream.commit)
    names = [os.fspath(done.path / name) for name in done.patches]
    workshop.user_git(work, "am", "-q", "--keep-cr", "--keep-non-patch", *names)
    assert workshop.user_git(work, "rev-parse", "HEAD^{tree}").strip() == carried.tree
    assert workshop.user_git(work, "log", "-1", "--format=%an").strip() == "A Tester"
