"""Where the edits of a merge by lines were written, and where they are now."""

from collections import Counter
from collections.abc import Iterator

from tools.merge import tables
from tools.merge.lines import (
    Region,
    file_hunks,
    hunks,
    match_pairs,
    merge_text,
    regions,
    split_lines,
)
from tools.merge.model import Conflict, Edit, Site
from tools.merge.syntax import Node, Role, parse


def is_python(path: str) -> bool:
    """Return whether the file is Python, by its suffix."""
    return path.endswith((".py", ".pyi"))


def text_edits(path: str, base: bytes, patched: bytes, target: bytes, merged: bytes) -> list[Edit]:
    """Return the patch's hunks, each with its place in the merged file.

    Args:
        path: The file.
        base: Its bytes in the tree that the patch was written on.
        patched: Its bytes with the patch.
        target: Its bytes at the ref.
        merged: The merge by lines, ours or another's.

    Returns:
        The edits; one that another's merge lost has landed on line 0.
    """
    if merged == merge_text(base, patched, target):
        return list(_own_edits(path, base, patched, target, merged))
    return list(_found_edits(path, base, patched, target, merged))


def _own_edits(
    path: str, base: bytes, patched: bytes, target: bytes, merged: bytes
) -> Iterator[Edit]:
    shift = 0  # how much longer the merged file is, so far, than the target
    o = split_lines(patched)
    for region in regions(base, patched, target):
        here = region.target.start + shift
        if region.result == "patched":
            shift += _size(region.patched) - _size(region.target)
        if _unchanged(base, patched, region):
            continue
        present = region.result == "target"
        if not _size(region.patched):
            written = site(path, base, region.base.start)
            landed = site(path, target, region.target.start)
            if not present and not _size(region.base):
                continue
            yield Edit("delete", written, landed, present)
            continue
        kind = "change" if _size(region.base) else "insert"
        inside = range(_size(region.patched))
        first = next((k for k in inside if o[region.patched.start + k].strip()), 0)
        written = site(path, patched, region.patched.start + first)
        yield Edit(kind, written, site(path, merged, here + first), present)


def _size(lines: slice) -> int:
    return int(lines.stop - lines.start)


def _unchanged(base: bytes, patched: bytes, region: Region) -> bool:
    return split_lines(base)[region.base] == split_lines(patched)[region.patched]


def _found_edits(
    path: str, base: bytes, patched: bytes, target: bytes, merged: bytes
) -> Iterator[Edit]:
    # Line ends are the target's, whatever the patch has.
    b, o, t, m = (
        [line.rstrip(b"\r\n") for line in split_lines(side)]
        for side in (base, patched, target, merged)
    )
    to_merged = dict(match_pairs(o, m))
    counts = Counter(m)
    once = {line: k for k, line in enumerate(m) if counts[line] == 1}
    from_target = {j for _, j in match_pairs(t, m)}
    gone = {line for hunk in hunks(t, m) for line in t[hunk.a0 : hunk.a1]}
    for hunk in file_hunks(base, patched):
        if hunk.b0 == hunk.b1:
            written = site(path, base, hunk.a0)
            near = next((to_merged[k] for k in range(hunk.b0, -1, -1) if k in to_merged), 0)
            landed = Site(path, written.qualname, near + 1)
            present = gone.isdisjoint(b[hunk.a0 : hunk.a1])
            yield Edit("delete", written, landed, present)
            continue
        inside = range(hunk.b0, hunk.b1)
        spots = [k for k in inside if o[k].strip()] or list(inside)
        written = site(path, patched, spots[0])
        there = to_merged.get(spots[0], once.get(o[spots[0]]))
        landed = site(path, merged, there) if there is not None else Site(path, "", 0)
        present = all(to_merged.get(k, once.get(o[k])) in from_target for k in spots)
        yield Edit("change" if hunk.a0 < hunk.a1 else "insert", written, landed, present)


def text_conflicts(path: str, base: bytes, patched: bytes, target: bytes) -> list[Conflict]:
    """Name each pair of line ranges that a merge by lines cannot decide."""
    return [
        Conflict(
            "changed differently on both sides",
            site(path, patched, region.patched.start),
            site(path, target, region.target.start),
        )
        for region in regions(base, patched, target)
        if region.result is None
    ]


def site(path: str, data: bytes, line: int) -> Site:
    """Return the site of a line, counted from 0."""
    name = ""
    if is_python(path):
        name = _qualname_at(data, line)
    elif path.endswith(".md"):
        names = tables.headings(data)
        name = names[line] if line < len(names) else ""
    return Site(path, name, line + 1)


def _qualname_at(data: bytes, line: int) -> str:
    source = parse(data)
    if line >= len(source.lines):
        return ""
    start = source.lines[line]
    text = data[start : source.line_end(start)]
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
