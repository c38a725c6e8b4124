"""The series moved onto a new base, without harm to the releases that it served before.

At the new base each patch either is carried, is upstream by now, is not needed, or conflicts:

* what needed syntax, or a person's kept resolution, is written anew on the new base, so that the
  next release starts from text again: in its place where every supported release still gets the
  very same tree, as a variant where only a person could merge it, and else not at all;
* what is upstream is told so (``Applied-Upstream``), and leaves the series once no supported
  release needs it any more;
* a conflict stays as it is, for ``resolve`` and ``refresh``.

Nothing here writes to ``patches/``: the result is the files as they should be. It is carried to
every supported release before it is handed out.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from tools.carry import Carried, Carrier, DoesNotFit, Outcome, PatchOutcome
from tools.carry.resolutions import DIRECTORY
from tools.errors import CheckFailed
from tools.git import Git
from tools.maintain.payload import Comparison, compare, payload
from tools.maintain.rewrite import Landing, Plan, as_patch, listed, unlisted, with_applied
from tools.series import Step, read_series
from tools.upstream import Upstream

_CARRIED = (Outcome.CLEAN, Outcome.STRUCTURAL)
_APPLIED = "Applied-Upstream"
_RESOLUTION = "resolution "  # how the rule of a carry names a kept resolution


class Action(StrEnum):
    """What became of a patch."""

    KEPT = "kept"
    REFRESHED = "refreshed"
    VARIANT = "variant"
    RECORDED = "recorded"
    DROPPED = "dropped"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class Move:
    """One patch at the new base.

    Attributes:
        outcome: How it was carried there, as it was written before.
        action: What became of it.
        comparison: Its payload as it was written and as it landed; None where it did not land.
        note: Why, in words, or "".
        expected: The reason that is recorded for a conflict, or "".
    """

    outcome: PatchOutcome
    action: Action
    comparison: Comparison | None = None
    note: str = ""
    expected: str = ""

    @property
    def same_payload(self) -> bool:
        """Whether only what is around the patch has changed."""
        return self.comparison is None or self.comparison.before == self.comparison.after


@dataclass(frozen=True)
class Rebased:
    """The series on its new base.

    Attributes:
        carried: The series as it was, carried to the new base.
        moves: One a step of the series, in order.
        files: What is to be written below ``patches/``, None for what is to be removed.
        proved: The refs at which the series gives the same trees before and after.
    """

    carried: Carried
    moves: tuple[Move, ...]
    files: Mapping[str, bytes | None]
    proved: tuple[str, ...]

    @property
    def conflicts(self) -> tuple[Move, ...]:
        """What a person must solve."""
        return tuple(m for m in self.moves if m.action is Action.CONFLICT and not m.expected)

    @property
    def changed(self) -> tuple[Move, ...]:
        """What landed with another payload than it was written with."""
        return tuple(move for move in self.moves if not move.same_payload)


@dataclass(frozen=True)
class _Proof:
    """What the series gives at each ref: its tree, and the steps in conflict."""

    upstreams: tuple[Upstream, ...]
    outcomes: Mapping[str, tuple[PatchOutcome, ...]]
    results: Mapping[str, tuple[str, frozenset[str]]]

    @classmethod
    def of(cls, carrier: Carrier, upstreams: Iterable[Upstream]) -> "_Proof":
        held = tuple(upstreams)
        carried = list(carrier.carry_each(held))
        names = [one.upstream.ref.name for one in carried]
        return cls(
            held,
            {name: one.outcomes for name, one in zip(names, carried, strict=True)},
            {name: _result(one) for name, one in zip(names, carried, strict=True)},
        )

    def differing(self, carrier: Carrier, step: str = "") -> str:
        """Return the first ref at which ``carrier`` gives something else, in words, or "".

        Args:
            carrier: Carries the series as it would be.
            step: Only refs at which this step does something; every ref without.
        """
        wanted = [
            upstream
            for upstream in self.upstreams
            if not step or self.at(step, upstream.ref.name) is not Outcome.NOT_NEEDED
        ]
        try:
            for one in carrier.carry_each(wanted):
                name = one.upstream.ref.name
                if _result(one) != self.results[name]:
                    return f"{name} would get another tree"
        except DoesNotFit as misfit:
            return f"{misfit.patch.file} would not fit {misfit.patch.base} any more"
        return ""

    @cached_property
    def used(self) -> frozenset[str]:
        """The patches that some ref is given, or should be."""
        return frozenset(
            outcome.file
            for outcomes in self.outcomes.values()
            for outcome in outcomes
            if outcome.outcome in (*_CARRIED, Outcome.CONFLICT)
        )

    def at(self, step: str, ref: str) -> Outcome | None:
        """Return a step's outcome at a ref."""
        return next((o.outcome for o in self.outcomes[ref] if o.name == step), None)


def _result(carried: Carried) -> tuple[str, frozenset[str]]:
    return carried.tree, frozenset(outcome.name for outcome in carried.conflicts)


@dataclass(frozen=True)
class _Draft:
    """The series as it is to become: its files below ``patches/``, and who carries the old one."""

    before: Carrier
    files: Mapping[str, bytes]
    listing: bytes

    @cached_property
    def carrier(self) -> Carrier:
        """Carries the series as the files say."""
        with tempfile.TemporaryDirectory(prefix="vllm-exaone-rebase-") as directory:
            for name, content in {**self.files, "series": self.listing}.items():
                (Path(directory) / name).write_bytes(content)
            series = read_series(Path(directory))
        # A carrier remembers what its own patches were written on: another series, another one.
        old = self.before
        return Carrier(old.git, series, old.overlay, old.base_of, old.kept)

    def step(self, name: str) -> Step:
        """Return a step of the series."""
        return next(step for step in self.carrier.series.steps if step.name == name)

    def put(self, plan: Plan) -> "_Draft":
        """Return the draft with a patch written anew."""
        (name,) = plan.files
        files = {k: v for k, v in self.files.items() if k != plan.replaced} | plan.files
        return _Draft(self.before, files, listed(self.listing, name, plan.replaced))

    def applied(self, names: Iterable[str], release: str) -> "_Draft":
        """Return the draft with patches marked as applied upstream."""
        changed = {name: with_applied(self.files[name], release) for name in names}
        return _Draft(self.before, {**self.files, **changed}, self.listing)

    def without(self, names: Iterable[str]) -> "_Draft":
        """Return the draft without some patches."""
        files, listing = dict(self.files), self.listing
        for name in names:
            del files[name]
            listing = unlisted(listing, name)
        return _Draft(self.before, files, listing)


def rebase(
    carrier: Carrier,
    patches: Path,
    upstream: Upstream,
    supported: Sequence[Upstream],
    expected: Mapping[tuple[str, str], str],
    *,
    every: bool = False,
) -> Rebased:
    """Move the series onto ``upstream``.

    Args:
        carrier: Carries the series as it is.
        patches: The directory that it was read from.
        upstream: The new base. At what is no release no patch is written anew.
        supported: Every release that the series must go on serving, oldest first.
        expected: (patch, ref) -> reason of the conflicts that are recorded as expected.
        every: Also write anew what is carried by text alone.

    Raises:
        BadInput: A patch does not fit the base that it names.
        CheckFailed: The result would change what a supported release gets.
    """
    ref = upstream.ref.name
    refs = [*supported, *([] if ref in [u.ref.name for u in supported] else [upstream])]
    proof = _Proof.of(carrier, refs)
    carried = carrier.carry(upstream)
    files = {p.file: (patches / p.file).read_bytes() for p in carrier.series.patches}
    draft = _Draft(carrier, files, (patches / "series").read_bytes())
    moves = []
    for outcome in carried.outcomes:
        move = Move(outcome, Action.KEPT)
        if outcome.outcome is Outcome.CONFLICT:
            reason = expected.get((outcome.name, ref), "")
            move = replace(move, action=Action.CONFLICT, expected=reason)
        elif outcome.outcome is Outcome.UPSTREAMED:
            draft, move = _record(draft, move, proof, upstream)
        elif outcome.outcome in _CARRIED:
            with carrier.git.quarantined() as git:
                move = replace(move, comparison=_landed(git, carrier, outcome))
                if upstream.ref.is_release:
                    draft, move = _refresh(git, draft, move, proof, upstream, every=every)
        moves.append(move)
    draft, moves = _drop(draft, moves, proof)
    changes = _changes(patches, files, draft, moves)
    differs = proof.differing(draft.carrier) if changes else ""
    if differs:
        raise CheckFailed(f"the series would not be the same on its new base: {differs}")
    return Rebased(carried, tuple(moves), changes, tuple(u.ref.name for u in refs))


def _landed(git: Git, carrier: Carrier, outcome: PatchOutcome) -> Comparison:
    patch = next(p for p in carrier.series.patches if p.file == outcome.file)
    written = carrier.written(git, patch)
    return compare(
        payload(git, written.base, written.patched),
        payload(git, f"{outcome.commit}^1", str(outcome.commit)),
    )


# Written anew -------------------------------------------------------------------------------------


def _refresh(
    git: Git, draft: _Draft, move: Move, proof: _Proof, upstream: Upstream, *, every: bool
) -> tuple[_Draft, Move]:
    outcome, ref = move.outcome, upstream.ref.name
    step = draft.step(outcome.name)
    wanted = every or outcome.outcome is Outcome.STRUCTURAL
    if not wanted or any(variant.base == ref for variant in step.variants):
        return draft, move
    head = git.resolve(f"{outcome.commit}^1") or ""
    landing = Landing(step.name, outcome.file, ref, head, git.tree_of(str(outcome.commit)))
    tried = draft.put(as_patch(git, draft.carrier, landing, "", as_base=True))
    differs = proof.differing(tried.carrier, step.name)
    if not differs:
        return tried, replace(move, action=Action.REFRESHED, note=f"written on {ref} now")
    keys = outcome.rule.rpartition(_RESOLUTION)[2] if _RESOLUTION in outcome.rule else ""
    kept = draft.carrier.kept.by_key.get(keys.partition(",")[0])
    if kept is not None:
        why = f"no merge could work: {kept.reason}"
        tried = draft.put(as_patch(git, draft.carrier, landing, why, as_base=False))
        differs = proof.differing(tried.carrier, step.name)
        if not differs:
            note = f"solved by a person at {kept.ref}; written on {ref} beside the others"
            return tried, replace(move, action=Action.VARIANT, note=note)
    return draft, replace(move, note=f"stays on its base: written on {ref}, {differs}")


# Upstream by now ----------------------------------------------------------------------------------


def _record(draft: _Draft, move: Move, proof: _Proof, upstream: Upstream) -> tuple[_Draft, Move]:
    """Fill in ``Applied-Upstream``: the first release of the run that ends at ``upstream``."""
    step = draft.step(move.outcome.name)
    lacking = [v.file for v in step.variants if not v.field(_APPLIED)]
    end = upstream.ref.version
    if not lacking or end is None:
        known = ", ".join(dict.fromkeys(v for p in step.variants for v in p.field(_APPLIED)))
        return draft, replace(move, note=f"upstream since {known}" if known else "")
    first = upstream.ref.name
    earlier = [u.ref for u in proof.upstreams if u.ref.version and u.ref.version < end]
    for ref in reversed(earlier):
        if proof.at(step.name, ref.name) is not Outcome.UPSTREAMED:
            break
        first = ref.name
    note = f"upstream since {first}"
    return draft.applied(lacking, first), replace(move, action=Action.RECORDED, note=note)


def _drop(draft: _Draft, moves: Sequence[Move], proof: _Proof) -> tuple[_Draft, list[Move]]:
    """Leave out what no supported release needs any more.

    A later patch may have been written on a tree with an earlier one: where not all of them can go
    at once, they are tried one after another, the last first.
    """
    going = {move.outcome.name: _idle(draft.step(move.outcome.name), move, proof) for move in moves}
    done = {move.outcome.name: move for move in moves}
    names = [name for name, idle in going.items() if idle.files]
    at_once = draft.without(file for name in names for file in going[name].files)
    if names and not proof.differing(at_once.carrier):
        for name in names:
            done[name] = _left(done[name], going[name])
        return at_once, list(done.values())
    for name in reversed(names):
        tried = draft.without(going[name].files)
        differs = proof.differing(tried.carrier)
        if differs:
            note = _joined(done[name].note, f"stays: without it {differs}")
            done[name] = replace(done[name], note=note)
        else:
            draft, done[name] = tried, _left(done[name], going[name])
    return draft, list(done.values())


@dataclass(frozen=True)
class _Idle:
    """The patches of a step that no supported release needs; whether these are all of them."""

    files: tuple[str, ...]
    whole: bool
    why: str


def _idle(step: Step, move: Move, proof: _Proof) -> _Idle:
    """Return what of a step may go.

    What nothing carries may also be for a commit that is yet to be released: it goes only where
    upstream has it, or where it was written for releases that are out of support.
    """
    oldest = min((u.ref.version for u in proof.upstreams if u.ref.version), default=Version("0"))
    names = [variant.file for variant in step.variants]
    old = {v.file for v in step.variants if Version(v.base[1:]) < oldest}
    past = old | {v.file for v in step.variants if v.field(_APPLIED)}
    whole = past.issuperset(names) and proof.used.isdisjoint(names)
    if whole and move.action is not Action.REFRESHED:
        return _Idle(tuple(names), True, f"no release from v{oldest} on needs it")
    gone = tuple(name for name in names if name in old - proof.used)
    if len(gone) == len(names):
        return _Idle((), False, "")
    return _Idle(gone, False, f"without {', '.join(gone)}")


def _left(move: Move, idle: _Idle) -> Move:
    action = Action.DROPPED if idle.whole else move.action
    return replace(move, action=action, note=_joined(move.note, idle.why))


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


# The result ---------------------------------------------------------------------------------------


def _changes(
    patches: Path, before: Mapping[str, bytes], draft: _Draft, moves: Iterable[Move]
) -> dict[str, bytes | None]:
    changes: dict[str, bytes | None] = {
        name: content for name, content in draft.files.items() if before.get(name) != content
    }
    changes |= dict.fromkeys(name for name in before if name not in draft.files)
    if draft.listing != (patches / "series").read_bytes():
        changes["series"] = draft.listing
    gone = {move.outcome.name for move in moves if move.action is Action.DROPPED}
    for kept in draft.before.kept.by_key.values():
        if kept.patch in gone:
            changes[f"{DIRECTORY}/{kept.name}"] = None
    return dict(sorted(changes.items()))
