"""A rehearsal over history: a series that knows one release only follows upstream to the newest.

The series is made at test time of the project's own: its hooks as they are carried on the first
release, written anew on it. What could only be written by someone who knows a later release is
left out: variants, backports, and conditions that name a file which the release does not have.

Then a watch meets one release after another. Where the project's series carries a patch that the
rehearsed one lacks, a person writes it, on that very release and with no condition on a file that
is not there either; and it is noted which needs of the watch that patch ends. What the contract
announces is written first; of the rest one patch after another, and an engine runs after each for
as long as it finds fault.
"""

import re
import resource
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.carry import Carrier, Outcome, PatchOutcome
from tools.carry.export import mailbox
from tools.carry.ladder import climb
from tools.carry.written import Written, synthetic_commit
from tools.cli.common import Project
from tools.git import Commit, Git, GitTree, Person
from tools.maintain.line import obtain_offered, project_line
from tools.maintain.stages import Line, contract_record
from tools.maintain.watch import Plan, inputs_digest, watch
from tools.maintain.watched import Need, Record, Result, Stage, read_state
from tools.series import Patch, Series, Step, parse_patch
from tools.tree import Tree
from tools.upstream import Upstream
from tools.upstream.history import Offered

HOOKS_END = "0020"  # from this number on the series holds backports
_CARRIED = (Outcome.CLEAN, Outcome.STRUCTURAL)
_WHO = Person("A Person", "person@invalid", 1_700_000_000)


@dataclass(frozen=True)
class ByHand:
    """A patch that a person had to write, and the needs of the watch that it ended."""

    patch: str
    announced: tuple[Need, ...]


@dataclass(frozen=True)
class Visit:
    """One release of the walk.

    Attributes:
        ref: The release.
        first: What the watch knew before anyone did anything.
        changed: The outcomes that are others than at the release before, in words.
        written: What a person wrote.
        last: What it knows afterwards.
        seconds: CPU time of the first watch up to the contract, git's included.
    """

    ref: str
    first: Record
    changed: tuple[str, ...]
    written: tuple[ByHand, ...]
    last: Record
    seconds: float


@dataclass
class Rehearsal:
    """The walk.

    Args:
        project: The project whose overlay and patches are used.
        start: The release that the series is written on.
        directory: Where the state of the watch lies, and for a while the wheels.
        until: How far the watch goes: ``contract``, or ``smoke`` with an engine.
        conditions: Whether patches may have conditions at all.
    """

    project: Project
    start: str
    directory: Path
    until: Stage = Stage.CONTRACT
    conditions: bool = True
    series: Series = field(init=False)
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        hooks = tuple(s for s in self.project.series.steps if s.name < HOOKS_END)
        carried = self._carrier(Series(hooks)).carry(self.project.obtain(self.start))
        tree = GitTree(self.git, carried.commit)
        steps = [
            Step(outcome.name, (self._anew(outcome, outcome.commit, tree),))
            for outcome in carried.outcomes
            if outcome.commit is not None
        ]
        self.series = Series(tuple(steps))

    @property
    def git(self) -> Git:
        """The store."""
        return self.project.store.git

    @property
    def file(self) -> Path:
        """The state of the watch."""
        return self.directory / "state.json"

    def _carrier(self, series: Series) -> Carrier:
        return Carrier(self.git, series, self.project.overlay, self._base)

    def _base(self, release: str) -> str:
        return self.project.obtain(release).commit

    def walk(self, releases: Sequence[str]) -> Iterator[Visit]:
        """Meet the releases one after another; yield what happened at each."""
        rows = [Offered(self.project.obtain(ref).ref, "", "auto") for ref in releases]
        for at in range(len(rows)):
            yield self._visit(rows[: at + 1])
            shutil.rmtree(self.directory / "build", ignore_errors=True)

    def _visit(self, rows: Sequence[Offered]) -> Visit:
        ref = rows[-1].ref.name
        began = _cpu()
        carried = self._watch(rows, Stage.CONTRACT).stages[Stage.CARRY].facts
        seconds = _cpu() - began
        assert "conflict" not in carried.values(), (ref, carried)
        first = self._watch(rows, self.until)
        before = read_state(self.file).before(ref, first.commit)
        written = self._write(rows, first, before)
        last = self._watch(rows, self.until)
        return Visit(ref, first, _changed(first, before), written, last, seconds)

    def _watch(self, rows: Sequence[Offered], until: Stage) -> Record:
        """Watch with the series as it is now; return what is known of the newest release.

        What asked for a person is looked at anew where the series has changed.
        """
        carrier = self._carrier(self.series)
        watch(
            self.file,
            Plan(rows, until, inputs_digest(carrier)),
            lambda row: obtain_offered(self.project.store, row, _quiet),
            self._line(carrier),
            tell={},
            notify=_quiet,
        )
        record = read_state(self.file).find(rows[-1].ref.name)
        assert record is not None
        return record

    def _line(self, carrier: Carrier) -> Line:
        line = project_line(carrier, self.project.settings, "cpu", _quiet)
        aside = replace(self.project.settings, root=self.directory)  # for the wheels
        return replace(line, build=project_line(carrier, aside, "cpu", _quiet).build)

    # The person ---------------------------------------------------------------------------------

    def _write(
        self, rows: Sequence[Offered], record: Record, before: Record | None
    ) -> tuple[ByHand, ...]:
        """Write each patch that the project carries here and the rehearsed series lacks."""
        upstream = self.project.obtain(record.ref)
        have = {step.name for step in self.series.steps}
        found, later = [], []
        needs: tuple[Need, ...] = record.stages[Stage.CONTRACT].needs
        for outcome in self.project.carrier.carry(upstream).outcomes:
            if outcome.outcome not in _CARRIED or outcome.name in have:
                continue
            without = self.series
            self._add(upstream, outcome)
            left = self._contract_needs(upstream, before)
            if gone := _gone(needs, left):
                found.append(ByHand(outcome.name, gone))
                needs = left
            else:
                self.series = without
                later.append(outcome)
        for outcome in later:
            ran = self._watch(rows, self.until)
            self._add(upstream, outcome)
            asked = self._smoke_needs(ran)
            gone = _gone(asked, self._smoke_needs(self._watch(rows, self.until))) if asked else ()
            found.append(ByHand(outcome.name, gone))
        return tuple(found)

    def _add(self, upstream: Upstream, outcome: PatchOutcome) -> None:
        """Make the edit that the project carries here, as a last patch written on this release."""
        here = self._carrier(self.series).carry(upstream)
        tip = next((o.commit for o in reversed(here.outcomes) if o.commit), upstream.commit)
        base = synthetic_commit(self.git, self.git.tree_of(f"{outcome.commit}^"))
        patched = synthetic_commit(self.git, self.git.tree_of(str(outcome.commit)), base)
        edit = Written(base, patched, self.git.changes(base, patched))
        made = climb(self.git, edit, self.git.tree_of(tip))
        assert made.outcome in _CARRIED, (outcome.name, made.rule)
        commit = self.git.write_commit(Commit(made.tree, (tip,), _WHO, _WHO, b"anew\n"))
        patch = self._anew(outcome, commit, GitTree(self.git, here.commit), upstream.ref.name)
        self.series = Series((*self.series.steps, Step(outcome.name, (patch,))))

    def _contract_needs(self, upstream: Upstream, before: Record | None) -> tuple[Need, ...]:
        carrier = self._carrier(self.series)
        known = before.stages.get(Stage.CONTRACT) if before else None
        return contract_record(self._line(carrier).contract(carrier.carry(upstream)), known).needs

    def _smoke_needs(self, record: Record) -> tuple[Need, ...]:
        return tuple(need for need in record.needs if need.stage is Stage.SMOKE)

    def _anew(self, outcome: PatchOutcome, commit: str, tree: Tree, base: str = "") -> Patch:
        """Return a carried commit as a patch that is written on ``base``."""
        held = next(p for p in self.project.series.patches if p.file == outcome.file)
        probes = [(key, text) for key, text in held.fields if key in ("Only-If", "Skip-If")]
        asked = {probe.text: probe.path for probe in (*held.only_if, *held.skip_if)}
        kept = [
            f"{key}: {text}"
            for key, text in probes
            if self.conditions and asked[text] and tree.read(asked[text]) is not None
        ]
        fields = [f"Base: {base or self.start}", "Origin: vendor", "Forwarded: no", *kept]
        message = f"{held.subject}\n\nWritten in a rehearsal.\n\n" + "\n".join(fields) + "\n"
        parent = self.git.resolve(f"{commit}^")
        assert parent is not None
        named = Commit(self.git.tree_of(commit), (parent,), _WHO, _WHO, message.encode())
        content, _slug = mailbox(self.git, self.git.write_commit(named), context=1)
        file = f"{outcome.name}.patch"
        self.files[file] = content
        return parse_patch(file, content)

    def write_to(self, root: Path) -> None:
        """Make ``root`` a project with the series as it is now and the real overlay."""
        (root / "patches").mkdir(parents=True)
        names = [f"{step.name}.patch" for step in self.series.steps]
        for name in names:
            (root / "patches" / name).write_bytes(self.files[name])
        (root / "patches/series").write_text("".join(f"{name}\n" for name in names))
        real = self.project.settings.root
        (root / "vllm_exaone").symlink_to(real / "vllm_exaone")
        (root / "pyproject.toml").write_bytes((real / "pyproject.toml").read_bytes())


def _changed(record: Record, before: Record | None) -> tuple[str, ...]:
    now = record.stages[Stage.CARRY].facts
    then: Mapping[str, str] = before.stages[Stage.CARRY].facts if before else {}
    return tuple(
        f"{name}: {then.get(name, 'absent')} to {outcome}"
        for name, outcome in now.items()
        if before and then.get(name) != outcome
    )


def _gone(needs: Sequence[Need], left: Sequence[Need]) -> tuple[Need, ...]:
    """Return the needs that are not left."""
    still = {_identity(need) for need in left}
    return tuple(need for need in needs if _identity(need) not in still)


def _identity(need: Need) -> tuple[str, str]:
    """Return what a need is about, whatever line it is on now and whatever an engine answered."""
    text = "" if need.stage is Stage.SMOKE else re.sub(r":\d+ ", " ", need.text)
    return need.about, text


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _quiet(_line: str) -> None:
    """Say nothing."""


# The table ----------------------------------------------------------------------------------------


def table(visits: Sequence[Visit]) -> str:
    """Return the walk as a Markdown table, a row a release."""
    head = (
        *("release", "outcomes", "changed there", "asked by the contract", "engine at first"),
        *("written by hand", "engine then", "s"),
    )
    rows = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for visit in visits:
        asked = Counter(need.about.split()[0] for need in visit.first.stages[Stage.CONTRACT].needs)
        cells = [
            visit.ref,
            visit.first.stages[Stage.CARRY].summary,
            _grouped(visit.changed) or "-",
            ", ".join(f"{count} {code}" for code, count in sorted(asked.items())) or "-",
            _engine(visit.first),
            "<br>".join(f"{hand.patch} ({_announcer(hand)})" for hand in visit.written) or "-",
            _engine(visit.last) if visit.last != visit.first else "-",
            f"{visit.seconds:.1f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _engine(record: Record) -> str:
    """Return what an engine said; "-" where none ran."""
    ran = record.stages.get(Stage.SMOKE)
    if ran is None or ran.result is Result.SKIPPED:
        return "-"
    return ran.summary if ran.result is Result.LACKING else ran.summary.rpartition(": ")[2]


def _grouped(changed: Sequence[str]) -> str:
    """Return changes with one line for each kind of change, patches by their numbers."""
    kinds: dict[str, list[str]] = {}
    for line in changed:
        name, _, kind = line.partition(": ")
        short = name.rpartition("/")[2] if name.startswith("overlay ") else name[:4]
        kinds.setdefault(kind, []).append(short)
    return "<br>".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items())


def announced_by(hand: ByHand) -> tuple[str, ...]:
    """Return the codes of the contract that asked for a patch, or ``smoke``."""
    return tuple(
        sorted(
            {
                "smoke" if need.stage is Stage.SMOKE else need.about.split()[0]
                for need in hand.announced
            }
        )
    )


def _announcer(hand: ByHand) -> str:
    return ", ".join(announced_by(hand)) or "not announced"
