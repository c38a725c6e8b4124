"""What a watch knows: one record a ref, in a file that a kill leaves whole.

Nothing in it depends on when or how often a watch ran: the same upstream refs and the same series
give the same bytes, however often the runs that made them were interrupted.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.version import Version

from tools.errors import BadInput
from tools.upstream import parse_ref
from tools.upstream.downloads import write_aside

FORMAT = 1


class Stage(StrEnum):
    """What a ref is taken through, in this order."""

    CARRY = "carry"
    CONTRACT = "contract"
    BUILD = "build"
    SMOKE = "smoke"

    @property
    def place(self) -> int:
        """Its place in the order."""
        return list(Stage).index(self)


class Result(StrEnum):
    """How a stage ended.

    ``lacking`` is for what this machine or the index does not have yet: it is tried again.
    """

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    LACKING = "lacking"


@dataclass(frozen=True)
class Need:
    """Something that a person must do, or should look at.

    Attributes:
        stage: The stage that found it.
        about: The patch, the contract finding or the smoke check.
        text: What is wrong, in one line.
        advice: What to do, in one line.
        blocking: Whether the ref is not usable until then.
    """

    stage: Stage
    about: str
    text: str
    advice: str
    blocking: bool = True


@dataclass(frozen=True)
class StageRecord:
    """What came of one stage.

    Attributes:
        result: How it ended.
        summary: In one line.
        facts: What it found, by name, to compare with the ref before.
        needs: What it asks of a person.
        remedy: How to get what this machine lacks; "" where it is not the machine that does.
    """

    result: Result
    summary: str
    facts: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()
    remedy: str = ""


@dataclass(frozen=True)
class Record:
    """One ref.

    Attributes:
        ref: Its name.
        commit: Its commit in the store, "" where it could not be brought there.
        source: Where it came from.
        inputs: A digest of series, overlay and kept resolutions; see :func:`inputs_digest`.
        stages: What came of each stage that was reached.
        told: Whether what it asks of a person was passed on.
        told_to: By channel, a digest of the needs that were passed on there; "" stands for all
            channels. A record that takes this one's place has it too, so that nothing is said
            twice.
    """

    ref: str
    commit: str
    source: str
    inputs: str
    stages: Mapping[Stage, StageRecord] = field(default_factory=dict)
    told: bool = False
    told_to: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[Need, ...]:
        """What it asks of a person, in the order of the stages."""
        return tuple(need for stage in Stage for need in self._needs(stage))

    def _needs(self, stage: Stage) -> tuple[Need, ...]:
        return self.stages[stage].needs if stage in self.stages else ()

    @property
    def blocked(self) -> bool:
        """Whether the ref is not usable until a person did something."""
        return any(need.blocking for need in self.needs)

    @property
    def lacking(self) -> bool:
        """Whether a stage is to be tried again."""
        return any(held.result is Result.LACKING for held in self.stages.values())

    def was_told(self, channel: str) -> bool:
        """Return whether a channel has what it asks of a person now."""
        return _digest(self.needs) in (self.told_to.get(channel), self.told_to.get(""))

    def told_by(self, channel: str) -> "Record":
        """Return this record with its needs passed on by a channel, and older ones forgotten."""
        now = _digest(self.needs)
        same = {name: held for name, held in self.told_to.items() if held == now}
        return replace(self, told_to={**same, channel: now})

    def due(self, until: Stage) -> tuple[Stage, ...]:
        """Return the stages to do, in order, to take the ref as far as ``until``.

        Nothing follows on a conflict, or where there is no wheel.
        """
        wanted = []
        for stage in Stage:
            if stage.place > until.place:
                break
            held = self.stages.get(stage)
            if held is None or held.result is Result.LACKING:
                wanted.append(stage)
            elif held.result is not Result.DONE and stage in (Stage.CARRY, Stage.BUILD):
                break
        return tuple(wanted)

    def with_stage(self, stage: Stage, found: StageRecord) -> "Record":
        """Return this record with what came of a stage; what is new in it was not told yet."""
        news = found.needs not in ((), self._needs(stage))
        return replace(self, stages={**self.stages, stage: found}, told=self.told and not news)

    def changed_from(self, before: "Record | None") -> bool:
        """Whether an outcome or a finding is another than at the ref before."""
        if before is None:
            return True
        return any(
            _facts(self, stage) != _facts(before, stage) for stage in (Stage.CARRY, Stage.CONTRACT)
        )


def _digest(needs: Iterable[Need]) -> str:
    rows = json.dumps([vars(need) for need in needs], sort_keys=True)
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def _facts(record: Record, stage: Stage) -> Mapping[str, str]:
    return record.stages[stage].facts if stage in record.stages else {}


@dataclass(frozen=True)
class State:
    """All records, in the order in which their refs were first seen."""

    records: tuple[Record, ...] = ()

    @property
    def current(self) -> tuple[Record, ...]:
        """The newest record of each ref: a branch that moved on is no longer where it was."""
        newest = {record.ref: record for record in self.records}
        return tuple(record for record in self.records if newest[record.ref] is record)

    def find(self, ref: str, commit: str = "") -> Record | None:
        """Return the newest record of a ref, of this commit where one is given."""
        for record in reversed(self.records):
            if record.ref == ref and commit in ("", record.commit):
                return record
        return None

    def before(self, ref: str, commit: str) -> Record | None:
        """Return the record to compare a ref with.

        For a release that of the nearest release below it; for a branch the one of its earlier
        commit, or else of the newest release.
        """
        version = parse_ref(ref).version
        if version is None:
            earlier = [r for r in self.records if r.ref == ref and r.commit != commit]
            if earlier:
                return earlier[-1]
        below = [
            (found, record)
            for record in reversed(self.records)  # of a tag that moved, the newest counts
            if (found := parse_ref(record.ref).version) is not None
            and (version is None or found < version)
        ]
        return max(below, key=_by_version)[1] if below else None

    def put(self, record: Record) -> "State":
        """Return the state with a record in the place of the one it brings up to date.

        Of a branch the one before it is kept beside it, and no older one.
        """
        rows = list(self.records)
        for at, held in enumerate(rows):
            if held.ref == record.ref and held.commit in ("", record.commit):
                rows[at] = record
                return State(tuple(rows))
        same = [held for held in rows if held.ref == record.ref]
        return State((*(held for held in rows if held not in same[:-1]), record))


def _by_version(row: tuple[Version, Record]) -> Version:
    return row[0]


# The file ---------------------------------------------------------------------------------------


def read_state(file: Path) -> State:
    """Read the state; a missing file is an empty one.

    Raises:
        BadInput: The file is no state of a watch, or of a newer version.
    """
    try:
        document = json.loads(file.read_bytes())
        if document["format"] != FORMAT:
            raise BadInput(
                f"{file} has format {document['format']}, not {FORMAT}",
                "move it away to start anew",
            )
        return State(tuple(_record(row) for row in document["refs"]))
    except FileNotFoundError:
        return State()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{file} is no state of a watch: {error}", "move it away to start anew"
        ) from error


def write_state(file: Path, state: State) -> None:
    """Write the state with one rename.

    Raises:
        EnvironmentLacks: The file cannot be written.
    """
    document = {"format": FORMAT, "refs": record_rows(state.records)}
    write_aside(file, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def record_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return records as plain data, the same as in the file."""
    return [
        {
            "ref": record.ref,
            "commit": record.commit,
            "source": record.source,
            "inputs": record.inputs,
            "told": record.told,
            "told_to": dict(sorted(record.told_to.items())),
            "stages": {
                stage.value: {
                    "result": held.result.value,
                    "summary": held.summary,
                    "facts": dict(sorted(held.facts.items())),
                    "needs": [{**vars(need), "stage": need.stage.value} for need in held.needs],
                    "remedy": held.remedy,
                }
                for stage in Stage
                if (held := record.stages.get(stage))
            },
        }
        for record in records
    ]


def _record(row: Mapping[str, Any]) -> Record:
    stages = {
        Stage(name): StageRecord(
            Result(held["result"]),
            str(held["summary"]),
            {str(key): str(value) for key, value in held["facts"].items()},
            tuple(Need(**{**need, "stage": Stage(need["stage"])}) for need in held["needs"]),
            str(held.get("remedy", "")),
        )
        for name, held in row["stages"].items()
    }
    ref, commit, source, inputs = (str(row[key]) for key in ("ref", "commit", "source", "inputs"))
    told = row["told"] is True
    if "told_to" in row:
        told_to = {str(key): str(value) for key, value in row["told_to"].items()}
        return Record(ref, commit, source, inputs, stages, told, told_to)
    # Written before channels were told apart: what was told, all had been told.
    record = Record(ref, commit, source, inputs, stages, told)
    return record.told_by("") if told and record.needs else record
