"""The whole series and the overlay on a ref: a chain of commits, one a patch, one for the overlay.

Everything is written to a quarantine of the store and kept only when the chain is complete. The
same patches, overlay and upstream commit give the same commit ids on every machine.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tools.carry.ladder import Stuck, climb
from tools.carry.marking import mark
from tools.carry.outcome import Carried, Outcome, PatchOutcome
from tools.carry.resolutions import NO_RESOLUTIONS, Resolutions
from tools.carry.written import (
    DoesNotFit,
    Written,
    read_written,
    synthetic_commit,
    write_as_declared,
    write_patch,
)
from tools.git import REGULAR, Commit, Entry, Git, GitTree, Person
from tools.merge import Labels
from tools.overlay import Holds, Laid, Overlay, unmet
from tools.series import Answers, Patch, Series, Step
from tools.tree import Tree
from tools.upstream import Upstream
from tools.upstream.store import ANSWERS

T = TypeVar("T")
COMMITTER = ("vllm-exaone", "vllm-exaone@invalid")
WRITTEN_REFS = "refs/written/"
CARRIED_REFS = "refs/carried/"
RESOLVING_REFS = "refs/resolving/"
_FORMAT = "1"  # of what WRITTEN_REFS hold; a change of it leaves older ones to `store gc`


@dataclass(frozen=True)
class Stop:
    """Where the series stops at a ref, for a person to go on.

    Attributes:
        upstream: The ref.
        patch: The patch, or variant, in conflict.
        outcome: What the ladder said of it.
        written: The patch, as commits.
        head: The commit of the ref with the earlier patches on it.
        marked: A commit on ``head`` of the tree as far as the merge goes, with conflict markers.
        stuck: The files that no rung could merge; none where the patch only has to be written anew.
    """

    upstream: Upstream
    patch: Patch
    outcome: PatchOutcome
    written: Written
    head: str
    marked: str
    stuck: tuple[Stuck, ...]


@dataclass(frozen=True)
class Carrier:
    """Carries one series and overlay to any number of refs.

    Args:
        git: The store.
        series: The patches.
        overlay: The overlay.
        base_of: Returns the upstream commit of a base release such as ``v0.19.1``, importing it
            into the store where it is not there yet.
        kept: What persons decided where no merge could.
    """

    git: Git
    series: Series
    overlay: Overlay
    base_of: Callable[[str], str]
    kept: Resolutions = NO_RESOLUTIONS
    _written: dict[str, Written] = field(default_factory=dict, repr=False)
    _prefixes: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    _bases: dict[str, str] = field(default_factory=dict, repr=False)

    def carry(self, upstream: Upstream, *, keep: bool = True) -> Carried:
        """Bring the series and the overlay to ``upstream``.

        Args:
            upstream: Where to.
            keep: Put the result into the store, under ``refs/carried/``; otherwise its objects
                are gone when this returns, and only the outcome stays.

        Raises:
            BadInput: A patch does not fit the base that it names.
        """
        with self.git.quarantined() as git:
            carried = self._carry(git, upstream)
            name = f"{CARRIED_REFS}{upstream.source}/{upstream.ref.name}"
            self._publish(git, {name: carried.commit} if keep else {})
        return carried

    def carry_each(self, upstreams: Iterable[Upstream]) -> Iterator[Carried]:
        """Bring the series and the overlay to several refs; only the outcomes stay.

        Much faster than one :meth:`carry` a ref: they share one quarantine and what was read.

        Raises:
            BadInput: A patch does not fit the base that it names.
        """
        return (carried for carried, _ in self.look_each(upstreams, _nothing))

    def look(self, upstream: Upstream, see: Callable[[Carried, Tree], T]) -> T:
        """Carry in memory and return what ``see`` makes of it and of its tree; nothing else stays.

        Raises:
            BadInput: A patch does not fit the base that it names.
        """
        ((_, seen),) = self.look_each([upstream], see)
        return seen

    def look_each(
        self, upstreams: Iterable[Upstream], see: Callable[[Carried, Tree], T]
    ) -> Iterator[tuple[Carried, T]]:
        """Carry to several refs as :meth:`carry_each` does, with a :meth:`look` at each.

        Raises:
            BadInput: A patch does not fit the base that it names.
        """
        with self.git.quarantined() as git:
            for upstream in upstreams:
                carried = self._carry(git, upstream)
                yield carried, see(carried, GitTree(git, carried.commit))
            self._publish(git, {})

    def _carry(self, git: Git, upstream: Upstream) -> Carried:
        answers = self._answers(git, upstream.commit)
        outcomes, tip = self._patches(
            git, self.series, upstream.commit, upstream.ref.name, answers.holds
        )
        laid = self.overlay.choose(answers.holds)
        answers.keep()
        commit = self._lay(git, tip, laid)
        return Carried(upstream, commit, git.tree_of(commit), outcomes, laid)

    def stop(
        self, upstream: Upstream, *, patch: str = "", passing: frozenset[str] = frozenset()
    ) -> Stop | None:
        """Return where the series stops at ``upstream``, or None where it does not.

        It also stops at a patch whose base is ``upstream`` and that does not fit there any more,
        because an earlier patch has changed; nothing may be stuck then.

        Args:
            upstream: Where to.
            patch: The step to stop at; the first one in conflict without.
            passing: Steps whose conflict is expected: they are left out, as a carry does.

        Raises:
            BadInput: A patch does not fit the base that it names, which is another.
        """
        with self.git.quarantined() as git:
            holds = self._answers(git, upstream.commit).holds
            tip = upstream.commit
            for step in self.series.steps:
                try:
                    outcome = self._step(git, step, upstream.ref.name, holds, tip)
                except DoesNotFit as misfit:
                    if misfit.patch not in step.variants or misfit.patch.base != upstream.ref.name:
                        raise
                    found = misfit.patch
                    written = write_as_declared(git, found, git.tree_of(tip))
                    outcome = self._outcome(git, found, written, tip)
                    break
                wanted = step.name == patch if patch else step.name not in passing
                if outcome.outcome is Outcome.CONFLICT and wanted:
                    found = next(p for p in step.variants if p.file == outcome.file)
                    written = self.written(git, found)
                    break
                tip = outcome.commit or tip
            else:
                return None
            labels = Labels(upstream.ref.name, found.base, found.file.removesuffix(".patch"))
            marked, stuck = mark(git, written, git.tree_of(tip), self.kept, labels)
            # The patch is its second parent, so that the store keeps all of it together.
            commit = synthetic_commit(git, marked, tip, written.patched)
            name = f"{RESOLVING_REFS}{upstream.source}/{upstream.ref.name}"
            self._publish(git, {name: commit})
        return Stop(upstream, found, outcome, written, tip, commit, stuck)

    def _publish(self, git: Git, refs: dict[str, str]) -> None:
        """Keep ``refs`` and the written patches of this run, out of the quarantine ``git``."""
        fresh = {
            WRITTEN_REFS + key: written.patched
            for key, written in self._written.items()
            if self.git.resolve(WRITTEN_REFS + key) is None
        } | refs
        git.keep(*fresh.values())
        for name, tip in fresh.items():
            self.git.update_ref(name, tip)

    # The chain ----------------------------------------------------------------------------------

    def _patches(
        self, git: Git, series: Series, commit: str, ref: str, holds: Holds
    ) -> tuple[tuple[PatchOutcome, ...], str]:
        outcomes = []
        tip = commit
        for step in series.steps:
            outcome = self._step(git, step, ref, holds, tip)
            outcomes.append(outcome)
            tip = outcome.commit or tip
        return tuple(outcomes), tip

    def _answers(self, git: Git, commit: str) -> Answers:
        """Return what probes say of an upstream commit, of which the store's directory has some."""
        return Answers(GitTree(git, commit), self.git.directory / ANSWERS / f"{commit}.json")

    def _step(self, git: Git, step: Step, ref: str, holds: Holds, tip: str) -> PatchOutcome:
        first: PatchOutcome | None = None
        for patch in step.nearest(ref):
            why = unmet(patch.only_if, patch.skip_if, holds)
            if why:
                tried = PatchOutcome(step.name, patch.file, patch.digest, Outcome.NOT_NEEDED, why)
            else:
                tried = self._try(git, patch, tip)
            if tried.outcome not in (Outcome.CONFLICT, Outcome.NOT_NEEDED):
                return tried
            # A variant that conflicts says more than one that is not needed.
            if first is None or (first.outcome, tried.outcome) == (
                Outcome.NOT_NEEDED,
                Outcome.CONFLICT,
            ):
                first = tried
        if first is None:
            raise ValueError(f"the step {step.name} has no patch")
        return first

    def _try(self, git: Git, patch: Patch, tip: str) -> PatchOutcome:
        return self._outcome(git, patch, self.written(git, patch), tip)

    def _outcome(self, git: Git, patch: Patch, written: Written, tip: str) -> PatchOutcome:
        rung = climb(git, written, git.tree_of(tip), self.kept)
        outcome = PatchOutcome(
            patch.name,
            patch.file,
            patch.digest,
            rung.outcome,
            rung.rule,
            rung.edits,
            rung.conflicts,
        )
        if rung.outcome not in (Outcome.CLEAN, Outcome.STRUCTURAL):
            return outcome
        author = patch.author
        committer = Person(*COMMITTER, author.when, author.zone)
        commit = git.write_commit(Commit(rung.tree, (tip,), author, committer, patch.message))
        return replace(outcome, commit=commit)

    def _lay(self, git: Git, tip: str, laid: tuple[Laid, ...]) -> str:
        files = [row.file for row in laid if row.laid]
        edits: dict[bytes, Entry | None] = {}
        for file in files:
            path = file.target.encode()
            edits[path] = Entry(path, REGULAR, git.write_blob(file.content))
        before = git.tree_of(tip)
        tree = git.edit_tree(before, edits)
        if tree == before:
            return tip
        lines = "".join(f"{file.digest}  {file.target}\n" for file in files)
        message = f"Lay the EXAONE-4.5 overlay over the tree\n\nSHA-256 of each file:\n\n{lines}"
        # The overlay has no author date of its own; the newest patch's keeps the id reproducible.
        when = max((patch.author.when for patch in self.series.patches), default=0)
        person = Person(*COMMITTER, when)
        return git.write_commit(Commit(tree, (tip,), person, person, message.encode()))

    # The trees that patches were written on -----------------------------------------------------

    def written(self, git: Git, patch: Patch) -> Written:
        """Return a patch of the series as commits, on its base with the earlier patches.

        Args:
            git: Where the objects go that are not in the store yet.
            patch: The patch.

        Raises:
            BadInput: It does not fit the base that it names.
        """
        before = self.series.before(patch.name)
        base = self._base(patch)
        key = self._key(patch, base)
        if key not in self._written:
            known = self.git.resolve(WRITTEN_REFS + key)
            self._written[key] = (
                read_written(git, known)
                if known
                else write_patch(git, patch, self._prefix(git, before, patch.base, base))
            )
        return self._written[key]

    def expire(self) -> int:
        """Forget the written patches that are none of this series', and return how many.

        Each change of a patch leaves the commits that it and the later ones were until then.
        """
        current = {
            WRITTEN_REFS + self._key(patch, self._base(patch)) for patch in self.series.patches
        }
        stale = [name for name in self.git.refs(WRITTEN_REFS) if name not in current]
        self.git.delete_refs(stale)
        return len(stale)

    def _base(self, patch: Patch) -> str:
        if patch.base not in self._bases:
            self._bases[patch.base] = self.base_of(patch.base)
        return self._bases[patch.base]

    def _key(self, patch: Patch, base: str) -> str:
        before = self.series.before(patch.name)
        parts = [_FORMAT, base, patch.digest, *(earlier.digest for earlier in before.patches)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _prefix(self, git: Git, before: Series, ref: str, base: str) -> str:
        """Return the tree of ``base`` with the earlier patches that are carried there."""
        key = (base, before.steps[-1].name if before.steps else "")
        if key not in self._prefixes:
            answers = self._answers(git, base)
            _outcomes, tip = self._patches(git, before, base, ref, answers.holds)
            answers.keep()
            self._prefixes[key] = git.tree_of(tip)
        return self._prefixes[key]


def _nothing(_carried: Carried, _tree: Tree) -> None:
    """See nothing."""
