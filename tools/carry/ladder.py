"""One patch at one ref: text, then structure, then proof.

The text rung is an object-level 3-way merge of the patch's base, base plus patch, and the ref's
tree. Where it leaves a file in conflict, or leaves one that fails the proof, the file's three
blobs go to the syntax-aware merge of :mod:`tools.merge`. Nothing is ever placed by fuzz.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tools.carry.outcome import Outcome
from tools.carry.written import Written, synthetic_commit
from tools.git import EXECUTABLE, REGULAR, Change, Entry, Git, Stage
from tools.merge import Conflict, Edit, FileMerge, Rule, Site, merge_file, prove

_FILES = (REGULAR, EXECUTABLE)


@dataclass(frozen=True)
class Rung:
    """Where the ladder ended for one patch: the new tree is ``tree`` unless in conflict."""

    outcome: Outcome
    rule: str
    tree: str
    edits: tuple[Edit, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


@dataclass
class _Findings:
    """What the files of one patch add up to."""

    edits: list[Edit] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    blobs: dict[bytes, Entry | None] = field(default_factory=dict)
    structural: list[str] = field(default_factory=list)


def climb(git: Git, written: Written, head: str) -> Rung:
    """Bring a patch to the tree ``head``.

    Args:
        git: Where the objects are and go.
        written: The patch, as commits.
        head: The ref's tree, with the earlier patches on it.
    """
    ours = synthetic_commit(git, head, written.base)
    merged = git.merge_trees(ours, written.patched)
    if not merged.stages and merged.tree == head:
        return Rung(Outcome.UPSTREAMED, "the merge leaves the tree as it was", head)
    job = _Job(git, written, head, merged.tree)
    conflicted: dict[bytes, dict[int, Stage]] = {}
    for stage in merged.stages:
        conflicted.setdefault(stage.path, {})[stage.number] = stage
    findings = _Findings()
    for path, stages in conflicted.items():
        job.resolve(path, stages, findings)
    for change in git.changes(head, merged.tree):
        if change.path not in conflicted:
            job.check(change.path, change.old, change.new, findings)
    edits, conflicts = tuple(findings.edits), tuple(findings.conflicts)
    if conflicts:
        return Rung(Outcome.CONFLICT, conflicts[0].reason, head, edits, conflicts)
    tree = git.edit_tree(merged.tree, findings.blobs) if findings.blobs else merged.tree
    if tree == head:
        return Rung(Outcome.UPSTREAMED, "every edit is there already", head, edits)
    if findings.structural:
        names = ", ".join(findings.structural)
        return Rung(Outcome.STRUCTURAL, f"merged by syntax in {names}", tree, edits)
    return Rung(Outcome.CLEAN, "merged by text", tree, edits)


@dataclass(frozen=True)
class _Job:
    """The trees of one patch at one ref, and the files in them."""

    git: Git
    written: Written
    head: str
    merged: str

    def resolve(self, path: bytes, stages: Mapping[int, Stage], findings: _Findings) -> None:
        """Give a conflicted path to the syntax-aware merge."""
        base, ours, theirs = (stages.get(number) for number in (1, 2, 3))
        if not base or not theirs or any(s.mode not in _FILES for s in stages.values()):
            findings.conflicts.append(_conflict(path, _describe(stages)))
            return
        target = self.git.read_blob(ours.oid) if ours else b""
        result = merge_file(
            os.fsdecode(path),
            self.git.read_blob(base.oid),
            self.git.read_blob(theirs.oid),
            target,
            self._elsewhere(path),
        )
        if not ours and not result.conflicts and os.fsdecode(path) in result.files:
            # Upstream deleted the file; bringing back what is left of it would be a guess.
            result = FileMerge({}, result.rule, (), (_conflict(path, "upstream deleted the file"),))
        mode = (ours or theirs).mode
        # merge-tree leaves the surviving side at a modify/delete: the head's layout wins.
        findings.blobs[path] = self.git.entry(self.head, path)
        self._take(result, path, mode, findings)

    def check(self, path: bytes, old: Entry | None, new: Entry | None, findings: _Findings) -> None:
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
        proof = prove(name, before, after, target, merged)
        if not proof.conflicts:
            findings.edits.extend(self._named(edit, path) for edit in proof.edits)
            return
        result = merge_file(name, before, after, target, self._elsewhere(path)) if old else proof
        self._take(result, path, new.mode, findings)

    def _take(self, result: FileMerge, path: bytes, mode: str, findings: _Findings) -> None:
        findings.edits.extend(self._named(edit, path) for edit in result.edits)
        findings.conflicts.extend(result.conflicts)
        for name, content in result.files.items():
            place = os.fsencode(name)
            held = self.git.entry(self.head, place)
            findings.blobs[place] = Entry(
                place, held.mode if held else mode, self.git.write_blob(content)
            )
        if result.rule is Rule.STRUCTURE and not result.conflicts:
            findings.structural.append(os.fsdecode(path))

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

    def _elsewhere(self, path: bytes) -> Mapping[str, bytes]:
        """Return the Python files beside ``path`` that upstream added since the base."""
        return dict(self._added_beside(path)) if path.endswith(b".py") else {}

    def _added_beside(self, path: bytes) -> Iterator[tuple[str, bytes]]:
        directory, slash, _ = path.rpartition(b"/")
        held = self.git.children(self.head, directory) or {}
        known = self.git.children(self.written.base, directory) or {}
        for name, entry in held.items():
            if name.endswith(b".py") and entry.mode in _FILES and name not in known:
                yield os.fsdecode(directory + slash + name), self.git.read_blob(entry.oid)


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
