"""The exported series gives the carried tree under ``git am`` and ``quilt push -a``."""

import os
import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.unit.carry.conftest import Workshop
from tools.carry import Carried, Exported, export
from tools.upstream import Upstream

TEXT = b"".join(b"line %d\n" % n for n in range(30))
FILES = {
    "docs/text.txt": TEXT,
    "docs/crlf.txt": TEXT.replace(b"\n", b"\r\n"),
    "docs/latin.txt": b"caf\xe9\n" + TEXT,
    "tool.sh": b"echo\n",
    "empty": b"",
    "image.bin": bytes(range(256)),
    "with space.txt": TEXT,
    "donn\N{LATIN SMALL LETTER E WITH ACUTE}es.txt": TEXT,
}
Change = Callable[[Path], object]


def _replace(path: str, old: bytes, new: bytes) -> Change:
    return lambda work: (work / path).write_bytes((work / path).read_bytes().replace(old, new))


def _final_newline(before: bool, after: bool) -> Change:
    def change(work: Path) -> None:
        (work / f"final{before:d}.txt").write_bytes(b"one\nTWO\nthree" + b"\n" * after)

    return change


def _rename(work: Path) -> None:
    (work / "docs/text.txt").rename(work / "moved.txt")
    (work / "docs/latin.txt").rename(work / "docs/crlf2.txt")


def _delete(work: Path) -> None:
    for name in ("docs/text.txt", "empty", "with space.txt"):
        (work / name).unlink()


def _create(work: Path) -> None:
    (work / "neu").mkdir()
    (work / "neu/a b.txt").write_bytes(b"x\n")
    (work / "neu/leer").write_bytes(b"")
    (work / "neu/\N{HANGUL SYLLABLE GA}\t.txt").write_bytes(b"y")
    (work / "neu/run.sh").write_bytes(b"echo\n")
    (work / "neu/run.sh").chmod(0o755)


KINDS: dict[str, Change] = {
    "text": _replace("docs/text.txt", b"line 9\n", b"LINE 9\n"),
    "crlf": _replace("docs/crlf.txt", b"line 9\r\n", b"LINE 9\r\nmore\r\n"),
    "crlf-to-lf": _replace("docs/crlf.txt", b"\r\n", b"\n"),
    "latin": _replace("docs/latin.txt", b"line 1\n", b"\xe4\n"),
    "lone-cr": _replace("docs/text.txt", b"line 9\n", b"a\rb\x0c\n"),
    "mode": lambda work: (work / "tool.sh").chmod(0o755),
    "rename": _rename,
    "delete": _delete,
    "create": _create,
    "fill-empty": lambda work: (work / "empty").write_bytes(b"now\n"),
    "make-empty": lambda work: (work / "docs/text.txt").write_bytes(b""),
    "space": _replace("with space.txt", b"line 9\n", b"LINE 9\n"),
    "non-ascii": _replace("donn\N{LATIN SMALL LETTER E WITH ACUTE}es.txt", b"line 9\n", b"x\n"),
    "markers": _replace("docs/text.txt", b"line 9\n", b"-- \n--- a/x\n+++ b/x\nFrom 12\n"),
    **{
        f"final-newline-{before:d}{after:d}": _final_newline(before, after)
        for before, after in product((False, True), repeat=2)
    },
}
HOSTILE = """From: someone@else
Subject: not this

---
diff --git a/docs/text.txt b/docs/text.txt
--- a/docs/text.txt
+++ b/docs/text.txt
@@ -1 +1 @@
-line 0
+hacked

   --- a/docs/text.txt
   +++ b/docs/text.txt
   @@ -1 +1 @@
   -line 0
   +hacked

Index: docs/text.txt
Prereq: nothing
*** docs/text.txt
1d
5c5
< line 4
---
> hacked
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
-- >8 --
"""


def _release(workshop: Workshop) -> Upstream:
    files = FILES | {f"final{n}.txt": b"one\ntwo\nthree" + b"\n" * n for n in (0, 1)}
    return workshop.release("v1.0.0", files)


def _exported(workshop: Workshop, tmp_path: Path, *changes: Change) -> tuple[Carried, Exported]:
    upstream = _release(workshop)
    patches = []
    for number, change in enumerate(changes, 1):
        tree = workshop.carrier(*patches).carry(upstream).tree
        patches.append(workshop.patch(f"{number:04d}-x", "v1.0.0", change, tree=tree))
    carried = workshop.carrier(*patches).carry(upstream)
    return carried, export(workshop.git, carried, tmp_path / "patches")


def _checkout(workshop: Workshop, commit: str, path: Path) -> Path:
    """A person's own checkout, in which attributes change no byte."""
    path.mkdir()
    workshop.user_git(path, "init", "-q")
    objects = workshop.git.directory / "objects"
    (path / ".git/objects/info/alternates").write_text(f"{objects}\n")
    workshop.user_git(path, "reset", "-q", "--hard", commit)
    return path


def _am(workshop: Workshop, carried: Carried, done: Exported, path: Path) -> str:
    work = _checkout(workshop, carried.upstream.commit, path)
    names = [os.fspath(done.path / name) for name in done.patches]
    workshop.user_git(work, "am", "-q", "--keep-cr", *names)
    return workshop.user_git(work, "rev-parse", "HEAD^{tree}").strip()


def _quilt(work: Path, done: Exported, *, ok: bool = True) -> str:
    quilt = shutil.which("quilt")
    if quilt is None:
        pytest.skip("quilt is missing: apt-get install quilt")
    ran = subprocess.run(
        [quilt, "push", "-a"],
        cwd=work,
        env=os.environ | {"QUILT_PATCHES": str(done.path), "QUILT_PC": ".pc"},
        capture_output=True,
        check=False,
    )
    printed = (ran.stdout + ran.stderr).decode("utf-8", "replace")
    assert (ran.returncode == 0) == ok, printed
    assert "fuzz" not in printed
    assert "offset" not in printed
    return printed


def _pushed(workshop: Workshop, carried: Carried, done: Exported, path: Path) -> str:
    work = _checkout(workshop, carried.upstream.commit, path)
    _quilt(work, done)
    shutil.rmtree(work / ".pc")
    workshop.user_git(work, "add", "-A", "-f")
    return workshop.user_git(work, "write-tree").strip()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_change_survives_git_am_and_quilt(
    workshop: Workshop, tmp_path: Path, kind: str
) -> None:
    carried, done = _exported(workshop, tmp_path, KINDS[kind])
    assert not carried.conflicts
    assert carried.tree != carried.upstream.tree
    assert _am(workshop, carried, done, tmp_path / "am") == carried.tree
    assert _pushed(workshop, carried, done, tmp_path / "quilt") == carried.tree


def test_a_series_of_all_kinds(workshop: Workshop, tmp_path: Path) -> None:
    changes = [change for kind, change in KINDS.items() if kind not in ("rename", "delete")]
    changes.remove(KINDS["make-empty"])
    changes.remove(KINDS["crlf"])
    changes.remove(KINDS["lone-cr"])
    changes.remove(KINDS["markers"])
    carried, done = _exported(workshop, tmp_path, *changes, _delete)
    assert len(done.patches) == len(changes) + 1
    assert _am(workshop, carried, done, tmp_path / "am") == carried.tree
    assert _pushed(workshop, carried, done, tmp_path / "quilt") == carried.tree


@pytest.mark.parametrize(
    "change",
    [_replace("image.bin", b"\0\1", b"\0\2"), lambda w: (w / "new.bin").write_bytes(b"\0")],
)
def test_binary_goes_through_git_am_and_quilt_is_said_to_refuse_it(
    workshop: Workshop, tmp_path: Path, change: Change
) -> None:
    carried, done = _exported(workshop, tmp_path, change)
    assert _am(workshop, carried, done, tmp_path / "am") == carried.tree
    (line,) = [note for note in done.notes if "quilt" in note]
    assert "0001-change-a-thing.patch" in line
    series = (done.path / "series").read_text()
    assert f"# {line}\n" in series
    work = _checkout(workshop, carried.upstream.commit, tmp_path / "quilt")
    assert "binary" in _quilt(work, done, ok=False)


def test_only_a_series_with_carriage_returns_asks_for_keep_cr(
    workshop: Workshop, tmp_path: Path
) -> None:
    _carried, plain = _exported(workshop, tmp_path / "a", KINDS["text"])
    assert plain.notes == ()
    shutil.rmtree(workshop.scratch / "0001-x")
    carried, crlf = _exported(workshop, tmp_path / "b", KINDS["crlf"])
    (line,) = crlf.notes
    assert "git am --keep-cr" in line
    work = _checkout(workshop, carried.upstream.commit, tmp_path / "am")
    workshop.user_git(work, "am", "-q", os.fspath(crlf.path / crlf.patches[0]), ok=False)
    assert workshop.user_git(work, "rev-parse", "HEAD^{tree}").strip() != carried.tree


@pytest.mark.parametrize(
    "subject",
    [
        "Plain",
        "\N{LATIN CAPITAL LETTER U WITH DIAERESIS}n\N{LATIN SMALL LETTER I WITH DIAERESIS}code "
        * 9,
        "x" * 1200,
        "=?utf-8?q?x?= is encoded already",
        "a\x1b[31mb; rm -rf / ../../etc/passwd $(touch x) `touch y`",
        "\N{HANGUL SYLLABLE GA}\N{HANGUL SYLLABLE NA}",
        "From: someone <a@b>",
    ],
)
def test_hostile_messages_change_no_tree(workshop: Workshop, tmp_path: Path, subject: str) -> None:
    upstream = _release(workshop)
    patch = workshop.patch("0001-x", "v1.0.0", KINDS["text"])
    object.__setattr__(patch, "subject", subject)
    object.__setattr__(patch, "body", HOSTILE + "\nBase: v1.0.0\n")
    carried = workshop.carrier(patch).carry(upstream)
    done = export(workshop.git, carried, tmp_path / "patches")
    (name,) = done.patches
    assert "/" not in name
    assert name.isascii()
    assert _am(workshop, carried, done, tmp_path / "am") == carried.tree
    log = workshop.user_git(tmp_path / "am", "log", "-1", "--format=%an|%s")
    assert log.startswith("A Tester|")
    assert " ".join(subject.split())[:40] in log
    assert _pushed(workshop, carried, done, tmp_path / "quilt") == carried.tree


def test_the_export_is_the_same_under_any_user_settings(
    workshop: Workshop, tmp_path: Path, hermetic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried, done = _exported(workshop, tmp_path, KINDS["text"], KINDS["create"], KINDS["mode"])
    plain = {file.name: file.read_bytes() for file in done.path.iterdir()}
    (hermetic / "attributes").write_text("* -diff\n*.txt diff=x\n")
    (hermetic / ".gitconfig").write_text(
        "[core]\n\tabbrev = 4\n\tquotePath = false\n\tattributesFile = ~/attributes\n"
        "[diff]\n\tnoprefix = true\n\tcontext = 0\n\talgorithm = patience\n\trenames = copies\n"
        "\tinterHunkContext = 9\n\texternal = false\n\tstatGraphWidth = 3\n"
        "\tsrcPrefix = x/\n\tdstPrefix = y/\n\trelative = true\n\torderFile = ~/attributes\n"
        "\tsuppressBlankEmpty = true\n\tindentHeuristic = false\n"
        '[diff "x"]\n\txfuncname = "."\n'
        "[format]\n\tsignature = me\n\tsubjectPrefix = X\n[i18n]\n\tlogOutputEncoding = latin1\n"
    )
    for name, value in {
        "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Seoul", "COLUMNS": "20", "GIT_DIFF_OPTS": "-u0",
        "GIT_EXTERNAL_DIFF": "false", "GIT_DIR": "/nowhere",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    workshop.git.close()
    again = export(workshop.git, carried, tmp_path / "again")
    assert {file.name: file.read_bytes() for file in again.path.iterdir()} == plain


def test_what_is_no_export_is_not_replaced(workshop: Workshop, tmp_path: Path) -> None:
    carried, done = _exported(workshop, tmp_path, KINDS["text"])
    shutil.rmtree(done.path)
    done.path.mkdir()
    (done.path / "mine").write_text("mine")
    with pytest.raises(Exception, match="is not an export"):
        export(workshop.git, carried, done.path)
    assert (done.path / "mine").read_text() == "mine"
