"""One command in two fresh homes, under other settings: the same bytes, and again later."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
REF = "v0.19.1"


def tools(home: Path, *arguments: str, **more: str) -> str:
    """Run a command with a cache, a store and downloads of its own, below ``home``."""
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "VLLM_EXAONE_CACHE"}
    done = subprocess.run(
        [sys.executable, "-m", "tools", *arguments],
        cwd=ROOT,
        env=kept | {"HOME": str(home)} | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_fresh_homes_build_the_same_bytes_and_inspect_builds_them_again(tmp_path: Path) -> None:
    settings = (
        ("one", {}),
        ("two", {"TZ": "Asia/Seoul", "LC_ALL": "C", "PYTHONHASHSEED": "7", "COLUMNS": "40"}),
    )
    sums = []
    for name, more in settings:
        home = tmp_path / name
        tools(
            home, "build", REF, "--device", "cpu", "--delta", "--output", str(home / "out"), **more
        )
        assert (home / ".cache/vllm-exaone/store.git").is_dir()
        sums.append((home / "out" / REF / "dist/SHA256SUMS").read_text())
    assert sums[0] == sums[1]
    assert len(sums[0].splitlines()) == 2
    for wheel in (tmp_path / "one/out" / REF / "dist").glob("*.whl"):
        assert "the same bytes" in tools(tmp_path / "two", "inspect", "--rebuild", str(wheel))
