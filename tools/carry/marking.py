"""Conflicts as a person sees them: the tree as far as it goes, diff3 markers in what is left."""

from tools.carry.ladder import Stuck, survey
from tools.carry.resolutions import Resolutions
from tools.carry.written import Written
from tools.git import REGULAR, Entry, Git
from tools.merge import Labels, conflict_markers, merge_text
from tools.merge.lines import hunks, split_lines


def mark(
    git: Git, written: Written, head: str, kept: Resolutions, labels: Labels
) -> tuple[str, tuple[Stuck, ...]]:
    """Bring a patch as far as it goes, for a person to finish.

    Returns:
        The tree, and the files that no rung could merge. Each of these holds diff3 markers where
        both sides have text; elsewhere it is as ``head`` has it.
    """
    merged, findings = survey(git, written, head, kept)
    blobs = dict(findings.blobs)
    for stuck in findings.stuck:
        held = git.entry(head, stuck.path)
        content = marked(git, stuck, labels)
        mode = held.mode if held else REGULAR
        blobs[stuck.path] = (
            held if content is None else Entry(stuck.path, mode, git.write_blob(content))
        )
    return git.edit_tree(merged.tree, blobs), tuple(findings.stuck)


def marked(git: Git, stuck: Stuck, labels: Labels) -> bytes | None:
    """Return a stuck file with diff3 markers, or None where it is no text.

    A merge that text could do, but whose proof failed, is shown as a choice as well.
    """
    sides = [git.object(oid) if oid else None for oid in (stuck.base, stuck.patched, stuck.target)]
    if any(side is not None and side[1] != "blob" for side in sides):
        return None
    base, patched, target = (side[2] if side else b"" for side in sides)
    if b"\0" in base + patched + target:
        return None
    merged = merge_text(base, patched, target)
    if merged is None:
        return conflict_markers(base, patched, target, labels)
    # With the target as the base of every hunk, all that the merge would do is a disagreement.
    lines, wanted = split_lines(target), split_lines(merged)
    out: list[bytes] = []
    at = 0
    for hunk in hunks(lines, wanted):
        here = b"".join(lines[hunk.a0 : hunk.a1])
        there = b"".join(wanted[hunk.b0 : hunk.b1])
        out += lines[at : hunk.a0]
        out.append(_choice(here, there, labels))
        at = hunk.a1
    return b"".join([*out, *lines[at:]])


def _choice(here: bytes, there: bytes, labels: Labels) -> bytes:
    def closed(part: bytes) -> bytes:
        return part if not part or part.endswith(b"\n") else part + b"\n"

    return (
        b"<<<<<<< " + labels.target.encode() + b"\n" + closed(here)
        + b"||||||| " + labels.target.encode() + b"\n" + closed(here)
        + b"=======\n" + closed(there)
        + b">>>>>>> " + labels.patched.encode() + b"\n"
    )  # fmt: skip
