"""One job a release, for hosts that spread jobs over machines.

Each job says on which engine the release can be run, with which Python, and on which machine. A
release without an engine wheel is carried and checked, and not run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from packaging.version import Version

from tools.errors import BadInput, Unavailable
from tools.smoke.environment import PYTHONS
from tools.upstream import parse_ref
from tools.upstream.index import Index, tags_for
from tools.wheel.build import distribution_for

HOSTED = ("ubuntu-24.04",)  # the CPU wheels of v0.11.1 and v0.11.2 want its glibc
GPU = ("self-hosted", "gpu")
_OLDEST_PYTHON = (3, 11)  # of these tools


class Device(StrEnum):
    """On which engine a release is run."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"
    NONE = "none"


@dataclass(frozen=True)
class Job:
    """The job of one ref.

    Attributes:
        ref: The ref.
        device: ``cpu`` or ``cuda``; ``none`` where there is no engine of it.
        python: The Python to run these tools and the engine with, such as ``3.12``.
        runner: The labels of a machine that can do it.
    """

    ref: str
    device: Device
    python: str
    runner: tuple[str, ...] = field(default=HOSTED)


def jobs(
    refs: Iterable[str], index: Index, device: Device, runner: Sequence[str] = ()
) -> tuple[Job, ...]:
    """Return one job a ref.

    Args:
        refs: Tags, branches or commits.
        index: Where the wheels are.
        device: ``auto`` for the CPU's engine where there is one, and none elsewhere.
        runner: Labels of the machines; the usual ones of the device without.

    Raises:
        BadInput: A label is malformed.
        Unavailable: The index cannot be reached, or lacks the wheel of a device that was named.
    """
    for label in runner:
        if not label.isprintable() or not label.strip() or "," in label:
            raise BadInput(f"not a runner's label: {label!a}", "give one label an option")
    return tuple(_job(ref, index, device, tuple(runner)) for ref in refs)


def _job(ref: str, index: Index, device: Device, runner: tuple[str, ...]) -> Job:
    version = parse_ref(ref).version
    wanted = Device.CPU if device is Device.AUTO else device
    python = _python(index, wanted, version) if version and wanted is not Device.NONE else ""
    if not python:
        if device in (Device.CPU, Device.CUDA):
            raise Unavailable(
                f"there is no wheel of {ref} for {device} that suits this machine",
                "use --device auto, or leave the ref out",
            )
        return Job(ref, Device.NONE, _text(PYTHONS[0]), runner or HOSTED)
    return Job(ref, wanted, python, runner or (GPU if wanted is Device.CUDA else HOSTED))


def _python(index: Index, device: Device, version: Version) -> str:
    """Return the newest Python that a release's wheel runs on, "" where there is none."""
    found = index.wheel_tags(distribution_for(device.value), version)
    for python in PYTHONS:
        if python >= _OLDEST_PYTHON and not found.isdisjoint(tags_for(python)):
            return _text(python)
    return ""


def _text(python: tuple[int, int]) -> str:
    return f"{python[0]}.{python[1]}"
