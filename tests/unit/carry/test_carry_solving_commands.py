"""resolve and refresh from the command line: output, exit codes, and what is left on disk."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from tests.small_project import NEW, OLD, SmallProject
from tools.settings import Settings
from tools.upstream import Store
from tools.upstream.archive import Snapshot, SourceFile

SETTINGS = """
default-ref = "v2.0.0"
git-url = "https://invalid.invalid/x.git"
build-number = 1
"""


@pytest.fixture
def line(tmp_path: Path, user_git: Callable[..., str]) -> SmallProject:
    """A project with two releases in its store, of which the later breaks the patch."""
    project = SmallProject(tmp_path / "project", SETTINGS, user_git)
    with Store.open(Settings.load(project.root)) as store:
        for tag, content in (("v1.0.0", OLD), ("v2.0.0", NEW)):
            files = (SourceFile("vllm/run.py", False, content),)
            facts = {"Kind": "sdist", "File": f"vllm-{tag}.tar.gz", "Sha256": "0" * 64}
            store.add(f"index/{tag}", Snapshot(files, 1, Version(tag)), tag, facts)
    return project


def test_from_conflict_to_variant(line: SmallProject) -> None:
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


def test_wrong_use_is_told_in_one_line(line: SmallProject) -> None:
    for arguments, message in (
        (("resolve", "--patch", "0009-no"), "the series has no patch '0009-no'"),
        (("resolve", "--upload-pack=x"), "No such option"),
        (("resolve", "a..b"), "is no"),
    ):
        done = line.run(*arguments)
        assert done.returncode == 2, done.stderr
        assert message in done.stderr or "not a" in done.stderr
        assert "Traceback" not in done.stderr
