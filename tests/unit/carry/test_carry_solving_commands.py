"""resolve and refresh from the command line: output, exit codes, and what is left on disk."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from tests.command_line import run_tools
from tools.settings import Settings
from tools.upstream import Store
from tools.upstream.archive import Snapshot, SourceFile

OLD = b"TABLE = 1\n\n\ndef run():\n    return TABLE\n"
NEW = OLD.replace(b"return TABLE", b"return table()")
PROJECT = """
[tool.vllm-exaone]
default-ref = "v2.0.0"
git-url = "https://invalid.invalid/x.git"
build-number = 1
"""


class Line:
    """A project of its own, with two releases in its store and a patch that conflicts."""

    def __init__(self, root: Path, user_git: Callable[..., str]) -> None:
        self.root = root
        (root / "patches").mkdir(parents=True)
        (root / "vllm_exaone").mkdir()
        (root / "vllm_exaone/overlay.toml").write_text("")
        (root / "pyproject.toml").write_text(PROJECT)
        with Store.open(Settings.load(root)) as store:
            for tag, content in (("v1.0.0", OLD), ("v2.0.0", NEW)):
                files = (SourceFile("vllm/run.py", False, content),)
                facts = {"Kind": "sdist", "File": f"vllm-{tag}.tar.gz", "Sha256": "0" * 64}
                store.add(f"index/{tag}", Snapshot(files, 1, Version(tag)), tag, facts)
        work = root / "work"
        work.mkdir()
        user_git(work, "init", "-q")
        (work / "vllm").mkdir()
        (work / "vllm/run.py").write_bytes(OLD)
        user_git(work, "add", "-A")
        user_git(work, "commit", "-qm", "base")
        (work / "vllm/run.py").write_bytes(OLD.replace(b"return TABLE", b"return TABLE + 1"))
        user_git(work, "commit", "-qam", "Add one\n\nWhy.\n\nBase: v1.0.0")
        user_git(
            work, "format-patch", "-1", "--full-index", "-U1", "--output",
            str(root / "patches/0001-one.patch"),
        )  # fmt: skip
        (root / "patches/series").write_text("0001-one.patch\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_tools(self.root, *arguments)


@pytest.fixture
def line(tmp_path: Path, user_git: Callable[..., str]) -> Line:
    return Line(tmp_path / "project", user_git)


def test_from_conflict_to_variant(line: Line) -> None:
    applied = line.run("apply")
    assert applied.returncode == 1
    assert "python -m tools resolve v2.0.0" in applied.stderr
    laid = line.run("resolve", "--json")
    assert laid.returncode == 0, laid.stderr
    data = json.loads(laid.stdout)
    assert (data["patch"], data["state"]) == ("0001-one", "created")
    assert data["stuck"][0]["path"] == "vllm/run.py"
    assert Path(data["path"]) == line.root / "build/v2.0.0/resolve"
    left = line.run("refresh")
    assert left.returncode == 1
    assert "vllm/run.py:5: a conflict is left" in left.stderr
    (Path(data["path"]) / "vllm/run.py").write_bytes(NEW.replace(b"table()", b"table() + 1"))
    again = line.run("resolve")
    assert again.returncode == 2
    assert "has changes of yours" in again.stderr
    tried = line.run("refresh", "--dry-run")
    assert tried.returncode == 0
    assert not (line.root / "patches/0001-one@v2.0.0.patch").exists()
    done = line.run("refresh", "--why", "run() calls table()", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["kept"], row["files"]) == ("variant", ["0001-one@v2.0.0.patch"])
    assert row["payload"]["gained"] == ["-    return table()", "+    return table() + 1"]
    assert row["remaining"] == []
    assert line.run("apply").returncode == 0
    assert "no conflict" in line.run("resolve").stderr
    assert "fits" in line.run("refresh").stderr


def test_wrong_use_is_told_in_one_line(line: Line) -> None:
    for arguments, message in (
        (("resolve", "--patch", "0009-no"), "the series has no patch '0009-no'"),
        (("resolve", "--upload-pack=x"), "No such option"),
        (("resolve", "a..b"), "is no"),
    ):
        done = line.run(*arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr or "not a" in done.stderr
        assert "Traceback" not in done.stderr
