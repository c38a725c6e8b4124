"""What a carried wheel says of itself, and whether its bytes bear it out."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.errors import BadInput
from tools.wheel.archive import Archive, open_archive
from tools.wheel.delta import DISTRIBUTION
from tools.wheel.metadata import fields
from tools.wheel.provenance import PROVENANCE, BuildInputs, parse_provenance
from tools.wheel.record import Row, parse_record
from tools.wheel.sbom import SBOM
from tools.wheel.vllm_exaone_delta.manifest import PAYLOAD


@dataclass(frozen=True)
class Inspection:
    """A wheel, read back.

    Attributes:
        wheel: The file.
        sha256: Its digest.
        size: Its size in bytes.
        name: The distribution.
        version: Its version.
        requires: The requirements of METADATA.
        tags: The tags of WHEEL.
        provenance: The document of :mod:`tools.wheel.provenance`.
        inputs: How it was built.
        has_sbom: Whether the bill of materials is there.
        faults: What the document says and the members do not bear out; empty on a right wheel.
    """

    wheel: Path
    sha256: str
    size: int
    name: str
    version: str
    requires: tuple[str, ...]
    tags: tuple[str, ...]
    provenance: Mapping[str, Any]
    inputs: BuildInputs
    has_sbom: bool
    faults: tuple[str, ...]

    @property
    def is_delta(self) -> bool:
        """Whether it is a delta wheel."""
        return self.name.replace("-", "_") == DISTRIBUTION


def inspect(wheel: Path) -> Inspection:
    """Read a carried wheel's provenance and compare it with the members.

    Args:
        wheel: The wheel, full or delta.

    Raises:
        BadInput: It is damaged, hostile, or not one of ours.
    """
    with open_archive(wheel) as archive:
        info = archive.dist_info()
        if f"{info}/{PROVENANCE}" not in archive.members:
            raise BadInput(f"{wheel.name} has no {PROVENANCE}, so it was not built by these tools")
        document = parse_provenance(archive.read(f"{info}/{PROVENANCE}"), wheel.name)
        metadata = archive.read(f"{info}/METADATA")
        archive.stream.seek(0)
        return Inspection(
            wheel=wheel,
            sha256=hashlib.file_digest(archive.stream, "sha256").hexdigest(),
            size=wheel.stat().st_size,
            name=next(iter(fields(metadata, "Name")), ""),
            version=next(iter(fields(metadata, "Version")), ""),
            requires=tuple(fields(metadata, "Requires-Dist")),
            tags=tuple(fields(archive.read(f"{info}/WHEEL"), "Tag")),
            provenance=document,
            inputs=BuildInputs.parse(document["build"], wheel.name),
            has_sbom=f"{info}/{SBOM}" in archive.members,
            faults=tuple(_faults(archive, document)),
        )


def differences(wheel: Path, other: Path) -> tuple[str, ...]:
    """Return the paths at which two wheels differ, by their RECORD and archive entries.

    Two wheels of the same inputs have the same digest; this tells where others part.

    Args:
        wheel: One wheel.
        other: The other, such as one built again from the same ref.
    """
    first, second = _entries(wheel), _entries(other)
    return tuple(
        sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
    )


def _entries(wheel: Path) -> dict[str, tuple[Row | None, int, int, tuple[int, ...]]]:
    with open_archive(wheel) as archive:
        rows = parse_record(archive.read(f"{archive.dist_info()}/RECORD"), wheel.name)
        return {
            name: (rows.get(name), m.info.CRC, m.info.external_attr, m.info.date_time)
            for name, m in archive.members.items()
        }


def _faults(archive: Archive, document: Mapping[str, Any]) -> list[str]:
    faults = []
    delta = archive.dist_info().startswith(f"{DISTRIBUTION}-")
    for member in document["members"]:
        path, outcome, digest = (member.get(key) for key in ("path", "outcome", "sha256"))
        if delta and digest is not None:
            path = f"{DISTRIBUTION}/{PAYLOAD}/{digest}"
        present = path in archive.members
        if outcome == "removed" and present:
            faults.append(f"{path} is said to be removed and is there")
        elif digest is not None and not present:
            faults.append(f"{path} is said to be {outcome} and is not there")
        elif digest is not None and hashlib.sha256(archive.read(path)).hexdigest() != digest:
            faults.append(f"{path} is not the {outcome} text that was recorded")
    return faults
