"""Repacking the CUDA wheel, beside copying it and beside unpacking and packing it.

Run with ``pytest tests/benchmarks --benchmark-only``; the groups stand in one table.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.tags import Tag
from packaging.version import Version

from tools.upstream.index import Index
from tools.wheel.archive import open_archive
from tools.wheel.changes import Change
from tools.wheel.repack import RepackJob, repack

pytestmark = pytest.mark.network

MODULE = "vllm/model_executor/models/registry.py"
GROUP = "wheel: the CUDA wheel of v0.32.0"


@pytest.fixture
def cuda_wheel(real_releases: Path) -> Path:
    tags = [Tag("cp38", "abi3", "manylinux_2_28_x86_64")]
    return Index.configured(real_releases).fetch_wheel("vllm", Version("0.32.0"), tags).path


@pytest.mark.benchmark(group=GROUP)
def test_repack(benchmark, cuda_wheel, tmp_path):
    with open_archive(cuda_wheel) as archive:
        module = archive.read(MODULE)
    job = RepackJob(
        wheel=cuda_wheel,
        out_dir=tmp_path / "out",
        release="v0.32.0",
        distribution="vllm",
        build_number=1,
        changes={MODULE: Change(module, module + b"#\n")},
    )
    benchmark.pedantic(repack, args=(job,), rounds=3, warmup_rounds=1)


@pytest.mark.benchmark(group=GROUP)
def test_copy_and_sha256(benchmark, cuda_wheel, tmp_path):
    def copy() -> str:
        target = tmp_path / cuda_wheel.name
        shutil.copyfile(cuda_wheel, target)
        with target.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    benchmark.pedantic(copy, rounds=3, warmup_rounds=1)


@pytest.mark.benchmark(group=GROUP)
def test_cp_and_sha256sum(benchmark, cuda_wheel, tmp_path):
    def copy() -> None:
        subprocess.run(["cp", "--", str(cuda_wheel), str(tmp_path)], check=True)
        target = tmp_path / cuda_wheel.name
        subprocess.run(["sha256sum", "--", str(target)], check=True, capture_output=True)

    benchmark.pedantic(copy, rounds=3, warmup_rounds=1)


@pytest.mark.benchmark(group=GROUP)
def test_unpack_and_pack(benchmark, cuda_wheel, tmp_path):
    pytest.importorskip("wheel")

    def again() -> None:
        command = [sys.executable, "-m", "wheel"]
        subprocess.run([*command, "unpack", "-d", str(tmp_path), str(cuda_wheel)], check=True)
        tree = tmp_path / "vllm-0.32.0"
        subprocess.run([*command, "pack", "-d", str(tmp_path), str(tree)], check=True)
        shutil.rmtree(tree)

    benchmark.pedantic(again, rounds=1)
