"""A build from source: upstream's own build, on a copy of the carried tree.

For a series that touches compiled code, for another platform, or by choice. The version is set
explicitly, and where compiled parts are taken over they come from a wheel file that the caller
names, never from one that upstream's ``setup.py`` would look up.
"""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_sdist_filename
from packaging.version import Version
from uv import find_uv_bin

from tools.errors import BadInput, CheckFailed
from tools.git import Git
from tools.tree import DirectoryTree
from tools.wheel.machine import LocalMachine, Machine
from tools.wheel.metadata import DISTRIBUTIONS, check_release, parse_name
from tools.wheel.needs import Device, Lack, Needs, fitting_jobs, preflight, read_needs, refuse
from tools.wheel.publish import disk_errors, output_directory, staging

_WHO = ("NAME", "EMAIL")


@dataclass(frozen=True)
class SourceJob:
    """What to build from source.

    Attributes:
        source: The carried tree, checked out; it is not written to.
        out_dir: Where the result goes.
        device: What to build for.
        version: The version, such as ``0.32.0+exaone.1``.
        python: The interpreter to build for, as uv names it.
        jobs: Compiler processes at a time; None takes what processors and memory allow.
        architectures: ``TORCH_CUDA_ARCH_LIST`` for CUDA, such as ``9.0a;10.0``; "" is upstream's.
        precompiled: A wheel of the same release to take the compiled parts from, or None.
    """

    source: Path
    out_dir: Path
    device: Device
    version: Version
    python: str = ""
    jobs: int | None = None
    architectures: str = ""
    precompiled: Path | None = None


@dataclass(frozen=True)
class SourceDistribution:
    """A source distribution of a carried tree: its path, version, and files below its root."""

    path: Path
    version: Version
    files: tuple[str, ...]


def check_machine(job: SourceJob, machine: Machine | None = None) -> tuple[Needs, tuple[Lack, ...]]:
    """Return what a build needs and what of it is missing, before anything starts.

    Where compiled parts are taken over, no compiler and no third-party source is needed.

    Raises:
        BadInput: The tree is not a vLLM tree, or the named wheel is not of this release.
    """
    needs = read_needs(DirectoryTree(job.source), job.device)
    asked = machine or LocalMachine()
    if job.precompiled is None:
        return needs, preflight(needs, asked, os.environ, job.jobs)
    if not job.precompiled.is_file():
        raise BadInput(f"there is no wheel {job.precompiled} to take compiled parts from")
    if job.device is not Device.CUDA:
        raise BadInput("upstream takes compiled parts over for CUDA only; repack for the CPU")
    check_release(parse_name(job.precompiled.name), job.version.public, DISTRIBUTIONS["cuda"])
    problem = asked.unresolvable(needs.requires)
    lack = Lack(
        f"build requirements from the package index ({problem})",
        "configure pip or uv for an index that has them",
    )
    return needs, () if problem is None else (lack,)


def build_environment(job: SourceJob, needs: Needs, machine: Machine) -> dict[str, str]:
    """Return the variables that upstream's build reads, set for this job.

    Args:
        job: What to build.
        needs: From :func:`tools.wheel.needs.read_needs`.
        machine: Says how many compiler processes fit.
    """
    pretended = "VLLM_VERSION_OVERRIDE" if needs.exact_version else "SETUPTOOLS_SCM_PRETEND_VERSION"
    variables = {
        "VLLM_TARGET_DEVICE": job.device.value,
        "MAX_JOBS": str(job.jobs or fitting_jobs(machine)),
        pretended: str(job.version),
    }
    if job.architectures:
        variables["TORCH_CUDA_ARCH_LIST"] = job.architectures
    if job.precompiled is not None:
        variables["VLLM_USE_PRECOMPILED"] = "1"
        variables["VLLM_PRECOMPILED_WHEEL_LOCATION"] = str(job.precompiled.resolve())
    return variables


def build_wheel(job: SourceJob, machine: Machine | None = None) -> Path:
    """Run upstream's build and publish its wheel.

    Args:
        job: What to build.
        machine: Asked before anything starts; this one where None.

    Returns:
        The wheel.

    Raises:
        EnvironmentLacks: Something is missing; nothing was started. Or the disk is full.
        CheckFailed: Upstream's build failed, or made another version; its last line is given.
        Busy: Another run writes to the same directory.
    """
    with _built(job, machine, "--wheel") as built:
        name = parse_name(built.name)
        if not str(name.version).startswith(str(job.version)):
            raise CheckFailed(f"upstream's build made {name.version}, not {job.version}")
        with disk_errors(job.out_dir):
            return built.replace(job.out_dir / built.name)


def build_source_distribution(job: SourceJob, machine: Machine | None = None) -> SourceDistribution:
    """Make a source distribution of the carried tree; nothing is compiled.

    It needs the build requirements, but neither a compiler nor third-party sources: what can be
    run and looked at where a whole build cannot finish.

    Raises:
        CheckFailed: Upstream's build failed, or made another version.
        EnvironmentLacks: The disk is full.
        Busy: Another run writes to the same directory.
    """
    with _built(job, machine, "--sdist") as built:
        _, version = parse_sdist_filename(built.name)
        if version != job.version:
            raise CheckFailed(f"upstream's build made {version}, not {job.version}")
        with tarfile.open(built) as archive:
            names = [member.name for member in archive if member.isfile()]
        with disk_errors(job.out_dir):
            target = built.replace(job.out_dir / built.name)
    files = tuple(sorted(name.partition("/")[2] for name in names))
    return SourceDistribution(target, version, files)


@contextmanager
def _built(job: SourceJob, machine: Machine | None, kind: str) -> Iterator[Path]:
    asked = machine or LocalMachine()
    if kind == "--wheel":
        needs, lacks = check_machine(job, asked)
        refuse(needs, lacks)
    else:
        needs = read_needs(DirectoryTree(job.source), job.device)
    with output_directory(job.out_dir) as out_dir, staging(out_dir) as aside:
        with disk_errors(out_dir):
            # setup.py writes into the tree; a checkout of ours has to stay as it is.
            tree = aside / "source"
            shutil.copytree(job.source, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
            _track(tree)
        command = [find_uv_bin(), "build", kind, "--quiet", "--out-dir", str(aside / "out")]
        command += ["--python", job.python] if job.python else []
        _run([*command, "--", str(tree)], build_environment(job, needs, asked))
        found = [path for path in (aside / "out").iterdir() if not path.name.startswith(".")]
        if len(found) != 1:
            raise CheckFailed(f"upstream's build left {len(found)} files; one was expected")
        yield found[0]


def _track(tree: Path) -> None:
    """Make a tree a repository with one commit of everything in it.

    setuptools-scm puts what git tracks into a source distribution, such as upstream's Rust sources;
    from a tree without git it would take the Python packages alone.
    """
    who = {f"GIT_{role}_{key}": "vllm-exaone" for role in ("AUTHOR", "COMMITTER") for key in _WHO}
    variables = {"GIT_WORK_TREE": str(tree), **who}
    (tree / ".git").mkdir()
    with Git(tree / ".git") as git:
        git.run("init", "--quiet", "--template=", environment=variables)
        git.run("-C", str(tree), "add", "--all", "--force", environment=variables)
        git.run("-C", str(tree), "commit", "--quiet", "--message", "carried", environment=variables)


def _run(command: list[str], variables: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise CheckFailed(f"upstream's build failed: {lines[-1] if lines else 'no message'}")
