"""One file up the ladder: text, then syntax, each proved."""

from collections.abc import Mapping, Sequence

from tools.merge import proof, structure, tables
from tools.merge.follow import Follower
from tools.merge.lines import merge_text
from tools.merge.model import Conflict, Edit, FileMerge, Rule, Site
from tools.merge.places import is_python, text_conflicts, text_edits
from tools.merge.syntax import parse


def merge_file(
    path: str,
    base: bytes,
    patched: bytes,
    target: bytes,
    elsewhere: Mapping[str, bytes] | None = None,
    *,
    elsewhere_base: Mapping[str, bytes] | None = None,
) -> FileMerge:
    """Merge one file by the first rung that decides and can be proved.

    Args:
        path: The file; its suffix tells Python and Markdown apart from the rest.
        base: Its bytes in the tree that the patch was written on.
        patched: Its bytes with the patch.
        target: Its bytes at the ref; b"" where the ref has no such file.
        elsewhere: Other files of the ref, by path, in which a definition that left this file may
            be. What the base already had there must be given too, or be left out.
        elsewhere_base: The base's versions of those files.

    Returns:
        The merged file (and those that an edit followed a definition into), or the conflicts of
        the last rung that was tried.
    """
    merged = merge_text(base, patched, target)
    if merged is not None:
        proved = prove(path, base, patched, target, merged)
        if not proved.conflicts:
            return proved
    if is_python(path):
        return _by_syntax(path, base, patched, target, (elsewhere or {}, elsewhere_base or {}))
    if path.endswith(".md"):
        return _by_rows(path, base, patched, target)
    if merged is not None:
        return proved
    return FileMerge({}, Rule.TEXT, (), tuple(text_conflicts(path, base, patched, target)))


def prove(path: str, base: bytes, patched: bytes, target: bytes, merged: bytes) -> FileMerge:
    """Prove a clean text merge, whoever made it.

    Args:
        path: The file.
        base: Its bytes in the tree that the patch was written on.
        patched: Its bytes with the patch.
        target: Its bytes at the ref.
        merged: The result.

    Returns:
        The same bytes with each edit's place, or the conflicts that the proof found: the result
        does not parse, an edit lies in another qualified name, or something stands there twice.
    """
    edits = text_edits(path, base, patched, target, merged)
    conflicts: list[Conflict] = []
    one_sided = target in (base, patched) or base == patched
    if not (one_sided and merged == (patched if target == base else target)):
        if is_python(path):
            conflicts = _prove_python(path, base, patched, target, merged)
        elif path.endswith(".md"):
            conflicts = tables.doubled_rows(path, patched, target, merged)
        if not conflicts:
            conflicts = _check_places(edits)
    files = {} if conflicts else {path: merged}
    return FileMerge(files, Rule.TEXT, tuple(edits), tuple(conflicts))


def _prove_python(
    path: str, base: bytes, patched: bytes, target: bytes, merged: bytes
) -> list[Conflict]:
    conflicts = proof.check_parses(path, base, patched, target, merged)
    b, o, t, m = parse(base), parse(patched, base), parse(target), parse(merged, target)
    if conflicts or not all(source.parses for source in (b, o, t, m)):
        return conflicts
    conflicts = proof.doubled(path, b, o, t, m)
    written, landed = proof.delta(b, o), proof.delta(t, m)
    if not conflicts and written != landed:
        # Part of it is in the target already, or lies elsewhere: the syntax says which.
        other = structure.merge(path, b, o, Follower(path, b, t, {}, {}))
        if other.conflicts or proof.delta(t, parse(other.files[path], target)) != landed:
            whole, there = proof.coarse(written), proof.coarse(landed)
            conflicts = proof.misplaced(path, whole, there, other.edits)
            if not conflicts and whole != there:
                site = Site(path, "", 1)
                conflicts = [Conflict("the text merge lost part of the patch", site, site)]
            conflicts = conflicts or proof.other_block(path, b, written, landed)
    return conflicts


def _check_places(edits: Sequence[Edit]) -> list[Conflict]:
    return [
        Conflict(
            "landed in another place than it was written in"
            if edit.landed.line
            else "is nowhere in the result",
            edit.written,
            edit.landed,
        )
        for edit in edits
        if not edit.landed.line
        or (edit.written.qualname != edit.landed.qualname and not edit.present)
    ]


def _by_syntax(
    path: str,
    base: bytes,
    patched: bytes,
    target: bytes,
    elsewhere: tuple[Mapping[str, bytes], Mapping[str, bytes]],
) -> FileMerge:
    b, o, t = parse(base), parse(patched, base), parse(target)
    for side, source in (("base", b), ("patched", o), ("target", t)):
        if not source.parses:
            site = Site(path, "", 1)
            reason = f"the {side} file does not parse"
            return FileMerge({}, Rule.STRUCTURE, (), (Conflict(reason, site, site),))
    follower = Follower(path, b, t, *elsewhere)
    done = structure.merge(path, b, o, follower)
    conflicts = list(done.conflicts)
    if not conflicts and not done.edits:
        site = Site(path, "", 1)
        conflicts = [Conflict("only the layout changes, and not as in the target", site, site)]
    if not conflicts:
        written = proof.coarse(proof.delta(b, o))
        for name, data in done.files.items():
            before = follower.sources[name]
            conflicts += proof.check_parses(name, base, patched, before.data, data)
            if conflicts:
                break
            after = parse(data, before.data)
            conflicts += proof.doubled(name, b, o, before, after)
            landed = proof.coarse(proof.delta(before, after))
            conflicts += proof.misplaced(name, written, landed, done.edits)
    files = {} if conflicts else done.files
    return FileMerge(files, Rule.STRUCTURE, done.edits, tuple(conflicts))


def _by_rows(path: str, base: bytes, patched: bytes, target: bytes) -> FileMerge:
    merged, conflicts = tables.merge_tables(path, base, patched, target)
    edits: list[Edit] = []
    if merged is not None:
        conflicts = tables.doubled_rows(path, patched, target, merged)
        edits = text_edits(path, base, patched, target, merged)
        conflicts += _check_places(edits)
    files = {} if conflicts or merged is None else {path: merged}
    return FileMerge(files, Rule.STRUCTURE, tuple(edits), tuple(conflicts))
