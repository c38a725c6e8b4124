"""New upstream refs, each taken through the line as far as is asked and the machine allows.

Each stage is written down when it ends. A run that was cut short goes on at the stage that it
stopped in; a ref that is done is not done again, unless it asks for a person and the series or
the overlay changed since: then it is done anew.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from packaging.version import Version

from tools.carry import Carrier
from tools.errors import BadInput, ToolError, Unavailable
from tools.maintain.stages import Line, Work, missing_record
from tools.maintain.watched import Record, Stage, State, read_state, write_state
from tools.upstream import Store, Upstream, parse_ref
from tools.upstream.downloads import locked
from tools.upstream.history import Offered, offered
from tools.upstream.page import IndexUnreachable

Notify = Callable[[str], None]
Obtain = Callable[[Offered], Upstream]
Tell = Callable[[Record], None]
Expected = Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Plan:
    """What a watch does.

    Args:
        refs: The refs to take through the line, oldest first.
        until: How far.
        inputs: See :func:`inputs_digest`.
        expected: The conflicts that are recorded as expected; see :mod:`tools.maintain.matrix`.
        smoke_unchanged: Whether to run the engine also where no outcome and no finding changed
            since the release before, and both are of one minor release.
    """

    refs: Sequence[Offered]
    until: Stage
    inputs: str
    expected: Expected = field(default_factory=dict)
    smoke_unchanged: bool = False


@dataclass(frozen=True)
class Worked:
    """One ref that this run worked on: its record now, what was done, and how long that took."""

    record: Record
    stages: tuple[Stage, ...]
    seconds: float


@dataclass(frozen=True)
class Watched:
    """What a run did, and all that is known after it."""

    worked: tuple[Worked, ...]
    state: State

    @property
    def standing(self) -> tuple[Record, ...]:
        """The records of refs that are not usable until a person did something."""
        return tuple(record for record in self.state.current if record.blocked)

    @property
    def untold(self) -> tuple[Record, ...]:
        """The records whose needs could not be passed on."""
        return tuple(record for record in self.state.current if record.needs and not record.told)

    @property
    def lacking(self) -> tuple[tuple[Record, Stage], ...]:
        """The stages that this run could not do for what this machine lacks."""
        return tuple(
            (worked.record, stage)
            for worked in self.worked
            for stage in worked.stages
            if worked.record.stages[stage].remedy
        )


def watch(
    file: Path,
    plan: Plan,
    obtain: Obtain,
    line: Line,
    *,
    tell: Mapping[str, Tell],
    notify: Notify,
) -> Watched:
    """Take every ref that is new, moved, unfinished or asks for a person through the line.

    Args:
        file: The state; its lock lies beside it.
        plan: What to do.
        obtain: Brings a ref into the store. One that is hostile or not to be had stops no other.
        line: How the stages are done.
        tell: By the name of a channel, what is given each record that asks something of a person,
            once. What fails is tried again in the next run.
        notify: Told what takes time.

    Raises:
        Busy: Another watch holds the state.
        BadInput: The state is none, or series or overlay are not in order.
        IndexUnreachable: There is no network.
        EnvironmentLacks: The state cannot be written.
    """
    with locked(file.with_name(f"{file.name}.lock"), 0, "the watch"):
        for left in file.parent.glob(f".{file.name}.*"):  # of a run that was killed
            left.unlink(missing_ok=True)
        book = _Book(file, read_state(file), tell, notify)
        worked = []
        for row in plan.refs:
            if is_due(book.state, row, plan):
                began = time.monotonic()
                record, stages = _work(book, row, obtain, plan, line)
                worked.append(Worked(record, stages, time.monotonic() - began))
            book.tell(row.ref.name)
        for record in book.state.current:
            book.tell(record.ref)
        return Watched(tuple(worked), book.state)


def wanted_refs(
    store: Store,
    source: str,
    oldest: str,
    newest: str = "",
    *,
    branches: Sequence[str] = (),
    candidates: bool = False,
) -> tuple[Offered, ...]:
    """Return what upstream has to follow, oldest first, branches last.

    Args:
        store: See :func:`tools.upstream.history.offered`.
        source: Likewise.
        oldest: The first release.
        newest: The last release; "" for no end.
        branches: Branches to follow too.
        candidates: Whether to follow release candidates.

    Raises:
        BadInput: ``oldest`` or ``newest`` is no release, or see ``offered``.
        Unavailable: The source cannot be reached.
    """
    low, high = (_version(end) if end else None for end in (oldest, newest))

    def within(version: Version | None) -> bool:
        if version is None:
            return True
        return (low is None or version >= low) and (high is None or version <= high)

    rows = offered(store, source, branches, prereleases=candidates)
    return tuple(row for row in rows if within(row.ref.version))


def due_refs(file: Path, plan: Plan) -> list[Offered]:
    """Return the refs that a watch would work on.

    Raises:
        BadInput: The state is none.
    """
    state = read_state(file)
    return [row for row in plan.refs if is_due(state, row, plan)]


def is_due(state: State, row: Offered, plan: Plan) -> bool:
    """Return whether a ref is new, moved, unfinished, or may be mended by now."""
    held = state.find(row.ref.name, row.commit)
    # Without a commit nothing was done yet: what was refused may be mended upstream by now.
    if held is None or not held.commit or held.due(plan.until):
        return True
    return bool(held.needs) and held.inputs != plan.inputs


def inputs_digest(carrier: Carrier, expected: Expected = MappingProxyType({})) -> str:
    """Return a hash of all that the outcome of a watch depends on beside the ref."""
    total = hashlib.sha256()
    for patch in carrier.series.patches:
        total.update(f"{patch.file} {patch.digest}\n".encode())
    for file in carrier.overlay.files:
        probes = [probe.text for probe in (*file.only_if, *file.skip_if)]
        total.update(f"{file.target} {file.digest} {len(file.only_if)} {probes}\n".encode())
    for key in sorted(carrier.kept.by_key):
        total.update(carrier.kept.by_key[key].encode() + b"\n")
    for row in sorted(expected):
        total.update(f"{row}\n".encode())
    return total.hexdigest()


def _version(release: str) -> Version:
    version = parse_ref(release).version
    if version is None:
        raise BadInput(f"{release} is no release", "name a tag such as v0.32.0")
    return version


def _work(
    book: "_Book", row: Offered, obtain: Obtain, plan: Plan, line: Line
) -> tuple[Record, tuple[Stage, ...]]:
    """Do the stages that are due for one ref; return its record and the stages done."""
    name = row.ref.name
    try:
        upstream = obtain(row)
    except IndexUnreachable:
        raise
    except (BadInput, Unavailable) as error:
        book.notify(f"{name}: {error.message}")
        record = _begun(book.state, name, row.commit, row.source, plan)
        record = record.with_stage(Stage.CARRY, missing_record(error))
        book.put(record)
        return record, (Stage.CARRY,)
    record = _begun(book.state, name, upstream.commit, upstream.source, plan)
    before = book.state.before(name, upstream.commit)
    work = Work(line, upstream, before, plan.expected, plan.smoke_unchanged)
    done: list[Stage] = []
    while due := [stage for stage in record.due(plan.until) if stage not in done]:
        book.notify(f"{name}: {due[0]}")
        record = record.with_stage(due[0], work.do(due[0], record))
        book.put(record)
        done.append(due[0])
    return record, tuple(done)


def _begun(state: State, name: str, commit: str, source: str, plan: Plan) -> Record:
    """Return what is known of a ref with these inputs, to be gone on with."""
    held = state.find(name, commit)
    if held is not None and held.inputs == plan.inputs:
        return held
    newest = state.find(name)
    told_to = newest.told_to if newest else {}
    known = commit or (held.commit if held else "")
    return Record(name, known, source, plan.inputs, told_to=told_to)


@dataclass
class _Book:
    """The state in memory and in its file, and whom to tell."""

    file: Path
    state: State
    tellers: Mapping[str, Tell]
    notify: Notify
    tried: set[str] = field(default_factory=set)

    def put(self, record: Record) -> None:
        """Write a record down."""
        self.state = self.state.put(record)
        write_state(self.file, self.state)

    def tell(self, ref: str) -> None:
        """Pass on what a ref asks of a person to each channel that does not have it.

        Once a run: a channel that is away would else be asked at every ref.
        """
        record = self.state.find(ref)
        if record is None or ref in self.tried:
            return
        self.tried.add(ref)
        if not record.needs:
            if record.told_to and not record.lacking:  # it is mended: a relapse is news
                self.put(replace(record, told_to={}))
            return
        if record.told:
            return
        told = True
        for channel, tell in self.tellers.items():
            if record.was_told(channel):
                continue
            try:
                tell(record)
            except ToolError as error:
                self.notify(f"{ref} could not be told: {error.message}")
                told = False
                continue
            record = record.told_by(channel)
            self.put(record)
        if told:
            self.put(replace(record, told=True))
