"""A rehearsal over history: a series that knows one release only follows upstream to the newest.

The series is made at test time of the project's own: its hooks as they are carried on the first
release, written anew on it. What could only be written by someone who knows a later release is
left out: variants, backports, and conditions that name a file which the release does not have.

Then a watch meets one release after another. Where the project's series carries a patch that the
rehearsed one lacks, a person writes it, on that very release and with no condition on a file that
is not there either; and it is noted which findings of the watch that patch ends.
"""

import re
import resource
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.carry import Carrier, Outcome, PatchOutcome
from tools.carry.export import mailbox
from tools.carry.ladder import climb
from tools.carry.written import Written, synthetic_commit
from tools.cli.common import Project
from tools.git import Commit, Git, GitTree, Person
from tools.maintain.line import obtain_offered, project_line
from tools.maintain.stages import contract_record
from tools.maintain.watch import Plan, Worked, inputs_digest, watch
from tools.maintain.watched import Need, Record, Stage, read_state
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
        first: What the watch said before anyone did anything.
        changed: The outcomes that are others than at the release before, in words.
        written: What a person wrote.
        left: What the watch still asks for afterwards.
        seconds: CPU time of the first watch, git's included.
    """

    ref: str
    first: Worked
    changed: tuple[str, ...]
    written: tuple[ByHand, ...]
    left: tuple[Need, ...]
    seconds: float


@dataclass
class Rehearsal:
    """The walk.

    Args:
        project: The project whose overlay and patches are used.
        start: The release that the series is written on.
        file: The state of the watch.
        conditions: Whether patches may have conditions at all.
    """

    project: Project
    start: str
    file: Path
    conditions: bool = True
    series: Series = field(init=False)
    files: dict[str, bytes] = field(default_factory=dict)
    visits: list[Visit] = field(default_factory=list)

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

    def _carrier(self, series: Series) -> Carrier:
        return Carrier(self.git, series, self.project.overlay, self._base)

    def _base(self, release: str) -> str:
        return self.project.obtain(release).commit

    def walk(self, releases: Sequence[str]) -> list[Visit]:
        """Meet the releases one after another; return what happened at each."""
        rows = [Offered(self.project.obtain(ref).ref, "", "auto") for ref in releases]
        for at in range(len(rows)):
            self.visits.append(self._visit(rows[: at + 1]))
        return self.visits

    def _visit(self, rows: Sequence[Offered]) -> Visit:
        ref = rows[-1].ref.name
        began = _cpu()
        (first,) = self._watch(rows)
        seconds = _cpu() - began
        state = read_state(self.file)
        before = state.before(ref, first.record.commit)
        written = self._write(self.project.obtain(ref), first.record, before)
        # The series has changed: whatever asked for a person is looked at anew.
        self._watch(rows)
        now = read_state(self.file).find(ref)
        left = now.needs if now else ()
        return Visit(ref, first, _changed(first.record, before), written, left, seconds)

    def _watch(self, rows: Sequence[Offered]) -> tuple[Worked, ...]:
        carrier = self._carrier(self.series)
        plan = Plan(rows, Stage.CONTRACT, inputs_digest(carrier))
        return watch(
            self.file,
            plan,
            lambda row: obtain_offered(self.project.store, row, _quiet),
            project_line(carrier, self.project.settings, "cpu", _quiet),
            tell=lambda _record: None,
            notify=_quiet,
        ).worked

    # The person ---------------------------------------------------------------------------------

    def _write(
        self, upstream: Upstream, record: Record, before: Record | None
    ) -> tuple[ByHand, ...]:
        """Write each patch that the project carries here and the rehearsed series lacks."""
        real = self.project.carrier.carry(upstream)
        have = {step.name for step in self.series.steps}
        found = []
        needs = record.needs
        for outcome in real.outcomes:
            if outcome.outcome in _CARRIED and outcome.name not in have:
                self._add(upstream, outcome)
                after = {_identity(need) for need in self._needs(upstream, before)}
                gone = tuple(need for need in needs if _identity(need) not in after)
                found.append(ByHand(outcome.name, gone))
                needs = tuple(need for need in needs if _identity(need) in after)
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

    def _needs(self, upstream: Upstream, before: Record | None) -> tuple[Need, ...]:
        carrier = self._carrier(self.series)
        line = project_line(carrier, self.project.settings, "cpu", _quiet)
        known = before.stages.get(Stage.CONTRACT) if before else None
        return contract_record(line.contract(carrier.carry(upstream)), known).needs

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
        for name, content in self.files.items():
            (root / "patches" / name).write_bytes(content)
        names = [f"{step.name}.patch\n" for step in self.series.steps]
        (root / "patches/series").write_text("".join(names))
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


def _identity(need: Need) -> tuple[str, str]:
    """Return what a need is about, whatever line it is on now."""
    return need.about, re.sub(r":\d+ ", " ", need.text)


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _quiet(_line: str) -> None:
    """Say nothing."""


# The table ----------------------------------------------------------------------------------------


def table(visits: Sequence[Visit]) -> str:
    """Return the walk as a Markdown table, a row a release."""
    rows = [
        "| release | outcomes | changed there | asked by the contract | written by hand | s |",
        "|---|---|---|---|---|---|",
    ]
    for visit in visits:
        stages = visit.first.record.stages
        asked = Counter(need.about.split()[0] for need in visit.first.record.needs)
        cells = [
            visit.ref,
            stages[Stage.CARRY].summary,
            _grouped(visit.changed) or "-",
            ", ".join(f"{count} {code}" for code, count in sorted(asked.items())) or "-",
            "<br>".join(f"{hand.patch} ({_announcer(hand)})" for hand in visit.written) or "-",
            f"{visit.seconds:.1f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _grouped(changed: Sequence[str]) -> str:
    """Return changes with one line for each kind of change, patches by their numbers."""
    kinds: dict[str, list[str]] = {}
    for line in changed:
        name, _, kind = line.partition(": ")
        short = name.rpartition("/")[2] if name.startswith("overlay ") else name[:4]
        kinds.setdefault(kind, []).append(short)
    return "<br>".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items())


def _announcer(hand: ByHand) -> str:
    codes = sorted({need.about.split()[0] for need in hand.announced})
    return ", ".join(codes) or "not announced"
