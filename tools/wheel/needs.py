"""What a source build needs, read from the tree, and what of it a machine lacks.

Nothing is known by release: compilers, build requirements and third-party sources are read from
the carried tree's own ``pyproject.toml`` and CMake files, so that it also holds for commits.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from packaging.version import Version

from tools.errors import BadInput, EnvironmentLacks
from tools.tree import Tree
from tools.wheel.machine import Machine

GIB = 1 << 30
# The largest resident size of one compiler process on vLLM 0.32.0's own sources, rounded up:
# g++ 12.2 -O2, AVX-512, csrc/cpu/torch_bindings.cpp: 1.43 GiB (two others: 1.34 and 1.35). For
# nvcc it is a lower bound: it was not measured, and a kernel's template instances take several
# times as much, for each architecture. Whoever builds for CUDA sets --jobs by experience.
MEMORY_PER_JOB = 3 * GIB // 2
# PyTorch's own CUDA headers (ATen/cuda/CUDAContext.h) include these; a toolkit can lack them.
CUDA_HEADERS = ("cuda_runtime.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h")


class Device(Enum):
    """Upstream's build targets that are supported here."""

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"


@dataclass(frozen=True)
class Source:
    """A repository that CMake clones while it configures.

    Attributes:
        url: Where from.
        override: The environment variable that names a local checkout instead, or "".
        file: The CMake file that names it.
    """

    url: str
    override: str
    file: str


@dataclass(frozen=True)
class Needs:
    """What a build of one tree for one device needs.

    Attributes:
        device: The target.
        requires: ``build-system.requires``; cmake and ninja come from there.
        gxx: The oldest g++ that the CMake files accept, or None where they name none.
        numa: libnuma's header and library are used.
        rust: A Rust part is compiled.
        sources: Repositories that CMake clones.
        exact_version: ``setup.py`` takes the whole version from ``VLLM_VERSION_OVERRIDE``; older
            ones add a suffix of their own to a pretended one.
    """

    device: Device
    requires: tuple[str, ...]
    gxx: Version | None
    numa: bool
    rust: bool
    sources: tuple[Source, ...]
    exact_version: bool


@dataclass(frozen=True)
class Lack:
    """One thing that is missing: what, and how to get it."""

    what: str
    remedy: str


def read_needs(tree: Tree, device: Device) -> Needs:
    """Read what a source build needs.

    Args:
        tree: The carried tree.
        device: What to build for.

    Raises:
        BadInput: The tree has no readable ``pyproject.toml`` or no ``setup.py``.
    """
    setup = tree.read("setup.py")
    try:
        project = tomllib.loads((tree.read("pyproject.toml") or b"").decode())
        requires = tuple(str(item) for item in project["build-system"]["requires"])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError):
        raise BadInput("the tree has no pyproject.toml that says what a build requires") from None
    if setup is None:
        raise BadInput("the tree has no setup.py, so it is not a vLLM tree")
    cpu = _text(tree, "cmake/cpu_extension.cmake") if device is Device.CPU else ""
    oldest = re.search(r"gcc/g\+\+ *>= *(\d+(?:\.\d+)*)", cpu)
    return Needs(
        device=device,
        requires=requires,
        gxx=Version(oldest[1]) if oldest else None,
        numa=bool(re.search(r"\bnuma\b", cpu)),
        rust=any(re.match(r"setuptools[-_]rust\b", item) for item in requires),
        sources=_sources(tree, device),
        exact_version=b"VLLM_VERSION_OVERRIDE" in setup,
    )


def preflight(
    needs: Needs, machine: Machine, environment: Mapping[str, str], jobs: int | None = None
) -> tuple[Lack, ...]:
    """Return everything that a machine lacks for a build; nothing is started or changed.

    Args:
        needs: From :func:`read_needs`.
        machine: The machine.
        environment: The environment variables of the build.
        jobs: Compiler processes at a time, where the user sets it.
    """
    lacks = [*_compilers(needs, machine), *_memory(machine, jobs)]
    problem = machine.unresolvable(needs.requires)
    if problem is not None:
        lacks.append(
            Lack(
                f"build requirements from the package index ({problem})",
                "configure pip or uv for an index that has them",
            )
        )
    return tuple(lacks + _network(needs, machine, environment))


def refuse(needs: Needs, lacks: tuple[Lack, ...]) -> None:
    """Stop before anything starts where something is missing.

    Raises:
        EnvironmentLacks: With every lack in one line, and how to get each in the hint.
    """
    if not lacks:
        return
    count = f"{len(lacks)} things are" if len(lacks) > 1 else "1 thing is"
    raise EnvironmentLacks(
        f"a source build for {needs.device.value} cannot start, {count} missing: "
        + "; ".join(lack.what for lack in lacks),
        "; ".join(dict.fromkeys(lack.remedy for lack in lacks)),
    )


def fitting_jobs(machine: Machine) -> int:
    """Return how many compiler processes the processors and the free memory allow, at least 1."""
    return max(1, min(machine.processors(), machine.free_memory() // MEMORY_PER_JOB))


def _compilers(needs: Needs, machine: Machine) -> list[Lack]:
    lacks = []
    found = machine.version_of("g++", "-dumpfullversion")
    if found is None:
        lacks.append(Lack("g++, the C++ compiler", "install g++"))
    elif needs.gxx is not None and found < needs.gxx:
        lacks.append(
            Lack(
                f"g++ {needs.gxx} or later (upstream's CMake files ask for it; here is {found})",
                f"install g++ {needs.gxx} or later and set CXX and CC to it",
            )
        )
    if needs.numa and not machine.has_header("numa.h"):
        lacks.append(Lack("libnuma's header numa.h", "install libnuma-dev (numactl-devel)"))
    if needs.device is Device.CUDA:
        lacks += _cuda(machine)
    if needs.device is Device.ROCM and machine.version_of("hipcc", "--version") is None:
        lacks.append(Lack("hipcc, the ROCm compiler", "install ROCm and set ROCM_HOME to it"))
    if needs.rust and machine.version_of("cargo", "--version") is None:
        lacks.append(Lack("cargo, for upstream's Rust parts", "install Rust with its toolchain"))
    if machine.version_of("git", "--version") is None:
        lacks.append(Lack("git, which CMake clones with", "install git"))
    return lacks


def _cuda(machine: Machine) -> list[Lack]:
    remedy = "install the whole CUDA toolkit and set CUDA_HOME to it"
    if machine.version_of("nvcc", "--version") is None:
        return [Lack("nvcc, the CUDA compiler", remedy)]
    missing = [name for name in CUDA_HEADERS if not machine.has_header(name, cuda=True)]
    if not missing:
        return []
    return [Lack(f"headers of the CUDA toolkit ({', '.join(missing)})", remedy)]


def _memory(machine: Machine, jobs: int | None) -> list[Lack]:
    needed = MEMORY_PER_JOB * (jobs or 1)
    free = machine.free_memory()
    if free >= needed:
        return []
    count = f"{jobs} compiler jobs" if jobs and jobs > 1 else "a compiler job"
    return [
        Lack(
            f"memory ({count} may take {needed / GIB:.1f} GiB, {free / GIB:.1f} GiB are free)",
            "run fewer jobs" if jobs and jobs > 1 else "free memory or use a larger machine",
        )
    ]


def _network(needs: Needs, machine: Machine, environment: Mapping[str, str]) -> list[Lack]:
    wanted = [
        source
        for source in needs.sources
        if not machine.is_directory(environment.get(source.override, ""))
    ]
    unreachable = machine.unreachable([source.url for source in wanted])
    missing = [source for source in wanted if source.url in unreachable]
    if not missing:
        return []
    overrides = [source.override for source in missing if source.override]
    local = f", or set {', '.join(overrides)} to checkouts of them" if overrides else ""
    urls = ", ".join(source.url for source in missing)
    return [
        Lack(
            f"network for third-party sources ({len(missing)} cannot be reached: {urls})",
            f"build where the network reaches them{local}",
        )
    ]


def _sources(tree: Tree, device: Device) -> tuple[Source, ...]:
    if device is Device.CPU:
        files = ["cmake/cpu_extension.cmake"]
    else:
        files = ["CMakeLists.txt", *tree.paths("cmake/external_projects/")]
    found: dict[str, Source] = {}
    for file in files:
        override = ""
        for line in _text(tree, file).splitlines():
            code = line.split("#", 1)[0]
            variable = re.search(r"ENV\{(\w*(?:SRC_DIR|SOURCE_DIR|ROOT_DIR)\w*)\}", code)
            override = variable[1] if variable else override
            url = re.search(r"(?:GIT_REPOSITORY|set\(\w+)\s+\"?(https://[^\s\")]+)", code)
            if url and _is_for(url[1], device):
                found.setdefault(url[1], Source(url[1], override, file))
    return tuple(found.values())


def _is_for(url: str, device: Device) -> bool:
    """Tell whether a source is cloned for a device; the CMake files choose by branches."""
    if "ComputeLibrary" in url:
        return False  # Arm's, which only Arm builds clone; they say so themselves
    return ("/ROCm/" in url) == (device is Device.ROCM)


def _text(tree: Tree, path: str) -> str:
    return (tree.read(path) or b"").decode("utf-8", "replace")
