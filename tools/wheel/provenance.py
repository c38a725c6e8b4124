"""Where a wheel comes from, written into its ``*.dist-info`` and read back.

``exaone-provenance.json`` there names upstream's ref, commit and file digests, every patch and
overlay file with its hash and outcome, and every member that differs from upstream's wheel. It
holds nothing of the machine or the hour, so that the same inputs give the same bytes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.carry import Carried
from tools.errors import BadInput
from tools.git import Git
from tools.wheel.changes import Change
from tools.wheel.metadata import Amendments
from tools.wheel.repack import RepackPlan

PROVENANCE = "exaone-provenance.json"
FORMAT = 2


@dataclass(frozen=True)
class PatchRecord:
    """One patch: its step and file, the SHA-256 of that file, and how it ended at the ref."""

    name: str
    file: str
    sha256: str
    outcome: str


@dataclass(frozen=True)
class OverlayRecord:
    """One overlay file that was laid: from where, to where, and its SHA-256."""

    source: str
    target: str
    sha256: str


@dataclass(frozen=True)
class Provenance:
    """What a carried tree was made from.

    Attributes:
        tool_version: The version of these tools.
        ref: Upstream's ref, as asked for.
        commit: Its commit in the store.
        carried_commit: The commit with series and overlay.
        source: ``index``, ``git`` or ``path``.
        kind: ``sdist``, ``wheel`` or ``commit``.
        source_digests: SHA-256 of the files that the tree was imported from, by name.
        patches: The patches, in order.
        overlay: The overlay files that were laid.
        contract: A summary of the contract check: how many modules, how many errors.
    """

    tool_version: str
    ref: str
    commit: str
    carried_commit: str
    source: str
    kind: str
    source_digests: Mapping[str, str]
    patches: tuple[PatchRecord, ...]
    overlay: tuple[OverlayRecord, ...]
    contract: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildInputs:
    """What decides a wheel's bytes beside the carried tree and upstream's wheel.

    Attributes:
        device: ``cpu`` or ``cuda``.
        number: The N of ``+exaone.N``.
        amendments: What METADATA says otherwise.
        epoch: ``SOURCE_DATE_EPOCH``, or None where it was not set.
    """

    device: str
    number: int
    amendments: Amendments
    epoch: int | None

    def document(self) -> dict[str, Any]:
        """Return them for JSON."""
        return {
            "device": self.device,
            "number": self.number,
            "narrow": dict(self.amendments.narrow),
            "relax_local": self.amendments.relax_local,
            "epoch": self.epoch,
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any], where: str) -> "BuildInputs":
        """Read what :meth:`document` returned.

        Args:
            document: The part of the provenance.
            where: The wheel's name, for messages.

        Raises:
            BadInput: It is not such a part.
        """
        device, number = document.get("device"), document.get("number")
        narrow, epoch = document.get("narrow"), document.get("epoch")
        relax = document.get("relax_local")
        if (
            not (isinstance(device, str) and type(number) is int and isinstance(relax, bool))
            or not (isinstance(narrow, dict) and all(isinstance(v, str) for v in narrow.values()))
            or not (epoch is None or type(epoch) is int)
        ):
            raise BadInput(f"{where}: {PROVENANCE} does not say how the wheel was built")
        return cls(device, number, Amendments(tuple(narrow.items()), relax), epoch)


def provenance_of(
    carried: Carried, tool_version: str, contract: Mapping[str, int | str] | None = None
) -> Provenance:
    """Return the provenance of a carried tree."""
    upstream = carried.upstream
    return Provenance(
        tool_version=tool_version,
        ref=upstream.ref.name,
        commit=upstream.commit,
        carried_commit=carried.commit,
        source=upstream.source,
        kind=upstream.kind,
        source_digests=dict(upstream.digests),
        patches=tuple(
            PatchRecord(patch.name, patch.file, patch.digest, patch.outcome.value)
            for patch in carried.outcomes
        ),
        overlay=tuple(
            OverlayRecord(laid.file.source, laid.file.target, laid.file.digest)
            for laid in carried.overlay
            if laid.laid
        ),
        contract=dict(contract or {}),
    )


def changes_between(git: Git, upstream: str, carried: str) -> dict[str, Change]:
    """Return what a carry changed, with the bytes of both sides.

    Args:
        git: The store.
        upstream: The upstream commit.
        carried: The carried commit.

    Raises:
        BadInput: A changed path is not UTF-8, so that no wheel can hold it.
    """
    changes: dict[str, Change] = {}
    for change in git.changes(upstream, carried):
        try:
            path = change.path.decode()
        except UnicodeDecodeError:
            raise BadInput(f"the changed path {change.path!r} is not UTF-8") from None
        changes[path] = Change(
            old=git.read_blob(change.old.oid) if change.old is not None else None,
            new=git.read_blob(change.new.oid) if change.new is not None else None,
            mode=int(change.new.mode, 8) if change.new is not None else 0,
        )
    return changes


def render_provenance(
    provenance: Provenance,
    inputs: BuildInputs,
    plan: RepackPlan,
    upstream_wheel: str,
    upstream_sha256: str,
) -> bytes:
    """Return the JSON document for ``*.dist-info``.

    Args:
        provenance: What the carried tree was made from.
        inputs: How the wheel was built from it.
        plan: What became of each change in the wheel.
        upstream_wheel: The file name of upstream's wheel.
        upstream_sha256: Its digest.
    """
    document = {
        "format": FORMAT,
        **asdict(provenance),
        "build": inputs.document(),
        "upstream_wheel": {"name": upstream_wheel, "sha256": upstream_sha256},
        "version": str(plan.name.version),
        "requirements_changed": list(plan.notes),
        "members": [
            {
                "path": member.path,
                "outcome": member.outcome.value,
                "sha256": None if member.data is None else hashlib.sha256(member.data).hexdigest(),
            }
            for member in plan.members
        ],
        "paths_outside_the_wheel": plan.outside,
    }
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def parse_provenance(data: bytes, where: str) -> dict[str, Any]:
    """Read the document of a wheel.

    Args:
        data: The bytes of the member.
        where: The wheel's name, for messages.

    Raises:
        BadInput: It is not such a document, or one of a later format.
    """
    try:
        document = json.loads(data)
    except ValueError:
        raise BadInput(f"{where}: {PROVENANCE} is not JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadInput(
            f"{where}: {PROVENANCE} is not of format {FORMAT}",
            "read it with the version of these tools that wrote it",
        )
    fields = {"members": list, "patches": list, "overlay": list, "ref": str, "build": dict}
    for name, kind in fields.items():
        if not isinstance(document.get(name), kind):
            raise BadInput(f"{where}: {PROVENANCE} has no {name}")
    return document
