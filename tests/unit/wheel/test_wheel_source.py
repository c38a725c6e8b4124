"""The preflight of a source build says exactly what is missing before anything starts."""

import os
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from packaging.version import Version

from tools.errors import BadInput, EnvironmentLacks
from tools.tree import DirectoryTree, MappingTree
from tools.wheel.machine import LocalMachine
from tools.wheel.needs import (
    GIB,
    Device,
    Lack,
    Source,
    fitting_jobs,
    preflight,
    read_needs,
    refuse,
)
from tools.wheel.source import SourceJob, build_environment, build_wheel, check_machine

TREE = MappingTree(
    {
        "setup.py": b"version = os.getenv('VLLM_VERSION_OVERRIDE')\n",
        "pyproject.toml": b'[build-system]\nrequires = ["cmake>=3.26", "setuptools-rust>=1.9"]\n',
        "CMakeLists.txt": b"""
if (DEFINED ENV{ONE_SRC_DIR})
  set(ONE_SRC_DIR $ENV{ONE_SRC_DIR})
endif()
# GIT_REPOSITORY https://example.invalid/comment.git
FetchContent_Declare(one
  GIT_REPOSITORY https://example.invalid/one.git
  GIT_TAG 1)
""",
        "cmake/external_projects/two.cmake": b"""
set(UPSTREAM "https://example.invalid/two.git")
set(OTHER "https://example.invalid/ROCm/three.git")
""",
        "cmake/cpu_extension.cmake": b"""
message(FATAL_ERROR "X86 backend requires gcc/g++ >= 12.3")
set(FETCHCONTENT_SOURCE_DIR_DNN "$ENV{FETCHCONTENT_SOURCE_DIR_DNN}")
  GIT_REPOSITORY https://example.invalid/dnn.git
  GIT_REPOSITORY https://example.invalid/ComputeLibrary.git
list(APPEND LIBS numa)
""",
    }
)


@dataclass(frozen=True)
class FakeMachine:
    """A machine that has everything, but for what a test takes away."""

    versions: dict[str, str] = field(
        default_factory=lambda: dict.fromkeys(["g++", "nvcc", "hipcc", "cargo", "git"], "13.2")
    )
    headers: frozenset[str] = frozenset(
        {"numa.h", "cuda_runtime.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h"}
    )
    directories: frozenset[str] = frozenset()
    cores: int = 8
    memory: int = 64 * GIB
    problem: str | None = None
    offline: bool = False

    def version_of(self, program, option):
        return Version(self.versions[program]) if program in self.versions else None

    def has_header(self, name, *, cuda=False):
        return name in self.headers

    def is_directory(self, path):
        return path in self.directories

    def processors(self):
        return self.cores

    def free_memory(self):
        return self.memory

    def unresolvable(self, requirements):
        return self.problem

    def unreachable(self, urls):
        return frozenset(urls) if self.offline else frozenset()


PLAIN = {"g++": "9", "git": "2", "cargo": "1"}


def test_needs_are_read_from_the_tree():
    cpu = read_needs(TREE, Device.CPU)
    assert (cpu.gxx, cpu.numa, cpu.rust, cpu.exact_version) == (Version("12.3"), True, True, True)
    assert cpu.sources == (
        Source(
            "https://example.invalid/dnn.git",
            "FETCHCONTENT_SOURCE_DIR_DNN",
            "cmake/cpu_extension.cmake",
        ),
    )
    cuda = read_needs(TREE, Device.CUDA)
    assert (cuda.gxx, cuda.numa) == (None, False)
    assert cuda.sources == (
        Source("https://example.invalid/one.git", "ONE_SRC_DIR", "CMakeLists.txt"),
        Source("https://example.invalid/two.git", "", "cmake/external_projects/two.cmake"),
    )
    rocm = read_needs(TREE, Device.ROCM)
    assert [source.url for source in rocm.sources] == ["https://example.invalid/ROCm/three.git"]


@pytest.mark.parametrize("missing", ["setup.py", "pyproject.toml"])
def test_tree_that_is_not_vllms_is_refused(missing):
    files = {path: data for path, data in TREE.files.items() if path != missing}
    with pytest.raises(BadInput, match=missing.replace(".", r"\.")):
        read_needs(MappingTree(files), Device.CPU)


@pytest.mark.parametrize("device", list(Device))
def test_machine_that_has_everything_lacks_nothing(device):
    needs = read_needs(TREE, device)
    lacks = preflight(needs, FakeMachine(), {})
    assert lacks == ()
    refuse(needs, lacks)


def test_cpu_build_without_anything_is_refused_word_for_word():
    needs = read_needs(TREE, Device.CPU)
    machine = FakeMachine(
        versions={}, headers=frozenset(), memory=GIB, problem="no version of cmake", offline=True
    )
    with pytest.raises(EnvironmentLacks) as caught:
        refuse(needs, preflight(needs, machine, {}))
    assert caught.value.message == (
        "a source build for cpu cannot start, 7 things are missing: "
        "g++, the C++ compiler; "
        "libnuma's header numa.h; "
        "cargo, for upstream's Rust parts; "
        "git, which CMake clones with; "
        "memory (a compiler job may take 1.5 GiB, 1.0 GiB are free); "
        "build requirements from the package index (no version of cmake); "
        "network for third-party sources "
        "(1 cannot be reached: https://example.invalid/dnn.git)"
    )
    assert caught.value.hint == (
        "install g++; "
        "install libnuma-dev (numactl-devel); "
        "install Rust with its toolchain; "
        "install git; "
        "free memory or use a larger machine; "
        "configure pip or uv for an index that has them; "
        "build where the network reaches them, "
        "or set FETCHCONTENT_SOURCE_DIR_DNN to checkouts of them"
    )
    assert caught.value.exit_code == 4


def test_no_network_for_third_party_sources_is_said_word_for_word():
    needs = read_needs(TREE, Device.CUDA)
    with pytest.raises(EnvironmentLacks) as caught:
        refuse(needs, preflight(needs, FakeMachine(offline=True), {}))
    assert caught.value.message == (
        "a source build for cuda cannot start, 1 thing is missing: "
        "network for third-party sources (2 cannot be reached: "
        "https://example.invalid/one.git, https://example.invalid/two.git)"
    )
    assert caught.value.hint == (
        "build where the network reaches them, or set ONE_SRC_DIR to checkouts of them"
    )


def test_local_checkout_needs_no_network():
    needs = read_needs(TREE, Device.CPU)
    machine = FakeMachine(offline=True, directories=frozenset({"/dnn"}))
    assert preflight(needs, machine, {"FETCHCONTENT_SOURCE_DIR_DNN": "/dnn"}) == ()
    assert len(preflight(needs, machine, {"FETCHCONTENT_SOURCE_DIR_DNN": "/absent"})) == 1


@pytest.mark.parametrize(
    ("device", "change", "expected"),
    [
        (
            Device.CPU,
            {"versions": FakeMachine().versions | {"g++": "12.2"}},
            "g++ 12.3 or later (upstream's CMake files ask for it; here is 12.2)",
        ),
        (
            Device.CUDA,
            {"versions": PLAIN},
            "nvcc, the CUDA compiler",
        ),
        (
            Device.CUDA,
            {"headers": frozenset({"cuda_runtime.h", "cusparse.h"})},
            "headers of the CUDA toolkit (cublas_v2.h, cusolverDn.h)",
        ),
        (
            Device.ROCM,
            {"versions": PLAIN},
            "hipcc, the ROCm compiler",
        ),
    ],
)
def test_each_lack_is_named(device, change, expected):
    needs = read_needs(TREE, device)
    assert [lack.what for lack in preflight(needs, replace(FakeMachine(), **change), {})] == [
        expected
    ]


def test_jobs_fit_processors_and_memory():
    assert fitting_jobs(FakeMachine(cores=8, memory=6 * GIB)) == 4
    assert fitting_jobs(FakeMachine(cores=2, memory=600 * GIB)) == 2
    assert fitting_jobs(FakeMachine(cores=2, memory=0)) == 1
    needs = read_needs(TREE, Device.CPU)
    (lack,) = preflight(needs, FakeMachine(memory=6 * GIB), {}, jobs=5)
    assert lack == Lack(
        "memory (5 compiler jobs may take 7.5 GiB, 6.0 GiB are free)", "run fewer jobs"
    )


def test_version_is_set_explicitly(tmp_path):
    job = SourceJob(tmp_path, tmp_path, Device.CUDA, Version("1.2.3+exaone.1"))
    needs = read_needs(TREE, Device.CUDA)
    assert build_environment(job, needs, FakeMachine(cores=3)) == {
        "VLLM_TARGET_DEVICE": "cuda",
        "MAX_JOBS": "3",
        "VLLM_VERSION_OVERRIDE": "1.2.3+exaone.1",
    }
    older = replace(needs, exact_version=False)
    more = replace(job, jobs=7, architectures="9.0a;10.0")
    assert build_environment(more, older, FakeMachine()) == {
        "VLLM_TARGET_DEVICE": "cuda",
        "MAX_JOBS": "7",
        "SETUPTOOLS_SCM_PRETEND_VERSION": "1.2.3+exaone.1",
        "TORCH_CUDA_ARCH_LIST": "9.0a;10.0",
    }


@pytest.fixture
def tree(tmp_path) -> Path:
    root = tmp_path / "tree"
    for path, data in TREE.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def test_compiled_parts_come_from_a_named_wheel_of_this_release_only(tree, tmp_path):
    wheel = tmp_path / "vllm-1.2.3-cp38-abi3-manylinux_2_28_x86_64.whl"
    wheel.touch()
    job = SourceJob(tree, tmp_path, Device.CUDA, Version("1.2.3+exaone.1"), precompiled=wheel)
    bare = FakeMachine(versions={}, headers=frozenset(), memory=0, offline=True)
    needs, lacks = check_machine(job, bare)
    assert lacks == ()
    variables = build_environment(job, needs, bare)
    assert variables["VLLM_USE_PRECOMPILED"] == "1"
    assert variables["VLLM_PRECOMPILED_WHEEL_LOCATION"] == str(wheel)
    _, lacks = check_machine(job, replace(bare, problem="none"))
    assert lacks[0].what == "build requirements from the package index (none)"
    for changed, message in (
        (replace(job, version=Version("1.2.4+exaone.1")), "not of 1.2.4"),
        (replace(job, precompiled=tmp_path / "nightly.whl"), "there is no wheel"),
        (replace(job, device=Device.CPU), "for CUDA only"),
    ):
        with pytest.raises(BadInput, match=message):
            check_machine(changed, bare)


def test_nothing_starts_where_something_is_missing(tree, tmp_path):
    job = SourceJob(tree, tmp_path / "out", Device.CPU, Version("1.2.3"))
    with pytest.raises(EnvironmentLacks, match="network for third-party sources"):
        build_wheel(job, FakeMachine(offline=True))
    assert not (tmp_path / "out").exists()


def test_repositories_are_asked_as_git_would_ask():
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200 if "good" in self.path else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        base = f"http://127.0.0.1:{server.server_port}"
        urls = [f"{base}/good.git", f"{base}/bad.git", "http://127.0.0.1:9/closed.git"]
        assert LocalMachine(seconds=5).unreachable(urls) == frozenset(urls[1:])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "/good.git/info/refs?service=git-upload-pack" in asked


def test_this_machine_answers(tmp_path, monkeypatch):
    machine = LocalMachine(seconds=20)
    assert machine.version_of("git", "--version") > Version("2")
    assert machine.version_of("no-such-program", "--version") is None
    assert machine.processors() >= 1
    assert machine.free_memory() > 0
    assert machine.is_directory(str(tmp_path))
    assert not machine.is_directory("")
    compiler = tmp_path / "cxx"
    compiler.write_text('#!/bin/sh\n[ "$1" = -dumpfullversion ] && echo 14.1.0 || cat\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert machine.version_of("g++", "-dumpfullversion") == Version("14.1.0")
    assert machine.has_header("x.h")
    monkeypatch.setenv("CXX", "/bin/false")
    assert not machine.has_header("x.h")


def test_control_group_limits_the_memory(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  1000 kB\n")
    machine = LocalMachine(root=tmp_path)
    assert machine.free_memory() == 1_024_000
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("300\n")
    for limit, free in (("max", 1_024_000), ("1000", 700), ("100", 0), ("9999999999", 1_024_000)):
        (group / "memory.max").write_text(f"{limit}\n")
        assert machine.free_memory() == free


def test_index_that_does_not_answer_is_said(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    problem = LocalMachine().unresolvable(["setuptools"])
    assert problem is not None
    assert "127.0.0.1:9" in problem
    assert "\n" not in problem


def test_tree_on_disk_reads_like_one_in_memory(tree):
    assert read_needs(DirectoryTree(tree), Device.CUDA) == read_needs(TREE, Device.CUDA)
