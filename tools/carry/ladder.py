"""One patch at one ref: text, then structure, then proof.

The text rung is an object-level 3-way merge of the patch's base, base plus patch, and the ref's
tree: file by file where the ref has each file of the patch under its own name, else by git, which
follows renames. Where it leaves a file in conflict, or leaves one that fails the proof, the file's
three blobs go to the syntax-aware merge of :mod:`tools.merge`. What that cannot decide may have
been decided by a person before: see :mod:`tools.carry.resolutions`. Nothing is ever placed by fuzz.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from tools.carry.outcome import Outcome
from tools.carry.resolutions import NO_RESOLUTIONS, Resolution, Resolutions
from tools.carry.written import Written, synthetic_commit
from tools.git import EXECUTABLE, REGULAR, Change, Entry, Git, Stage, TreeMerge
from tools.merge import Conflict, Edit, FileMerge, Rule, Site, merge_file, merge_text, prove

_FILES = (REGULAR, EXECUTABLE)


@dataclass(frozen=True)
class Stuck:
    """A file that no rung could merge.

    Attributes:
        path: Where the ref has it, or where the patch does.
        base: The blob that the patch was written on, "" where there is none.
        patched: The blob with the patch, likewise.
        target: The ref's blob, likewise.
        merge: What the last rung said of it.
    """

    path: bytes
    base: str
    patched: str
    target: str
    merge: FileMerge

    @property
    def reason(self) -> str:
        """Why, in words."""
        return self.merge.conflicts[0].reason


@dataclass(frozen=True)
class Rung:
    """Where the ladder ended for one patch: the new tree is ``tree`` unless in conflict."""

    outcome: Outcome
    rule: str
    tree: str
    edits: tuple[Edit, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


@dataclass
class Findings:
    """What the files of one patch add up to; ``blobs`` is what differs from the text merge."""

    edits: list[Edit] = field(default_factory=list)
    blobs: dict[bytes, Entry | None] = field(default_factory=dict)
    structural: list[str] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def climb(git: Git, written: Written, head: str, kept: Resolutions = NO_RESOLUTIONS) -> Rung:
    """Bring a patch to the tree ``head``.

    Args:
        git: Where the objects are and go.
        written: The patch, as commits.
        head: The ref's tree, with the earlier patches on it.
        kept: What persons decided before where no merge could.
    """
    merged, findings = survey(git, written, head, kept)
    if not merged.stages and merged.tree == head:
        return Rung(Outcome.UPSTREAMED, "the merge leaves the tree as it was", head)
    edits = (*findings.edits, *(edit for stuck in findings.stuck for edit in stuck.merge.edits))
    conflicts = tuple(found for stuck in findings.stuck for found in stuck.merge.conflicts)
    if conflicts:
        return Rung(Outcome.CONFLICT, conflicts[0].reason, head, edits, conflicts)
    tree = git.edit_tree(merged.tree, findings.blobs) if findings.blobs else merged.tree
    if tree == head:
        return Rung(Outcome.UPSTREAMED, "every edit is there already", head, edits)
    rules = []
    if findings.structural:
        rules.append(f"merged by syntax in {', '.join(findings.structural)}")
    if findings.kept:
        rules.append(f"resolution {', '.join(dict.fromkeys(findings.kept))}")
    if rules:
        return Rung(Outcome.STRUCTURAL, "; ".join(rules), tree, edits)
    return Rung(Outcome.CLEAN, "merged by text", tree, edits)


def survey(git: Git, written: Written, head: str, kept: Resolutions) -> tuple[TreeMerge, Findings]:
    """Take every file that the text merge changed or left in conflict up the ladder.

    Returns:
        The text merge, and what came of each file.
    """
    tree = _file_by_file(git, written, head)
    merged = (
        git.merge_trees(synthetic_commit(git, head, written.base), written.patched)
        if tree is None
        else TreeMerge(tree, ())
    )
    findings = Findings()
    if not merged.stages and merged.tree == head:
        return merged, findings
    job = _Job(git, written, head, merged.tree, kept)
    conflicted: dict[bytes, dict[int, Stage]] = {}
    for stage in merged.stages:
        conflicted.setdefault(stage.path, {})[stage.number] = stage
    for path, stages in conflicted.items():
        job.resolve(path, stages, findings)
    for change in git.changes(head, merged.tree):
        if change.path not in conflicted:
            job.check(change.path, change.old, change.new, findings)
    # Last, since a resolution may need other files to be as the merge leaves them.
    findings.stuck = [stuck for stuck in findings.stuck if not job.decided(stuck, findings)]
    return merged, findings


def _file_by_file(git: Git, written: Written, head: str) -> str | None:
    """Return what the merge makes where each file can be merged alone, without asking git.

    That is so where ``head`` has the file as its base does, or where it is the same kind of file
    in all three trees and its lines merge; None anywhere else.
    """
    edits: dict[bytes, Entry | None] = {}
    for change in written.changes:
        held = git.entry(head, change.path)
        if held == change.old:
            parts = change.path.split(b"/")
            parents = (b"/".join(parts[:end]) for end in range(1, len(parts)))
            if git.children(head, change.path) is not None or any(
                git.entry(head, parent) for parent in parents
            ):
                return None
            edits[change.path] = change.new
            continue
        sides = (change.old, change.new, held)
        entries = [side for side in sides if side and side.mode in _FILES]
        if len(entries) < len(sides) or len({entry.mode for entry in entries}) > 1:
            return None
        merged = _merge_lines(*(git.read_blob(entry.oid) for entry in entries))
        if merged is None:
            return None
        edits[change.path] = replace(entries[0], oid=git.write_blob(merged))
    return git.edit_tree(head, edits)


@lru_cache(maxsize=64)
def _merge_lines(base: bytes, patched: bytes, target: bytes) -> bytes | None:
    """Return the merged lines; None where they conflict, or where one side is no text."""
    binary = any(b"\0" in side for side in (base, patched, target))
    return None if binary else merge_text(base, patched, target)


# Neighbouring releases often have the same file, and carrying onto each proves the same merge.
_prove = lru_cache(maxsize=256)(prove)


@lru_cache(maxsize=64)
def _merge_file(
    path: str, base: bytes, patched: bytes, target: bytes, elsewhere: tuple[tuple[str, bytes], ...]
) -> FileMerge:
    return merge_file(path, base, patched, target, dict(elsewhere))


@dataclass(frozen=True)
class _Job:
    """The trees of one patch at one ref, and the files in them."""

    git: Git
    written: Written
    head: str
    merged: str
    kept: Resolutions

    def resolve(self, path: bytes, stages: Mapping[int, Stage], findings: Findings) -> None:
        """Give a conflicted path to the syntax-aware merge."""
        base, ours, theirs = (stages.get(number) for number in (1, 2, 3))
        oids = _ids(base, theirs, ours)
        # merge-tree leaves the surviving side at a modify/delete: the head's layout wins.
        findings.blobs[path] = self.git.entry(self.head, path)
        if not base or not theirs or any(s.mode not in _FILES for s in stages.values()):
            result = FileMerge({}, Rule.TEXT, (), (_conflict(path, _describe(stages)),))
            self._take(result, path, REGULAR, oids, findings)
            return
        target = self.git.read_blob(ours.oid) if ours else b""
        result = _merge_file(
            os.fsdecode(path),
            self.git.read_blob(base.oid),
            self.git.read_blob(theirs.oid),
            target,
            self._elsewhere(path),
        )
        if not ours and (result.conflicts or os.fsdecode(path) in result.files):
            # No definition moved as a whole; to bring back what is left of the file were a guess.
            result = FileMerge({}, result.rule, (), (_conflict(path, "upstream deleted the file"),))
        self._take(result, path, (ours or theirs).mode, oids, findings)

    def check(self, path: bytes, old: Entry | None, new: Entry | None, findings: Findings) -> None:
        """Prove a path that the text merge changed, or merge it by syntax where the proof fails."""
        if new is None or new.mode not in _FILES or (old and old.oid == new.oid):
            kind = "delete" if new is None else "change"
            findings.edits.append(_whole_file(path, kind))
            return
        source = self._source(path)
        merged = self.git.read_blob(new.oid)
        before = self._content(source.old if source else None)
        after = self._content(source.new) if source and source.new else merged
        target = self._content(old)
        if b"\0" in before + after + target:
            findings.edits.append(_whole_file(path, "change" if old else "insert"))
            return
        name = os.fsdecode(path)
        proof = _prove(name, before, after, target, merged)
        if not proof.conflicts:
            findings.edits.extend(self._named(edit, path) for edit in proof.edits)
            return
        result = _merge_file(name, before, after, target, self._elsewhere(path)) if old else proof
        oids = _ids(source.old if source else None, (source.new if source else None) or new, old)
        self._take(result, path, new.mode, oids, findings)

    def _take(
        self,
        result: FileMerge,
        path: bytes,
        mode: str,
        oids: tuple[str, str, str],
        findings: Findings,
    ) -> None:
        if result.conflicts:
            findings.stuck.append(Stuck(path, *oids, merge=result))
            return
        findings.edits.extend(self._named(edit, path) for edit in result.edits)
        for name, content in result.files.items():
            place = os.fsencode(name)
            held = self.git.entry(self.head, place)
            findings.blobs[place] = Entry(
                place, held.mode if held else mode, self.git.write_blob(content)
            )
        if result.rule is Rule.STRUCTURE:
            findings.structural.append(os.fsdecode(path))

    def decided(self, stuck: Stuck, findings: Findings) -> bool:
        """Take over what a person once made of the very same conflict."""
        sides = (stuck.base, stuck.patched, stuck.target)
        held = self.git.entry(self.head, stuck.path)
        found = self.kept.find(*sides)
        if found is None:
            there = self.kept.holds_result(*sides)
            if there:
                findings.blobs[stuck.path] = held
            return there
        made = found.apply(self.git, stuck.path, held)
        if made is None or not self._fits(found, stuck.path, findings):
            return False
        findings.blobs |= made
        findings.kept.append(found.name.removesuffix(".patch"))
        for path, entry in made.items():
            before = self.git.entry(self.head, path)
            if entry == before:
                continue
            oids = (side.oid if side else "" for side in (before, entry))
            contents = self._texts(*oids) if entry else []
            if contents:
                # What a person wrote has no counterpart in the patch: it is where it landed.
                old, new = contents
                findings.edits.extend(_prove(os.fsdecode(path), old, new, old, new).edits)
            else:
                findings.edits.append(_whole_file(path, "change" if entry else "delete"))
        return True

    def _fits(self, found: Resolution, path: bytes, findings: Findings) -> bool:
        """Whether the other files that it touches are what they were when it was made."""
        for file in found.files:
            for name, oid in ((file.old_path, file.old_oid), (file.new_path, file.new_oid)):
                if name in (None, found.path, path) or oid is None:
                    continue
                now = findings.blobs.get(name) or self.git.entry(self.merged, name)
                if (now.oid if now else None) not in (file.old_oid, file.new_oid):
                    return False
        return True

    def _texts(self, *oids: str) -> list[bytes]:
        """Return the blobs' contents, or nothing where one is no text."""
        found = [self.git.object(oid) if oid else ("", "blob", b"") for oid in oids]
        texts = [side[2] for side in found if side and side[1] == "blob" and b"\0" not in side[2]]
        return texts if len(texts) == len(oids) else []

    def _content(self, entry: Entry | None) -> bytes:
        return self.git.read_blob(entry.oid) if entry and entry.mode in _FILES else b""

    def _named(self, edit: Edit, path: bytes) -> Edit:
        """Say where the edit was written by the path that the patch knows."""
        source = self._source(path)
        if source is None or source.path == path:
            return edit
        return replace(edit, written=replace(edit.written, path=os.fsdecode(source.path)))

    def _source(self, path: bytes) -> Change | None:
        """Return the patch's change to the file, which it may know by an older path."""
        by_path = {change.path: change for change in self.written.changes}
        return by_path.get(path) or by_path.get(self._renames.get(path, b""))

    @cached_property
    def _renames(self) -> dict[bytes, bytes]:
        """The head's path -> the base's path for what upstream renamed."""
        out = self.git.run(
            "diff-tree", "-r", "-z", "-M", "--diff-filter=R", "--name-status",
            self.written.base, self.head, "--",
        ).stdout  # fmt: skip
        tokens = out.split(b"\0")[:-1]
        return dict(zip(tokens[2::3], tokens[1::3], strict=True))

    def _elsewhere(self, path: bytes) -> tuple[tuple[str, bytes], ...]:
        """Return the Python files beside ``path`` that upstream added since the base."""
        return tuple(self._added_beside(path)) if path.endswith(b".py") else ()

    def _added_beside(self, path: bytes) -> Iterator[tuple[str, bytes]]:
        directory, slash, _ = path.rpartition(b"/")
        held = self.git.children(self.head, directory) or {}
        known = self.git.children(self.written.base, directory) or {}
        for name, entry in held.items():
            if name.endswith(b".py") and entry.mode in _FILES and name not in known:
                yield os.fsdecode(directory + slash + name), self.git.read_blob(entry.oid)


def _ids(*sides: Entry | Stage | None) -> tuple[str, str, str]:
    base, patched, target = (side.oid if side else "" for side in sides)
    return base, patched, target


def _describe(stages: Mapping[int, Stage]) -> str:
    present = frozenset(stages)
    if present == {1, 3}:
        return "upstream deleted what the patch changes"
    if present == {1, 2}:
        return "upstream changed what the patch deletes"
    if 1 not in present:
        return "both upstream and the patch put another file here"
    return "the path is not a regular file on every side"


def _conflict(path: bytes, reason: str) -> Conflict:
    return Conflict(reason, Site(os.fsdecode(path), "", 1), None)


def _whole_file(path: bytes, kind: str) -> Edit:
    site = Site(os.fsdecode(path), "", 1)
    return Edit(kind, site, site, present=False)
