"""How long each patch lives, whether its fields are true, and what may leave the series.

A patch lives from the release that it was written on for as long as the ladder carries it there
without a person: on text alone first, then on syntax, until it is in conflict and would have to be
refreshed. Each file counts by itself: a variant is what someone once refreshed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from packaging.version import InvalidVersion, Version

from tools.carry import Carried, Carrier, Outcome, PatchOutcome
from tools.errors import BadInput
from tools.git import Git
from tools.overlay import Overlay
from tools.series import Patch, Series, Step
from tools.upstream import Upstream

_SECONDS_A_DAY = 86_400
_AUTHOR = re.compile(rb"^author .* (\d+) [+-]\d{4}$", re.MULTILINE)
_CARRIED = (Outcome.CLEAN, Outcome.STRUCTURAL)
_GONE = (Outcome.UPSTREAMED, Outcome.NOT_NEEDED)
_FORWARDED = re.compile(r"no|not-needed|yes|https?://\S+")


class End(StrEnum):
    """What a patch's life ended in."""

    CONFLICT = "conflict"
    UPSTREAMED = "upstreamed"
    NOT_NEEDED = "not-needed"
    ALIVE = "alive"


@dataclass(frozen=True)
class Moment:
    """A release and when it came out, in seconds since 1970."""

    ref: str
    when: int


@dataclass(frozen=True)
class Span:
    """A run of releases: how many, and the days from the first to the one that ended it."""

    releases: int
    days: int


@dataclass(frozen=True)
class Life:
    """One file of the series from its base on.

    Attributes:
        patch: The step.
        file: The patch or variant.
        born: Its base.
        outcomes: What became of it at each release from there on, as far as it was followed.
        text: How long text alone was enough.
        whole: How long it lived at all.
        end: What ended that.
        ended: The release at which it ended; "" for one that is alive.
    """

    patch: str
    file: str
    born: Moment
    outcomes: tuple[tuple[Moment, Outcome], ...]
    text: Span
    whole: Span
    end: End
    ended: str


@dataclass(frozen=True)
class Untrue:
    """A field of a patch that is not what the carry finds."""

    file: str
    field: str
    text: str


@dataclass(frozen=True)
class Droppable:
    """A step that no supported release needs; ``why`` says what became of it on the last one."""

    patch: str
    why: str


@dataclass(frozen=True)
class Survival:
    """The whole series over a run of releases.

    Attributes:
        moments: The releases, oldest first.
        counts: By release, how many patches had each outcome.
        lives: One a file.
        untrue: What the headers say wrongly.
        droppable: What may leave, given the oldest release that is supported.
        oldest: That release.
    """

    moments: tuple[Moment, ...]
    counts: tuple[Mapping[Outcome, int], ...]
    lives: tuple[Life, ...]
    untrue: tuple[Untrue, ...]
    droppable: tuple[Droppable, ...]
    oldest: str


def survive(carrier: Carrier, upstreams: Sequence[Upstream], oldest: str) -> Survival:
    """Follow every patch over upstream's releases.

    Args:
        carrier: Carries the series.
        upstreams: Releases in the store, oldest first.
        oldest: The oldest release that is supported.

    Raises:
        BadInput: There are no releases, or a patch does not fit the base that it names.
    """
    if not upstreams:
        raise BadInput("there are no releases to follow patches over", "give an older --since")
    carried = tuple(carrier.carry_each(upstreams))
    moments = tuple(Moment(up.ref.name, _when(carrier.git, up.commit)) for up in upstreams)
    lives = tuple(
        _life(patch, _follow(carrier, step, patch, carried), moments)
        for step in carrier.series.steps
        for patch in step.variants
    )
    counts = tuple(
        {outcome: sum(o.outcome is outcome for o in one.outcomes) for outcome in Outcome}
        for one in carried
    )
    by_step = {
        step.name: tuple(
            (m.ref, _of(one, step.name)) for m, one in zip(moments, carried, strict=True)
        )
        for step in carrier.series.steps
    }
    untrue = tuple(
        found
        for step in carrier.series.steps
        for patch in step.variants
        for found in check_fields(patch, by_step[step.name])
    )
    dropped = tuple(
        found
        for step in carrier.series.steps
        if (found := _drop(step, by_step[step.name], oldest)) is not None
    )
    return Survival(moments, counts, lives, untrue, dropped, oldest)


# Lives ------------------------------------------------------------------------------------------


def _follow(
    carrier: Carrier, step: Step, patch: Patch, carried: Sequence[Carried]
) -> Iterator[tuple[str, Outcome]]:
    """Yield (release, outcome) of one file from its base on."""
    born = _version(patch.base)
    later = [one for one in carried if _version(one.upstream.ref.name) >= born]
    if len(step.variants) == 1:
        yield from ((one.upstream.ref.name, _of(one, step.name).outcome) for one in later)
        return
    # With its siblings another file would take over before this one has to give up.
    series = Series((*carrier.series.before(step.name).steps, Step(step.name, (patch,))))
    alone = Carrier(carrier.git, series, Overlay(()), carrier.base_of, carrier.kept)
    for one in alone.carry_each([held.upstream for held in later]):
        yield one.upstream.ref.name, one.outcomes[-1].outcome


def _life(patch: Patch, found: Iterator[tuple[str, Outcome]], moments: Sequence[Moment]) -> Life:
    at = {moment.ref: moment for moment in moments}
    outcomes = tuple((at[ref], outcome) for ref, outcome in found)
    born = at.get(patch.base) or (outcomes[0][0] if outcomes else moments[-1])
    text = _run(outcomes, (Outcome.CLEAN,))
    whole = _run(outcomes, _CARRIED)
    after = outcomes[whole:]
    end = End(after[0][1].value) if after else End.ALIVE
    ended = after[0][0].ref if after else ""

    def span(count: int) -> Span:
        until = outcomes[count][0] if count < len(outcomes) else moments[-1]
        return Span(count, max(0, until.when - born.when) // _SECONDS_A_DAY)

    return Life(patch.name, patch.file, born, outcomes, span(text), span(whole), end, ended)


def _run(outcomes: Sequence[tuple[Moment, Outcome]], of: tuple[Outcome, ...]) -> int:
    return next((n for n, (_, outcome) in enumerate(outcomes) if outcome not in of), len(outcomes))


def _when(git: Git, commit: str) -> int:
    # An import has its newest file's time, which is minutes before the upload of a release; a
    # fetched commit has its own. Both are there without a network.
    found = git.object(commit)
    match = _AUTHOR.search(found[2]) if found else None
    if match is None:
        raise BadInput(f"the commit {commit} has no readable date", "run: python -m tools store gc")
    return int(match[1])


def _of(carried: Carried, step: str) -> PatchOutcome:
    return next(outcome for outcome in carried.outcomes if outcome.name == step)


def _version(release: str) -> Version:
    return Version(release.removeprefix("v"))


# Fields -----------------------------------------------------------------------------------------


def check_fields(patch: Patch, outcomes: Sequence[tuple[str, PatchOutcome]]) -> tuple[Untrue, ...]:
    """Compare ``Forwarded`` and ``Applied-Upstream`` with what the carry finds.

    From the release that ``Applied-Upstream`` names on no release may still carry the step; before
    it none may have it already. A pull request or a URL there is taken on trust.

    Args:
        patch: A patch or variant.
        outcomes: What became of its step at each release, oldest first.
    """
    return tuple(
        Untrue(patch.file, name, text)
        for name, text in (*_forwarded(patch), *_applied(patch, outcomes))
    )


def _forwarded(patch: Patch) -> Iterator[tuple[str, str]]:
    values = patch.field("Forwarded")
    if not values:
        yield "Forwarded", "is missing: say no, not-needed, yes or a URL"
    for value in values:
        if not _FORWARDED.fullmatch(value):
            yield "Forwarded", f"{value!r} is not no, not-needed, yes or a URL"
    if "no" in values and patch.field("Applied-Upstream"):
        yield "Forwarded", "says no, but Applied-Upstream says where upstream has it"


def _applied(
    patch: Patch, outcomes: Sequence[tuple[str, PatchOutcome]]
) -> Iterator[tuple[str, str]]:
    values = patch.field("Applied-Upstream")
    releases = [value for value in values if _is_release(value)]
    if len(values) > 1:
        yield "Applied-Upstream", f"names {len(values)} places: {', '.join(values)}"
    since = next((ref for ref, o in outcomes if o.outcome is Outcome.UPSTREAMED), "")
    if not values and outcomes and outcomes[-1][1].outcome is Outcome.UPSTREAMED:
        yield "Applied-Upstream", f"is missing: the carry finds it in {since}"
    for value in releases:
        applied = _version(value)
        still = [ref for ref, o in outcomes if o.outcome in _CARRIED and _version(ref) >= applied]
        if still:
            yield "Applied-Upstream", f"says {value}, but {still[0]} still needs it"
        early = [
            ref
            for ref, o in outcomes
            if o.outcome is Outcome.UPSTREAMED and _version(patch.base) <= _version(ref) < applied
        ]
        if early:
            yield "Applied-Upstream", f"says {value}, but {early[0]} has it already"


def _is_release(text: str) -> bool:
    try:
        _version(text)
    except InvalidVersion:
        return False
    return text.startswith("v")


def _drop(
    step: Step, outcomes: Sequence[tuple[str, PatchOutcome]], oldest: str
) -> Droppable | None:
    supported = [(ref, o) for ref, o in outcomes if _version(ref) >= _version(oldest)]
    if not supported or any(o.outcome not in _GONE for _, o in supported):
        return None
    ref, last = supported[-1]
    count = f"all {len(supported)} releases from {oldest} on"
    return Droppable(step.name, f"{last.outcome} on {count}; at {ref}: {last.rule}")
