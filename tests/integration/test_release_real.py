"""A real release into a bare repository: once, again, and once more after a person's commit."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.wheel.build import read_sums

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
REF = "v0.19.1"


def test_release_twice_then_refused_after_a_human_commit(
    real_releases: Path, user_git: Callable[..., str], tmp_path: Path
) -> None:
    target, out = tmp_path / "target.git", tmp_path / "out"
    user_git(tmp_path, "init", "-q", "--bare", target.name)

    def release(*more: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable, "-m", "tools", "release", REF, "--device", "cpu", "--json",
            "--unverified", "--to", str(target), "--output", str(out), *more,
        ]  # fmt: skip
        return subprocess.run(
            command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
        )

    first = release()
    assert first.returncode == 0, first.stderr
    data: dict[str, Any] = json.loads(first.stdout)
    assert (data["state"], data["tag"]) == ("pushed", f"{REF}+exaone.1")
    patches = (ROOT / "patches/series").read_text().splitlines()
    listed = user_git(target, "log", "--format=%an|%s", f"release/{REF}").splitlines()
    assert len(data["commits"]) == len(listed) - 1  # the first commit is upstream's tree
    assert listed[0].endswith("Lay the EXAONE-4.5 overlay over the tree")
    assert all(row.startswith("vllm-exaone maintainers|") for row in listed[1:-1])
    assert 5 < len(listed) - 2 < len(patches)
    made = Path(data["path"])
    assert read_sums(made / "SHA256SUMS") == data["files"]
    for name, sha256 in data["files"].items():
        with (made / name).open("rb") as stream:
            assert hashlib.file_digest(stream, "sha256").hexdigest() == sha256

    second = release("--again")
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["tag"] == f"{REF}+exaone.2"
    assert json.loads(second.stdout)["carried"] == data["carried"]
    refs = user_git(target, "for-each-ref", "--format=%(refname)").split()
    assert refs == [
        f"refs/heads/release/{REF}",
        f"refs/tags/{REF}+exaone.1",
        f"refs/tags/{REF}+exaone.2",
    ]

    clone = tmp_path / "clone"
    user_git(tmp_path, "clone", "-q", "--branch", f"release/{REF}", str(target), clone.name)
    (clone / "NOTES").write_text("mine\n")
    user_git(clone, "add", "NOTES")
    user_git(clone, "commit", "-qm", "Note what matters")
    user_git(clone, "push", "-q")
    mine = user_git(clone, "rev-parse", "HEAD").strip()
    refused = release("--again")
    assert refused.returncode == 1
    assert mine[:7] in refused.stderr
    assert "Note what matters" in refused.stderr
    assert user_git(target, "rev-parse", f"release/{REF}").strip() == mine
    assert len(user_git(target, "for-each-ref").splitlines()) == 3
