"""What a person made of a conflict, written back so that no one has to solve it again.

At a release it becomes a variant of the patch, or the patch itself where that is its base. At
any other ref it is kept below ``patches/resolutions/``. Either way it is first carried again, in
memory, and nothing is written unless the carry gives the very tree that the person left.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tools.carry import Carried, Carrier, DoesNotFit, Outcome, Resolution, Resolutions
from tools.carry.resolutions import DIRECTORY
from tools.errors import BadInput, CheckFailed
from tools.git import Entry, Git
from tools.maintain.payload import Comparison, compare, payload
from tools.maintain.resolve import (
    Record,
    StuckFile,
    read_record,
    record_of,
    undecided,
    worktree_tree,
    write_aside,
    write_record,
)
from tools.maintain.rewrite import Kept, Landing, Plan, as_patch, listed
from tools.merge.lines import split_lines
from tools.merge.proof import check_parses
from tools.series import Series
from tools.upstream import Upstream

_MARKERS = (b"<<<<<<< ", b"||||||| ", b">>>>>>> ")
_FILES = ("100644", "100755")


@dataclass(frozen=True)
class Refreshed:
    """What ``refresh`` did.

    Attributes:
        patch: The step of the series.
        kept: The form.
        files: What was written below ``patches/``, or would be.
        comparison: The payload before and after, and the drift around it.
        carried: The ref with the series as it is now, up to this patch or in whole.
        misfit: What later patch does not fit its base any more, in words, or "".
    """

    patch: str
    kept: Kept
    files: tuple[str, ...]
    comparison: Comparison
    carried: Carried
    misfit: str = ""


def refresh(
    carrier: Carrier,
    upstream: Upstream,
    path: Path,
    patches: Path,
    *,
    why: str = "",
    as_base: bool = False,
    dry_run: bool = False,
) -> Refreshed:
    """Write back what a person made of the conflict laid out at ``path``.

    Args:
        carrier: Carries the series as it is.
        upstream: The ref of the conflict.
        path: The checkout that ``resolve`` made.
        patches: The directory of the series.
        why: The reason for a variant, for its message; the conflict's own words without.
        as_base: At a release: write the patch itself anew, on this base, and no variant.
        dry_run: Check and compare, but write nothing.

    Raises:
        BadInput: There is nothing to take, or the series changed meanwhile.
        CheckFailed: A conflict is left, a file does not parse, or the carry gives another tree.
        EnvironmentLacks: Something cannot be written.
    """
    record = read_record(path)
    _check_record(carrier.series, record, upstream)
    with carrier.git.quarantined() as git:
        tree = worktree_tree(git, path, record.marked)
        _check(git, path, record, tree)
        reason = why or f"no merge could work: {record.rule}"
        plan, comparison = _plan(git, carrier, upstream, record, tree, reason, as_base=as_base)
    carried = _prove(plan, upstream, record, tree)
    misfit = ""
    try:
        carried = plan.carrier.carry(upstream)
    except DoesNotFit as error:
        misfit = error.message
    if not dry_run:
        _write(patches, plan)
        write_record(path, replace(record, taken=tree))
    return Refreshed(record.step, plan.kept, tuple(plan.files), comparison, carried, misfit)


def refit(
    carrier: Carrier, upstream: Upstream, patches: Path, *, dry_run: bool = False
) -> tuple[Refreshed, ...]:
    """Write every patch anew whose base is ``upstream`` and that does not fit there any more.

    That is so after an earlier patch of the series has changed. The merge does it; a person is
    needed only where it cannot.

    Args:
        carrier: Carries the series as it is.
        upstream: The release.
        patches: The directory of the series.
        dry_run: Compare, but write nothing.

    Raises:
        CheckFailed: A merge could not, or left nothing of a patch.
        EnvironmentLacks: Something cannot be written.
    """
    done = []
    while (stop := carrier.stop(upstream)) and stop.outcome.outcome is not Outcome.CONFLICT:
        record = record_of(carrier.git, stop)
        tree = record.marked
        if stop.outcome.outcome is Outcome.UPSTREAMED:
            raise CheckFailed(
                f"patches/{record.file} has nothing left to do on {record.ref}", "remove it"
            )
        with carrier.git.quarantined() as git:
            plan, comparison = _plan(git, carrier, upstream, record, tree, "", as_base=False)
        carried = _prove(plan, upstream, record, tree)
        if not dry_run:
            _write(patches, plan)
        done.append(Refreshed(record.step, plan.kept, tuple(plan.files), comparison, carried))
        carrier = plan.carrier
    return tuple(done)


def _plan(
    git: Git,
    carrier: Carrier,
    upstream: Upstream,
    record: Record,
    tree: str,
    why: str,
    *,
    as_base: bool,
) -> tuple[Plan, Comparison]:
    comparison = compare(payload(git, record.base, record.patched), payload(git, record.head, tree))
    if upstream.ref.is_release:
        landing = Landing(record.step, record.file, record.ref, record.head, tree)
        return as_patch(git, carrier, landing, why, as_base=as_base), comparison
    return _as_resolution(git, carrier, record, tree), comparison


def _check_record(series: Series, record: Record, upstream: Upstream) -> None:
    patch = next((p for p in series.patches if p.file == record.file), None)
    if patch is None or patch.digest != record.digest:
        raise BadInput(
            f"patches/{record.file} is not what it was when its conflict was laid out",
            f"run resolve {record.ref} again",
        )
    if record.ref != upstream.ref.name:
        raise BadInput(
            f"the checkout is for {record.ref}, not {upstream.ref.name}",
            f"run: python -m tools refresh {record.ref}",
        )


# Whether the person is done -----------------------------------------------------------------------


def _check(git: Git, path: Path, record: Record, tree: str) -> None:
    head = git.tree_of(record.head)
    if tree == head:
        raise CheckFailed(
            f"{path}: nothing of the patch is left",
            f"say where {record.step} is not needed with Skip-If, or put its change in",
        )
    left = undecided(path)
    for stuck in record.stuck:
        entry = git.entry(tree, stuck.path.encode("utf-8", "surrogateescape"))
        if not stuck.marked and stuck.path in left and _is_as_laid_out(git, record, stuck, entry):
            raise CheckFailed(
                f"{stuck.path} is undecided: {stuck.reason}",
                f"decide with git add or git rm in {path}",
            )
    for change in git.changes(head, tree):
        if change.new is None or change.new.mode not in _FILES:
            continue
        content = git.read_blob(change.new.oid)
        before = git.read_blob(change.old.oid) if change.old else b""
        name = change.path.decode("utf-8", "surrogateescape")
        line = _marker_line(content, before)
        if line:
            raise CheckFailed(f"{path / name}:{line}: a conflict is left", "merge it by hand")
        if name.endswith((".py", ".pyi")) and check_parses(name, before, before, before, content):
            raise CheckFailed(f"{path / name} does not parse", "mend it, and run refresh again")


def _is_as_laid_out(git: Git, record: Record, stuck: StuckFile, entry: Entry | None) -> bool:
    return git.entry(record.marked, stuck.path.encode("utf-8", "surrogateescape")) == entry


def _marker_line(content: bytes, before: bytes) -> int:
    """Return the 1-based line of a conflict marker that ``before`` does not have, or 0."""
    known = set(split_lines(before))
    for number, line in enumerate(split_lines(content), 1):
        if line.startswith(_MARKERS) and line not in known:
            return number
    return 0


# What is to be written ----------------------------------------------------------------------------


def _as_resolution(git: Git, carrier: Carrier, record: Record, tree: str) -> Plan:
    """Plan one kept resolution for each file in conflict."""
    head = git.tree_of(record.head)
    paths = {stuck.path.encode("utf-8", "surrogateescape") for stuck in record.stuck}
    more = {change.path for change in git.changes(record.marked, tree)} - paths
    found = []
    for stuck in record.stuck:
        path = stuck.path.encode("utf-8", "surrogateescape")
        # From the ref's file, and from the others as the merge leaves them.
        held = git.entry(head, path)
        start = git.edit_tree(record.marked, {path: held})
        start = git.edit_tree(start, {p: git.entry(tree, p) for p in paths - {path}})
        end = git.edit_tree(start, {p: git.entry(tree, p) for p in {path, *more}})
        diff = git.run(
            "diff-tree", "-p", "-r", "--full-index", "--binary", "-U1", "--no-renames",
            "--no-ext-diff", "--no-textconv", start, end, "--",
        ).stdout  # fmt: skip
        reason = " ".join(stuck.reason.split())
        found.append(
            Resolution(
                record.step, record.ref, reason, path, stuck.base, stuck.patched, stuck.target, diff
            )
        )
    rows = {r.name.removesuffix(".patch"): r for r in found}
    kept = Resolutions({**carrier.kept.by_key, **rows})
    files = {f"{DIRECTORY}/{r.name}": r.encode() for r in found}
    return Plan(Kept.RESOLUTION, files, replace(carrier, kept=kept), record.step)


# Proof, and writing -------------------------------------------------------------------------------


def _prove(plan: Plan, upstream: Upstream, record: Record, tree: str) -> Carried:
    """Carry the series with what is to be written, as far as that, and compare the tree."""
    series = plan.carrier.series
    names = [step.name for step in series.steps]
    through = Series(series.steps[: names.index(plan.step) + 1])
    carried = replace(plan.carrier, series=through).carry(upstream)
    outcome = carried.outcomes[-1]
    store = plan.carrier.git
    if outcome.commit is None or store.tree_of(outcome.commit) != tree:
        raise CheckFailed(
            f"{outcome.file} at {record.ref} is {outcome.outcome} ({outcome.rule}), and does not "
            "give the tree that you left",
            "look at the change once more, or at the conditions in its fields",
        )
    return carried


def _write(patches: Path, plan: Plan) -> None:
    """Write the files, and list a new patch in the place of the old one or behind its siblings.

    Between a new patch and its line in ``series`` lies one rename: a kill there leaves a patch
    that is not listed, which every command names.
    """
    listing = patches / "series"
    for name, content in plan.files.items():
        write_aside(patches / name, content)
    if plan.kept is Kept.RESOLUTION:
        return
    (name,) = plan.files
    text = listing.read_bytes()
    wanted = listed(text, name, plan.replaced)
    if wanted != text:
        write_aside(listing, wanted)
    if plan.replaced not in ("", name):
        (patches / plan.replaced).unlink()
