"""From a carried tree to what upstream's own build makes of it: a wheel, or a source distribution.

For a series that touches compiled code, for another platform, or by choice. What the machine lacks
is told before anything starts.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tools.carry import Carried, check_out
from tools.errors import BadInput
from tools.git import Git
from tools.maintain.ship import refuse_conflicts
from tools.wheel.build import resolve_device, write_sums
from tools.wheel.machine import LocalMachine, Machine
from tools.wheel.metadata import carried_version
from tools.wheel.needs import Device
from tools.wheel.publish import output_directory
from tools.wheel.source import SourceJob, build_source_distribution, build_wheel

Notify = Callable[[str], None]
DEVICES = ("auto", *(device.value for device in Device))


@dataclass(frozen=True)
class SourceRequest:
    """What to build from source.

    Attributes:
        device: ``auto``, ``cpu``, ``cuda`` or ``rocm``.
        directory: ``build/REF``: the tree goes to ``src`` there, and what is built to ``dist``.
        build_number: The N of ``+exaone.N``.
        sdist: Make the source distribution, which compiles nothing, in place of the wheel.
        jobs: Compiler processes at a time; None takes what processors and memory allow.
        architectures: ``TORCH_CUDA_ARCH_LIST``; "" is upstream's.
        precompiled: A wheel of the same release to take the compiled parts from, or None.
    """

    device: str
    directory: Path
    build_number: int
    sdist: bool = False
    jobs: int | None = None
    architectures: str = ""
    precompiled: Path | None = None


@dataclass(frozen=True)
class SourceBuilt:
    """What was built: the file, its SHA-256, version, and for a source distribution its files."""

    path: Path
    sha256: str
    version: Version
    files: tuple[str, ...] = ()


def build_from_source(
    git: Git,
    carried: Carried,
    request: SourceRequest,
    notify: Notify,
    machine: Machine | None = None,
) -> SourceBuilt:
    """Check the carried tree out and run upstream's build on a copy of it.

    Args:
        git: The store.
        carried: The tree.
        request: What to build.
        notify: Told what takes time.
        machine: Asked before anything starts; this one where None.

    Raises:
        BadInput: The device or the precompiled wheel is none, or the checkout holds a person's
            changes.
        CheckFailed: The carry has conflicts, or upstream's build failed.
        EnvironmentLacks: The machine lacks something; nothing was started. Or the disk is full.
        Busy: Another run writes to the same directory.
    """
    if request.device not in DEVICES:
        raise BadInput(f"{request.device!r} is no device", f"one of: {', '.join(DEVICES)}")
    refuse_conflicts(carried)
    device = Device(resolve_device("auto") if request.device == "auto" else request.device)
    job = SourceJob(
        source=check_out(git, carried, request.directory / "src").path,
        out_dir=request.directory / "dist",
        device=device,
        version=carried_version(upstream_version(carried, device), request.build_number),
        jobs=request.jobs,
        architectures=request.architectures,
        precompiled=request.precompiled,
    )
    what = "source distribution" if request.sdist else f"wheel for {device.value}"
    notify(f"the {what} of {job.version}: by upstream's own build, where this machine can")
    asked = machine or LocalMachine()
    if request.sdist:
        made = build_source_distribution(job, asked)
        path, files = made.path, made.files
    else:
        path, files = build_wheel(job, asked), ()
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    with output_directory(job.out_dir) as out_dir:
        write_sums(out_dir, {path.name: sha256})
    return SourceBuilt(path, sha256, job.version, files)


def upstream_version(carried: Carried, device: Device) -> Version:
    """Return the version that a source build of a ref begins with.

    A commit has no version of its own, and a wheel needs one that no release has. vLLM knows its
    CPU build by the text ``cpu`` in the version.
    """
    ref = carried.upstream.ref
    public = str(ref.version) if ref.version else "0.dev0"
    labels = [] if ref.version else [f"g{carried.upstream.commit[:12]}"]
    labels += ["cpu"] if device is Device.CPU else []
    return Version(f"{public}+{'.'.join(labels)}" if labels else public)
