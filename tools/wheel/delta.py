"""The delta wheel: only what the carry changed, for one exact upstream version.

It holds the changed files and the hashes that they must have before, some ten kilobytes in place
of 300 MB; its code (:mod:`tools.wheel.vllm_exaone_delta`) patches an installed vLLM. It names no
dependency: an image has its vLLM already, and a resolver would look for another.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tools.errors import BadInput
from tools.wheel.archive import Archive
from tools.wheel.metadata import DISTRIBUTIONS
from tools.wheel.publish import written_aside
from tools.wheel.record import Row, render_record, row_for
from tools.wheel.repack import GENERATOR, RepackPlan, is_written
from tools.wheel.vllm_exaone_delta.manifest import PAYLOAD, Entry, Manifest
from tools.wheel.zipwriter import ZipWriter

DISTRIBUTION = "vllm_exaone_delta"
SOURCES = Path(__file__).resolve().parent / DISTRIBUTION
METADATA = """Metadata-Version: 2.4
Name: vllm-exaone-delta
Version: {version}
Summary: EXAONE-4.5 for an installed {distribution} {upstream}, and for no other version
License-Expression: Apache-2.0
Requires-Python: >=3.10

After installing this wheel beside {distribution} {upstream}:

    python -m vllm_exaone_delta install
    python -m vllm_exaone_delta verify
    python -m vllm_exaone_delta uninstall

`install` changes {count} files of the installed vLLM, and refuses when one of them is not the file
of that release. `uninstall` restores every byte. Run it before uninstalling this wheel or vLLM.
"""
WHEEL = """Wheel-Version: 1.0
Generator: {generator}
Root-Is-Purelib: true
Tag: py3-none-any

"""


@dataclass(frozen=True)
class DeltaResult:
    """The delta wheel that was written: its path, SHA-256 and size, and what it changes."""

    wheel: Path
    sha256: str
    size: int
    manifest: Manifest


def manifest_of(archive: Archive, plan: RepackPlan) -> Manifest:
    """Return which files a plan changes, with the hashes that they have in upstream's wheel."""
    entries = [
        Entry(
            path=member.path,
            old=_sha256(archive.read(member.path)) if member.path in archive.members else None,
            new=None if member.data is None else _sha256(member.data),
            mode=member.mode,
        )
        for member in plan.members
        if is_written(member)
    ]
    return Manifest(
        distribution=plan.name.distribution.replace("_", "-"),
        upstream=str(plan.upstream_version),
        version=str(delta_version(plan)),
        entries=tuple(entries),
    )


def delta_version(plan: RepackPlan) -> Version:
    """Return the delta's version: the carried wheel's, with ``cpu`` where it is for the CPU build.

    The two builds of a release need two deltas, and a file name holds nothing else to tell them by.
    """
    version = plan.name.version
    if plan.name.distribution.replace("_", "-") != DISTRIBUTIONS["cpu"]:
        return version
    local = (version.local or "").split(".")
    return version if "cpu" in local else Version(f"{version.public}+cpu.{version.local}")


def write_delta(
    archive: Archive, plan: RepackPlan, extra: Mapping[str, bytes], out_dir: Path
) -> DeltaResult:
    """Write the delta wheel of a plan.

    Args:
        archive: Upstream's wheel.
        plan: From :func:`tools.wheel.repack.plan_repack` on the same archive.
        extra: Files added to ``*.dist-info``, by path below it.
        out_dir: A directory that the caller has locked.

    Raises:
        BadInput: The plan changes nothing.
        EnvironmentLacks: The disk is full or may not be written.
    """
    manifest = manifest_of(archive, plan)
    if not manifest.entries:
        raise BadInput(
            f"the carry changes nothing in {archive.path.name}, so there is no delta to write"
        )
    info = f"{DISTRIBUTION}-{manifest.version}.dist-info"
    files = {f"{DISTRIBUTION}/{file.name}": file.read_bytes() for file in SOURCES.glob("*.py")}
    files[f"{DISTRIBUTION}/manifest.json"] = manifest.render()
    for member in plan.members:
        if member.data is not None:
            # Without a suffix: installers would compile a .py, and what is not valid Python for
            # the running version would stop them.
            files[f"{DISTRIBUTION}/{PAYLOAD}/{_sha256(member.data)}"] = member.data
    metadata = METADATA.format(
        version=manifest.version,
        distribution=manifest.distribution,
        upstream=manifest.upstream,
        count=len(manifest.entries),
    )
    described = {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": WHEEL.format(generator=GENERATOR).encode(),
        **{f"{info}/{path}": data for path, data in extra.items()},
    }
    target = out_dir / f"{DISTRIBUTION}-{manifest.version}-py3-none-any.whl"
    rows: list[Row] = []
    with written_aside(target) as stream:
        writer = ZipWriter(stream)
        for path, data in [*sorted(files.items()), *sorted(described.items())]:
            writer.add(path, data, mode=0o644, date_time=plan.date_time)
            rows.append(row_for(path, data))
        record = f"{info}/RECORD"
        writer.add(record, render_record(rows, record), mode=0o644, date_time=plan.date_time)
        digest = writer.finish()
    return DeltaResult(target, digest, writer.size, manifest)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
