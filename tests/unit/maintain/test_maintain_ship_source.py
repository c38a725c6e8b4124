"""Source builds from the carried tree: the version they begin with, and what stops them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from tests.unit.carry.conftest import Workshop, workshop  # noqa: F401  (the fixture)
from tests.unit.wheel.test_wheel_source import FakeMachine
from tools.carry import Carried
from tools.errors import BadInput, CheckFailed, EnvironmentLacks
from tools.maintain.ship_source import SourceRequest, build_from_source, upstream_version
from tools.settings import Settings
from tools.upstream import Store, parse_ref
from tools.upstream.archive import Snapshot, SourceFile
from tools.wheel.needs import Device

SETUP = b"""
import os
import re
from setuptools import setup
setup(name="vllm", version=os.environ["VLLM_VERSION_OVERRIDE"], packages=["vllm"])
"""
PROJECT = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
CMAKE = b"""
message(FATAL_ERROR "X86 backend requires gcc/g++ >= 12.3")
  GIT_REPOSITORY http://127.0.0.1:9/one.git
  GIT_REPOSITORY https://127.0.0.1:9/dnn.git
"""
TREE = {
    "setup.py": SETUP,
    "pyproject.toml": PROJECT,
    "cmake/cpu_extension.cmake": CMAKE,
    "vllm/__init__.py": b"A = 1\n",
}


@pytest.fixture
def carried(workshop: Workshop) -> Carried:  # noqa: F811
    upstream = workshop.release("v1.2.3", TREE)

    def change(work: Path) -> None:
        (work / "vllm/__init__.py").write_bytes(b"A = 2\n")

    return workshop.carrier(workshop.patch("0001-two", "v1.2.3", change)).carry(upstream)


@pytest.mark.parametrize(
    ("ref", "device", "version"),
    [
        ("v1.2.3", Device.CUDA, "1.2.3"),
        ("v1.2.3", Device.CPU, "1.2.3+cpu"),
        ("v1.2.3rc1", Device.ROCM, "1.2.3rc1"),
        ("main", Device.CUDA, "0.dev0+g{commit}"),
        ("main", Device.CPU, "0.dev0+g{commit}.cpu"),
    ],
)
def test_version_is_the_releases_or_names_the_commit(
    carried: Carried, ref: str, device: Device, version: str
) -> None:
    named = replace(carried, upstream=replace(carried.upstream, ref=parse_ref(ref)))
    expected = version.format(commit=carried.upstream.commit[:12])
    assert upstream_version(named, device) == Version(expected)


def test_what_is_missing_stops_the_build_before_it_starts(
    carried: Carried,
    workshop: Workshop,  # noqa: F811
    tmp_path: Path,
) -> None:
    request = SourceRequest("cpu", tmp_path / "build", 1)
    with pytest.raises(EnvironmentLacks) as caught:
        build_from_source(workshop.git, carried, request, lambda _: None, FakeMachine(offline=True))
    assert caught.value.message == (
        "a source build for cpu cannot start, 1 thing is missing: network for third-party sources "
        "(1 cannot be reached: https://127.0.0.1:9/dnn.git)"
    )
    assert caught.value.exit_code == 4
    assert not (tmp_path / "build/dist").exists()


def test_conflict_and_unknown_device_are_refused(
    carried: Carried,
    workshop: Workshop,  # noqa: F811
    tmp_path: Path,
) -> None:
    request = SourceRequest("tpu", tmp_path, 1)
    with pytest.raises(BadInput, match="'tpu' is no device"):
        build_from_source(workshop.git, carried, request, lambda _: None)
    (outcome,) = carried.outcomes
    stuck = replace(carried, outcomes=(replace(outcome, outcome=type(outcome.outcome).CONFLICT),))
    with pytest.raises(CheckFailed, match="0001-two is in conflict at v1"):
        build_from_source(workshop.git, stuck, replace(request, device="cpu"), lambda _: None)


def project(root: Path) -> None:
    """Write a project without patches, whose store has one release."""
    (root / "patches").mkdir(parents=True)
    (root / "patches/series").write_text("")
    (root / "vllm_exaone").mkdir()
    (root / "vllm_exaone/overlay.toml").write_text("")
    (root / "pyproject.toml").write_text(
        '[tool.vllm-exaone]\ndefault-ref = "v1.2.3"\ngit-url = "https://x.invalid/y.git"\n'
        "build-number = 1\n"
    )
    files = tuple(SourceFile(path, False, data) for path, data in TREE.items())
    facts = {"Kind": "sdist", "File": "vllm-1.2.3.tar.gz", "Sha256": "0" * 64}
    with Store.open(Settings.load(root)) as store:
        store.add("index/v1.2.3", Snapshot(files, 1, Version("1.2.3")), "v1.2.3", facts)


def test_command_line_ends_with_4_and_says_what_is_missing_word_for_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a compiler, whose index and third-party hosts refuse."""
    root = tmp_path / "project"
    project(root)
    git = next(Path(d, "git") for d in os.environ["PATH"].split(":") if Path(d, "git").exists())
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "git").symlink_to(git)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("UV_OFFLINE", "1")

    def build(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tools", "build", "--device", "cpu", *more]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    done = build("--from-source")
    assert done.returncode == 4
    assert "g++, the C++ compiler; " in done.stderr
    assert (
        "network for third-party sources (1 cannot be reached: https://127.0.0.1:9/dnn.git)\n"
        in done.stderr
    )
    # How many depends on the machine: its memory counts too.
    assert re.search(
        r"^error: a source build for cpu cannot start, \d things are missing: ",
        done.stderr,
        re.MULTILINE,
    )
    assert "build where the network reaches them" in done.stderr
    assert not (root / "build/v1.2.3/dist").exists()
    wrong = build("--precompiled", "no.whl")
    assert (wrong.returncode, "there is no wheel no.whl" in wrong.stderr) == (2, True)


@pytest.mark.network
def test_source_distribution_is_made_where_a_build_cannot_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_git: Callable[..., str]
) -> None:
    root = tmp_path / "project"
    project(root)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    done = subprocess.run(
        [sys.executable, "-m", "tools", "build", "--device", "cpu", "--sdist", "--json"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["version"] == "1.2.3+cpu.exaone.1"
    assert {"vllm/__init__.py", "PKG-INFO", "cmake/cpu_extension.cmake"} & set(data["files"]) >= {
        "vllm/__init__.py",
        "PKG-INFO",
    }
    name = Path(data["path"]).name
    assert f"{data['sha256']}  {name}\n" in (root / "build/v1.2.3/dist/SHA256SUMS").read_text()
    assert user_git(root / "build/v1.2.3/src", "status", "--porcelain") == ""
