"""apply, matrix and contract from the command line: their findings and exit codes."""

import json
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from tests.command_line import run_tools
from tools.settings import Settings
from tools.upstream import Store
from tools.upstream.archive import Snapshot, SourceFile

PROJECT = """
[tool.vllm-exaone]
default-ref = "v1.0.0"
git-url = "https://invalid.invalid/x.git"
build-number = 1
"""
TABLE = """
[[file]]
source = "models/ours.py"
target = "vllm/models/ours.py"
"""
OURS = b"from vllm.layers import build\n\n\ndef run(x):\n    return build(x, 1)\n"
FITS = b"def build(size, depth):\n    return size\n"
BREAKS = b"def build(size, depth, width):\n    return size\n"


class Line:
    """A project of its own: an overlay that fits the first release and not the second."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "patches").mkdir(parents=True)
        (root / "patches/series").write_text("")
        (root / "vllm_exaone/models").mkdir(parents=True)
        (root / "vllm_exaone/overlay.toml").write_text(TABLE)
        (root / "vllm_exaone/models/ours.py").write_bytes(OURS)
        (root / "pyproject.toml").write_text(PROJECT)
        with Store.open(Settings.load(root)) as store:
            for tag, content in (("v1.0.0", FITS), ("v2.0.0", BREAKS)):
                files = (
                    SourceFile("vllm/layers.py", False, content),
                    SourceFile("vllm/__init__.py", False, b""),
                )
                facts = {"Kind": "sdist", "File": f"vllm-{tag}.tar.gz", "Sha256": "0" * 64}
                store.add(f"index/{tag}", Snapshot(files, 1, Version(tag)), tag, facts)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_tools(self.root, *arguments)


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path / "project")


def test_apply_prints_a_line_a_finding_and_ends_with_one_on_an_error(line: Line) -> None:
    done = line.run("apply", "v2.0.0")
    assert done.returncode == 1
    (found,) = [text for text in done.stdout.splitlines() if text.startswith("CT")]
    assert found.startswith("CT202 error vllm/models/ours.py:5 build requires `width`")
    assert "1 contract errors, at v2.0.0 first: CT202" in done.stderr
    # What was carried is there to be looked at.
    assert (line.root / "build/v2.0.0/src/vllm/models/ours.py").read_bytes() == OURS


def test_a_dry_run_says_the_same_as_data(line: Line) -> None:
    fits = json.loads(line.run("apply", "--dry-run", "--json", "v1.0.0").stdout)
    assert (fits["contract"]["modules"], fits["contract"]["findings"]) == (
        ["vllm/models/ours.py"],
        [],
    )
    done = line.run("apply", "--dry-run", "--json", "v2.0.0")
    assert done.returncode == 1
    assert [f["code"] for f in json.loads(done.stdout)["contract"]["findings"]] == ["CT202"]
    assert not (line.root / "build").exists()


def test_matrix_counts_and_lists_and_ends_with_one_on_an_error(line: Line) -> None:
    done = line.run("matrix", "v1.0.0", "v2.0.0", "--jobs", "2")
    assert done.returncode == 1
    assert [row.split() for row in done.stdout.splitlines() if row.startswith(" v")] == [
        ["v1.0.0", "ok"],
        ["v2.0.0", "1e"],
    ]
    assert "v2.0.0: CT202 error vllm/models/ours.py:5" in done.stdout
    assert line.run("matrix", "v1.0.0").returncode == 0


def test_contract_of_several_refs_gives_a_row_each(line: Line) -> None:
    done = line.run("contract", "v1.0.0", "v2.0.0", "--json", "--jobs", "2")
    assert done.returncode == 1
    rows = json.loads(done.stdout)
    assert [(row["ref"], [f["code"] for f in row["findings"]]) for row in rows] == [
        ("v1.0.0", []),
        ("v2.0.0", ["CT202"]),
    ]
    fits = line.run("contract")
    assert (fits.returncode, fits.stdout.strip()) == (0, "v1.0.0: 0 findings in 1 modules")
