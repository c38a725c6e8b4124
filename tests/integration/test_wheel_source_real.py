"""Source builds with real build tools: a small tree here, upstream's own where there is time."""

import os
from pathlib import Path

import pytest
from packaging.version import Version

from tools.carry import Carrier, check_out
from tools.errors import CheckFailed
from tools.git import GitTree
from tools.overlay import read_overlay
from tools.series import read_series
from tools.settings import Settings
from tools.upstream import Store, obtain
from tools.wheel.needs import Device, read_needs
from tools.wheel.source import SourceJob, build_source_distribution, build_wheel, check_machine

pytestmark = pytest.mark.network

ROOT = Path(__file__).resolve().parents[2]
VERSION = Version("1.2.3+exaone.1")
SETUP = """
import os
from setuptools import setup
if os.environ["VLLM_TARGET_DEVICE"] != "cpu":
    raise SystemExit("cannot compile for that")
version = os.environ["VLLM_VERSION_OVERRIDE"]
with open("vllm/_version.py", "w") as stream:
    stream.write(f"version = {version!r}\\n")
setup(name="vllm", version=version, packages=["vllm"])
"""
PROJECT = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "vllm").mkdir(parents=True)
    (root / "vllm/__init__.py").write_text("")
    (root / "setup.py").write_text(SETUP)
    (root / "pyproject.toml").write_text(PROJECT)
    (root / ".git").write_text("gitdir: elsewhere\n")
    return root


def test_build_runs_on_a_copy_with_the_version_set(tree, tmp_path):
    before = sorted(tree.rglob("*"))
    job = SourceJob(tree, tmp_path / "out", Device.CPU, VERSION)
    wheel = build_wheel(job)
    assert wheel.name == "vllm-1.2.3+exaone.1-py3-none-any.whl"
    assert sorted(tree.rglob("*")) == before
    made = build_source_distribution(job)
    assert made.version == VERSION
    assert {"vllm/__init__.py", "vllm/_version.py", "PKG-INFO", "setup.py"} <= set(made.files)
    assert set(job.out_dir.iterdir()) == {made.path, wheel}


def test_build_that_fails_leaves_nothing_and_says_why(tree, tmp_path, monkeypatch):
    (tree / "setup.py").write_text(SETUP.replace('!= "cpu"', '== "cpu"'))
    job = SourceJob(tree, tmp_path / "out", Device.CPU, VERSION)
    with pytest.raises(CheckFailed, match="upstream's build failed") as caught:
        build_wheel(job)
    assert "\n" not in caught.value.message
    assert list(job.out_dir.iterdir()) == []


def test_build_of_another_version_is_not_published(tree, tmp_path):
    (tree / "setup.py").write_text(SETUP.replace("version=version", 'version="9.9"'))
    job = SourceJob(tree, tmp_path / "out", Device.CPU, VERSION)
    for build in (build_wheel, build_source_distribution):
        with pytest.raises(CheckFailed, match=r"made 9\.9, not 1\.2\.3\+exaone\.1"):
            build(job)
    assert list(job.out_dir.iterdir()) == []


@pytest.fixture
def store(real_releases: Path) -> Store:
    return Store.open(Settings.load(ROOT))


@pytest.mark.parametrize(
    ("release", "exact", "rust", "sources"),
    [("v0.10.0", False, False, 3), ("v0.19.1", True, False, None), ("v0.32.0", True, True, 10)],
)
def test_needs_of_real_releases_are_read(store, release, exact, rust, sources):
    tree = GitTree(store.git, obtain(store, release).commit)
    cpu = read_needs(tree, Device.CPU)
    assert cpu.gxx == Version("12.3")
    assert cpu.numa
    assert [source.url.rpartition("/")[2] for source in cpu.sources] == ["oneDNN.git"]
    cuda = read_needs(tree, Device.CUDA)
    assert (cuda.exact_version, cuda.rust) == (exact, rust)
    overrides = {source.url.rpartition("/")[2]: source.override for source in cuda.sources}
    assert overrides["cutlass.git"] == "VLLM_CUTLASS_SRC_DIR"
    assert overrides["flash-attention.git"] == "VLLM_FLASH_ATTN_SRC_DIR"
    if sources is not None:
        assert len(cuda.sources) == sources


@pytest.mark.engine
def test_source_distribution_of_a_carried_tree_has_the_overlay_and_the_version(
    store, tmp_path, real_releases, monkeypatch
):
    """No compiler and no third-party source is needed, but torch, which setup.py imports."""
    monkeypatch.setenv("UV_CACHE_DIR", str(real_releases / "uv"))
    series, overlay = read_series(ROOT / "patches"), read_overlay(ROOT / "vllm_exaone")
    carrier = Carrier(store.git, series, overlay, lambda name: obtain(store, name).commit)
    carried = carrier.carry(obtain(store, "v0.19.1"))
    source = check_out(store.git, carried, tmp_path / "src").path
    job = SourceJob(source, tmp_path / "out", Device.CPU, Version("0.19.1+exaone.1"))
    made = build_source_distribution(job)
    targets = {laid.file.target for laid in carried.overlay if laid.laid}
    assert targets
    assert targets <= set(made.files)
    assert {"csrc/torch_bindings.cpp", "docs/README.md"} <= set(made.files)
    _, lacks = check_machine(job)
    assert all(lack.remedy for lack in lacks)
    assert not os.path.lexists(source / "vllm/_version.py")
