"""The whole build of one wheel: repacked, described, checked, and published with its sum."""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.errors import BadInput, CheckFailed, EnvironmentLacks
from tools.merge import merge_file
from tools.wheel.archive import open_archive
from tools.wheel.changes import Change
from tools.wheel.delta import DeltaResult, write_delta
from tools.wheel.metadata import DISTRIBUTIONS, Amendments
from tools.wheel.provenance import PROVENANCE, BuildInputs, Provenance, render_provenance
from tools.wheel.publish import disk_errors, output_directory, staging, written_aside
from tools.wheel.repack import (
    RepackJob,
    RepackPlan,
    epoch_from_environment,
    plan_repack,
    write_wheel,
)
from tools.wheel.sbom import SBOM, render_sbom
from tools.wheel.verify import Check, verify

SUMS = "SHA256SUMS"
DEVICES = ("auto", "cpu", "cuda")
# A driver that is loaded shows here; asking nvidia-smi would cost a second and a subprocess.
CUDA_DEVICE = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class BuildJob:
    """What to build.

    Attributes:
        release: The release, such as ``v0.32.0``.
        device: ``cpu`` or ``cuda``; see :func:`resolve_device`.
        wheel: Upstream's wheel of that release and device.
        out_dir: Where the wheel and ``SHA256SUMS`` go.
        build_number: The N of ``+exaone.N``.
        changes: What the carry changed, by path.
        provenance: What the carried tree was made from.
        amendments: What METADATA shall say otherwise.
        wheel_sha256: The digest of upstream's wheel where it is known; it is taken otherwise.
        check: Read every byte back with others' tools before the wheel takes its name.
        delta: Write the delta wheel as well.
        epoch: Seconds for the timestamps of what is new; ``SOURCE_DATE_EPOCH`` without, or None
            for upstream's latest timestamp.
    """

    release: str
    device: str
    wheel: Path
    out_dir: Path
    build_number: int
    changes: Mapping[str, Change]
    provenance: Provenance
    amendments: Amendments = field(default_factory=Amendments)
    wheel_sha256: str = ""
    check: bool = True
    delta: bool = False
    epoch: int | None = field(default_factory=epoch_from_environment)


@dataclass(frozen=True)
class BuildResult:
    """What was built.

    Attributes:
        wheel: The wheel.
        sha256: Its digest, in hexadecimal.
        size: Its size in bytes.
        sums: ``SHA256SUMS`` beside it.
        plan: What became of each change, and of METADATA.
        checks: What was checked; empty where that was not asked for.
        delta: The delta wheel, or None where it was not asked for.
    """

    wheel: Path
    sha256: str
    size: int
    sums: Path
    plan: RepackPlan
    checks: tuple[Check, ...]
    delta: DeltaResult | None = None


def resolve_device(device: str) -> str:
    """Return ``cuda`` or ``cpu``; ``auto`` is ``cuda`` where an NVIDIA driver is loaded.

    Raises:
        BadInput: It is none of the three.
    """
    if device not in DEVICES:
        raise BadInput(f"{device!r} is no device", f"one of: {', '.join(DEVICES)}")
    if device == "auto":
        return "cuda" if CUDA_DEVICE.exists() else "cpu"
    return device


def distribution_for(device: str) -> str:
    """Return the distribution that holds upstream's code for ``cpu`` or ``cuda``."""
    return DISTRIBUTIONS[device]


def build(job: BuildJob) -> BuildResult:
    """Build one carried wheel from upstream's.

    Args:
        job: What to build.

    Returns:
        The wheel, its digest, and what was done and checked.

    Raises:
        BadInput: Upstream's wheel is damaged, hostile or of another release.
        CheckFailed: The series touches compiled or build files, a member is in conflict, or the
            finished wheel fails a check; then it is not published.
        EnvironmentLacks: The disk is full or may not be written.
        Busy: Another run writes to the same directory.
    """
    repack_job = RepackJob(
        wheel=job.wheel,
        out_dir=job.out_dir,
        release=job.release,
        distribution=distribution_for(job.device),
        build_number=job.build_number,
        changes=job.changes,
        amendments=job.amendments,
        epoch=job.epoch,
    )
    inputs = BuildInputs(job.device, job.build_number, job.amendments, job.epoch)
    with open_archive(job.wheel) as archive:
        plan = plan_repack(archive, repack_job, merge_member)
        upstream = (job.wheel.name, job.wheel_sha256 or _digest(job.wheel))
        extra = {
            PROVENANCE: render_provenance(job.provenance, inputs, plan, *upstream),
            SBOM: render_sbom(job.provenance, plan, *upstream),
        }
        with output_directory(job.out_dir) as out_dir, staging(out_dir) as aside:
            written = write_wheel(archive, plan, extra, aside)
            checks = verify(written.wheel, job.wheel) if job.check else ()
            delta = write_delta(archive, plan, extra, aside) if job.delta else None
            if delta is not None and job.check:
                checks += verify(delta.wheel)
            digests = {written.wheel.name: written.sha256}
            target = _publish(written.wheel, out_dir)
            if delta is not None:
                digests[delta.wheel.name] = delta.sha256
                delta = replace(delta, wheel=_publish(delta.wheel, out_dir))
            sums = write_sums(out_dir, digests)
    return BuildResult(target, written.sha256, written.size, sums, plan, checks, delta)


def merge_member(path: str, base: bytes, found: bytes, carried: bytes) -> bytes | None:
    """Merge the wheel's own text of a member with the carried change.

    Args:
        path: The member.
        base: Upstream's bytes.
        found: The wheel's bytes.
        carried: The carried bytes.

    Returns:
        The merged bytes, or None where a person must look.
    """
    merged = merge_file(path, base, carried, found)
    if merged.conflicts or set(merged.files) != {path}:
        return None
    return merged.files[path]


def write_sums(out_dir: Path, digests: Mapping[str, str]) -> Path:
    """Add digests to the directory's ``SHA256SUMS``, in the format of ``sha256sum``.

    Rows of files that are no longer there are dropped.

    Args:
        out_dir: A directory from :func:`tools.wheel.publish.output_directory`.
        digests: SHA-256 by file name.

    Raises:
        EnvironmentLacks: The disk is full or may not be written.
    """
    sums = out_dir / SUMS
    rows = read_sums(sums) | dict(digests)
    kept = {name: digest for name, digest in rows.items() if (out_dir / name).is_file()}
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(kept.items()))
    with written_aside(sums) as stream:
        stream.write(text.encode())
    return sums


def read_sums(sums: Path) -> dict[str, str]:
    """Return the digests by file name; lines that are none are left out."""
    if not sums.is_file():
        return {}
    text = sums.read_text("utf-8", "replace")
    rows = re.findall(r"^([0-9a-f]{64})  ([^/\n]+)$", text, re.MULTILINE)
    return {name: digest for digest, name in rows}


def sign(path: Path, command: Sequence[str]) -> None:
    """Sign a file with the configured tool.

    Args:
        path: The file, such as ``SHA256SUMS``.
        command: The argument list; ``{}`` stands for the path.

    Raises:
        BadInput: The command names no file to sign.
        EnvironmentLacks: The program is not there.
        CheckFailed: It failed.
    """
    if not command or not any("{}" in part for part in command[1:]):
        raise BadInput("the signing command has no {} for the file", "write it as a list")
    if shutil.which(command[0]) is None:
        raise EnvironmentLacks(f"the signing program {command[0]} is not on PATH")
    arguments = [command[0], *(part.replace("{}", str(path)) for part in command[1:])]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise CheckFailed(f"{command[0]} could not sign {path.name}: {lines[-1]}")


def _publish(file: Path, out_dir: Path) -> Path:
    with disk_errors(out_dir):
        return file.replace(out_dir / file.name)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
