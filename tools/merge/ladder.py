"""One file up the ladder: text, then syntax, each proved."""

from collections.abc import Mapping, Sequence

from tools.merge import proof, structure, tables
from tools.merge.follow import Follower
from tools.merge.lines import hunks, match_pairs, merge_text, split_lines
from tools.merge.model import Conflict, Edit, FileMerge, Rule, Site
from tools.merge.syntax import Node, Role, Source, parse


def _is_python(path: str) -> bool:
    return path.endswith((".py", ".pyi"))


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
    if _is_python(path):
        return _by_syntax(path, base, patched, target, (elsewhere or {}, elsewhere_base or {}))
    if path.endswith(".md"):
        return _by_rows(path, base, patched, target)
    if merged is not None:
        return proved
    return FileMerge({}, Rule.TEXT, (), tuple(_text_conflicts(path, base, patched, target)))


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
    edits = _text_edits(path, base, patched, target, merged)
    conflicts: list[Conflict] = []
    if merged not in (target, patched):
        if _is_python(path):
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
    sources = [parse(side) for side in (base, patched, target, merged)]
    if conflicts or not all(source.parses for source in sources):
        return conflicts
    b, o, t, m = sources
    conflicts = proof.doubled(path, b, o, t, m)
    written, landed = proof.delta(b, o), proof.delta(t, m)
    if not conflicts and written != landed:
        # Part of it is in the target already, or lies elsewhere: the syntax says which.
        other = structure.merge(path, b, o, Follower(path, b, t, {}, {}))
        if other.conflicts or proof.delta(t, parse(other.files[path])) != landed:
            conflicts = proof.misplaced(path, written, landed, other.edits)
            if not conflicts:
                site = Site(path, "", 1)
                conflicts = [Conflict("the text merge lost part of the patch", site, site)]
    return conflicts


def _check_places(edits: Sequence[Edit]) -> list[Conflict]:
    return [
        Conflict("landed in another place than it was written in", edit.written, edit.landed)
        for edit in edits
        if edit.written.qualname != edit.landed.qualname and not edit.present
    ]


def _by_syntax(
    path: str,
    base: bytes,
    patched: bytes,
    target: bytes,
    elsewhere: tuple[Mapping[str, bytes], Mapping[str, bytes]],
) -> FileMerge:
    b, o, t = (parse(side) for side in (base, patched, target))
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
        written = proof.delta(b, o)
        for name, data in done.files.items():
            before = follower.sources[name]
            conflicts += proof.check_parses(name, base, patched, before.data, data)
            if conflicts:
                break
            after = parse(data)
            conflicts += proof.doubled(name, b, o, before, after)
            conflicts += proof.misplaced(name, written, proof.delta(before, after), done.edits)
    files = {} if conflicts else done.files
    return FileMerge(files, Rule.STRUCTURE, done.edits, tuple(conflicts))


def _by_rows(path: str, base: bytes, patched: bytes, target: bytes) -> FileMerge:
    merged, conflicts = tables.merge_tables(path, base, patched, target)
    edits: list[Edit] = []
    if merged is not None:
        conflicts = tables.doubled_rows(path, patched, target, merged)
        edits = _text_edits(path, base, patched, target, merged)
        conflicts += _check_places(edits)
    files = {} if conflicts or merged is None else {path: merged}
    return FileMerge(files, Rule.STRUCTURE, tuple(edits), tuple(conflicts))


# --- edits of a text merge ----------------------------------------------------------------------


def _text_edits(path: str, base: bytes, patched: bytes, target: bytes, merged: bytes) -> list[Edit]:
    lines = [split_lines(side) for side in (base, patched, target, merged)]
    b, o, t, m = lines
    to_merged = dict(match_pairs(o, m))
    from_target = {j for _, j in match_pairs(t, m)} if t != m else set(range(len(m)))
    names = {id(side): _Names(path, side) for side in (base, patched, target, merged)}
    edits = []
    for hunk in hunks(b, o):
        kind = "insert" if hunk.a0 == hunk.a1 else "delete" if hunk.b0 == hunk.b1 else "change"
        inside = range(hunk.b0, hunk.b1)
        spots = [k for k in inside if o[k].strip()] or list(inside)
        if kind == "delete":
            written = names[id(base)].site(hunk.a0)
            near = _nearest(to_merged, hunk.b0)
            landed = Site(path, written.qualname, near + 1)
            present = not any(line in b[hunk.a0 : hunk.a1] for line in _gone(t, m))
        else:
            at = spots[0]
            written = names[id(patched)].site(at)
            there = to_merged.get(at)
            landed = (
                names[id(merged)].site(there)
                if there is not None
                else Site(path, written.qualname, _nearest(to_merged, at) + 1)
            )
            present = all(to_merged.get(k) in from_target for k in spots)
        edits.append(Edit(kind, written, landed, present))
    return edits


def _gone(t: list[bytes], m: list[bytes]) -> set[bytes]:
    return {line for hunk in hunks(t, m) for line in t[hunk.a0 : hunk.a1]}


def _nearest(to_merged: dict[int, int], at: int) -> int:
    return next((to_merged[k] for k in range(at, -1, -1) if k in to_merged), 0)


def _text_conflicts(path: str, base: bytes, patched: bytes, target: bytes) -> list[Conflict]:
    b, o, t = (split_lines(side) for side in (base, patched, target))
    site = Site(path, "", 1)
    ours, theirs = hunks(b, o), hunks(b, t)
    found = [
        Conflict(
            "changed differently on both sides",
            Site(path, "", mine.b0 + 1),
            Site(path, "", other.b0 + 1),
        )
        for mine in ours
        for other in theirs
        if mine.a0 <= other.a1 and other.a0 <= mine.a1
    ]
    return found or [Conflict("changed differently on both sides", site, site)]


class _Names:
    """Qualified names by line."""

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        self._data = data
        self._headings: list[str] | None = None

    def site(self, line: int) -> Site:
        """Return the site of a 0-based line."""
        if _is_python(self._path):
            name = _qualname_at(parse(self._data), line)
        elif self._path.endswith(".md"):
            self._headings = self._headings or tables.headings(self._data)
            name = self._headings[line] if line < len(self._headings) else ""
        else:
            name = ""
        return Site(self._path, name, line + 1)


def _qualname_at(source: Source, line: int) -> str:
    start = 0
    for _ in range(line):
        start = source.line_end(start)
    text = source.data[start : source.line_end(start)]
    at = start + len(text) - len(text.lstrip())
    node = source.root
    while True:
        inner = _child_at(node, at)
        if inner is None:
            return node.qualname
        node = inner


def _child_at(node: Node, at: int) -> Node | None:
    if node.role in (Role.LEAF, Role.COMMENT):
        return None
    for child in node.children:
        if child.start <= at < max(child.end, child.full_end):
            return child
    return None
