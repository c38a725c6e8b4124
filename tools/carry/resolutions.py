"""Conflicts that a person has solved, kept so that no one solves them again.

On a release a resolution becomes a variant of its patch. On a commit, a branch or a release
candidate there is nothing to base a variant on, so ``patches/resolutions/KEY.patch`` keeps what
was done to each file in conflict. KEY follows from the ids of the three blobs that could not be
merged, so that the same conflict is found again at any ref, and at no other::

    Patch: 0005-speculative-config
    Ref: 1f2e3d4c5b6a
    Reason: changed differently on both sides
    Path: vllm/config/speculative.py
    Base: <blob that the patch was written on>
    Patched: <blob with the patch>
    Target: <the ref's blob>

    diff --git a/vllm/config/speculative.py b/vllm/config/speculative.py
    index <target>..<result> 100644
    ...

A blob that a side does not have is ``-``. The diff starts from the ref's file; where it does not
touch that file, the file stays as the ref has it. It may touch other files: those are taken only
where they are, at that ref, exactly what they were when the person looked.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.carry.written import apply_diff
from tools.errors import BadInput
from tools.git import REGULAR, Entry, Git
from tools.series import FileDiff, parse_diff

DIRECTORY = "resolutions"  # below patches/
_ABSENT = "-"
_FIELDS = ("Patch", "Ref", "Reason", "Path", "Base", "Patched", "Target")
_OID = re.compile(r"[0-9a-f]{40}|-")


@dataclass(frozen=True)
class Resolution:
    """What a person made of one file that could not be merged.

    Attributes:
        patch: The step of the series whose change it carries.
        ref: Where it was solved.
        reason: Why no merge could.
        path: The file.
        base: The blob that the patch was written on, "" where there is none.
        patched: The blob with the patch, likewise.
        target: The ref's blob, likewise.
        diff: What was done to the ref's files; b"" where they stay as they are.
    """

    patch: str
    ref: str
    reason: str
    path: bytes
    base: str
    patched: str
    target: str
    diff: bytes

    @property
    def name(self) -> str:
        """The file's name below ``patches/resolutions/``."""
        return f"{_key(self.base, self.patched, self.target)}.patch"

    @cached_property
    def files(self) -> tuple[FileDiff, ...]:
        """The files that the diff touches."""
        return parse_diff(self.diff) if self.diff else ()

    @property
    def result(self) -> str:
        """The blob that the file became, "" where it was removed."""
        for file in self.files:
            if self.path == file.old_path:
                return (file.new_oid or self.target) if file.new_path else ""
            if self.path == file.new_path:
                return file.new_oid or ""
        return self.target

    def encode(self) -> bytes:
        """Return the file's content."""
        values = (
            self.patch,
            self.ref,
            self.reason,
            ascii(os.fsdecode(self.path))[1:-1],
            self.base or _ABSENT,
            self.patched or _ABSENT,
            self.target or _ABSENT,
        )
        head = "".join(f"{key}: {value}\n" for key, value in zip(_FIELDS, values, strict=True))
        return head.encode() + b"\n" + self.diff

    def apply(self, git: Git, path: bytes, held: Entry | None) -> dict[bytes, Entry | None] | None:
        """Return what the touched files become, or None where the diff does not fit its blobs.

        Args:
            git: Where the blobs are and go.
            path: Where the file in conflict lies at the ref.
            held: What the ref has there.
        """
        if not self.files:
            return {path: held}
        entries = []
        for file in self.files:
            if file.old_path == self.path:
                entries.append(Entry(self.path, held.mode if held else REGULAR, self.target))
            elif file.old_path is not None and file.old_oid:
                entries.append(Entry(file.old_path, REGULAR, file.old_oid))
        after = apply_diff(git, self.diff, entries)
        made: dict[bytes, Entry | None] = {path: held}
        for file in self.files:
            for name in (file.old_path, file.new_path):
                if name is not None:
                    place = path if name == self.path else name
                    made[place] = after.get(name)
            entry = after.get(file.new_path) if file.new_path is not None else None
            if file.new_oid and (entry is None or entry.oid != file.new_oid):
                return None
        return made


@dataclass(frozen=True)
class Resolutions:
    """Every kept resolution, by the conflict that it solves."""

    by_key: Mapping[str, Resolution]

    def find(self, base: str, patched: str, target: str) -> Resolution | None:
        """Return the resolution of the merge of three blobs (ids, "" where there is none)."""
        return self.by_key.get(_key(base, patched, target))

    @cached_property
    def _results(self) -> frozenset[tuple[str, str, str]]:
        return frozenset((r.base, r.patched, r.result) for r in self.by_key.values())

    def holds_result(self, base: str, patched: str, target: str) -> bool:
        """Return whether ``target`` is what a person once made of the same change."""
        return (base, patched, target) in self._results


NO_RESOLUTIONS = Resolutions({})


def read_resolutions(patches: Path) -> Resolutions:
    """Read ``resolutions/`` below the directory of the patches; it may be absent.

    Raises:
        BadInput: A file is malformed, or is not named after the conflict that it solves.
    """
    found = {}
    for file in sorted((patches / DIRECTORY).glob("*.patch")):
        try:
            resolution = parse_resolution(file.read_bytes())
        except OSError as error:
            raise BadInput(f"cannot read {file}: {error.strerror}", "make it readable") from error
        except BadInput as error:
            raise BadInput(f"{file}: {error.message}", error.hint) from error
        if resolution.name != file.name:
            raise BadInput(f"{file} solves {resolution.name}", "rename it to that, or remove it")
        found[file.stem] = resolution
    return Resolutions(found)


def parse_resolution(content: bytes) -> Resolution:
    """Read one kept resolution.

    Raises:
        BadInput: It is malformed.
    """
    head, _, diff = content.partition(b"\n\n")
    advice = "solve the conflict again: python -m tools resolve REF"
    try:
        rows = dict(line.split(": ", 1) for line in head.decode().splitlines())
        patch, ref, reason, path, *oids = (rows.pop(key) for key in _FIELDS)
        raw = os.fsencode(path.encode("ascii").decode("unicode_escape"))
    except (KeyError, ValueError) as error:
        raise BadInput(f"is no kept resolution: {error}", advice) from error
    if rows or not all(_OID.fullmatch(oid) for oid in oids):
        raise BadInput("is no kept resolution: unknown field or blob id", advice)
    base, patched, target = (oid.replace(_ABSENT, "") for oid in oids)
    found = Resolution(patch, ref, reason, raw, base, patched, target, diff)
    for file in found.files:
        if any(oid is not None and len(oid) != 40 for oid in (file.old_oid, file.new_oid)):
            raise BadInput("its diff has abbreviated blob ids", advice)
        if file.old_path == raw and file.old_oid not in (None, target):
            raise BadInput("its diff does not start from its target", advice)
    return found


def _key(base: str, patched: str, target: str) -> str:
    named = "\0".join((base, patched, target))
    return hashlib.sha256(named.encode()).hexdigest()[:20]
