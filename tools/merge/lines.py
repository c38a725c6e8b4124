"""Sequence alignment, and the three-way merge of lines built on it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

# Above this many cells a gap without a single unique element is left unmatched: the merge then
# sees more change than there is, which can only turn into a conflict, never into a wrong place.
_DENSE_LIMIT = 250_000


@dataclass(frozen=True)
class Hunk:
    """Elements ``a0:a1`` of one sequence stand where ``b0:b1`` stand in the other."""

    a0: int
    a1: int
    b0: int
    b1: int


@dataclass(frozen=True)
class Labels:
    """Names of the three sides on conflict markers."""

    target: str = "target"
    base: str = "base"
    patched: str = "patched"


@lru_cache(maxsize=24)
def split_lines(data: bytes) -> tuple[bytes, ...]:
    """Return the lines with their ends; only a line feed ends a line, as for git."""
    lines = data.split(b"\n")
    last = lines.pop()
    ended = [line + b"\n" for line in lines]
    return (*ended, last) if last else tuple(ended)


def match_pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Align two sequences: increasing pairs of positions of equal elements.

    Common ends first, then the longest increasing run of elements unique on both sides (patience),
    then, in what is left, the longest common blocks.
    """
    pairs: list[tuple[int, int]] = []
    work = [(0, len(a), 0, len(b))]
    while work:
        a0, a1, b0, b1 = work.pop()
        while a0 < a1 and b0 < b1 and a[a0] == b[b0]:
            pairs.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        while a0 < a1 and b0 < b1 and a[a1 - 1] == b[b1 - 1]:
            a1, b1 = a1 - 1, b1 - 1
            pairs.append((a1, b1))
        if a0 == a1 or b0 == b1:
            continue
        anchors = _unique_pairs(a, b, (a0, a1, b0, b1))
        if anchors:
            for i, j in [*anchors, (a1, b1)]:
                work.append((a0, i, b0, j))
                a0, b0 = i, j
                if i < a1:
                    pairs.append((i, j))
                    a0, b0 = i + 1, j + 1
        elif (a1 - a0) * (b1 - b0) <= _DENSE_LIMIT:
            matcher = SequenceMatcher(None, a[a0:a1], b[b0:b1], autojunk=False)
            for block in matcher.get_matching_blocks():
                pairs.extend((a0 + block.a + k, b0 + block.b + k) for k in range(block.size))
    return sorted(pairs)


def _unique_pairs(
    a: Sequence[Hashable], b: Sequence[Hashable], span: tuple[int, int, int, int]
) -> list[tuple[int, int]]:
    a0, a1, b0, b1 = span
    seen_a, seen_b = Counter(a[a0:a1]), Counter(b[b0:b1])
    at = {b[j]: j for j in range(b0, b1) if seen_b[b[j]] == 1}
    both = [(i, at[a[i]]) for i in range(a0, a1) if seen_a[a[i]] == 1 and a[i] in at]
    return increasing(both)


def increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of ``pairs`` whose second members increase."""
    tails: list[int] = []
    tops: list[int] = []
    back: list[int] = []
    for k, (_, j) in enumerate(pairs):
        at = bisect_left(tails, j)
        back.append(tops[at - 1] if at else -1)
        if at == len(tails):
            tails.append(j)
            tops.append(k)
        else:
            tails[at], tops[at] = j, k
    chain: list[tuple[int, int]] = []
    k = tops[-1] if tops else -1
    while k >= 0:
        chain.append(pairs[k])
        k = back[k]
    return chain[::-1]


def hunks(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Hunk]:
    """Return what differs between two sequences, in order."""
    found: list[Hunk] = []
    i = j = 0
    for x, y in [*match_pairs(a, b), (len(a), len(b))]:
        if i < x or j < y:
            found.append(Hunk(i, x, j, y))
        i, j = x + 1, y + 1
    return found


@lru_cache(maxsize=32)
def file_hunks(a: bytes, b: bytes) -> tuple[Hunk, ...]:
    """Return what differs between the lines of two files; the last answers are kept."""
    return tuple(hunks(split_lines(a), split_lines(b)))


@dataclass(frozen=True)
class Region:
    """Lines that one side or both changed, in three versions.

    Args:
        base: First and last-but-one line in the base, from 0.
        patched: The same in the patched file.
        target: The same in the target.
        result: Which version holds in the merge; None where the sides disagree.
    """

    base: slice
    patched: slice
    target: slice
    result: Literal["patched", "target"] | None


def regions(base: bytes, patched: bytes, target: bytes) -> list[Region]:
    """Return where the patched file or the target differ from the base, in order."""
    ours, theirs = file_hunks(base, patched), file_hunks(base, target)
    o, t = split_lines(patched), split_lines(target)
    found: list[Region] = []
    i = j = 0
    shift_o = shift_t = 0  # how far the unchanged lines before this point are displaced
    while i < len(ours) or j < len(theirs):
        low = min(side[k].a0 for side, k in ((ours, i), (theirs, j)) if k < len(side))
        high, i0, j0 = low, i, j
        grown = True
        # Hunks that touch, without one common line between them, belong together, as for git.
        while grown:
            grown = False
            while i < len(ours) and ours[i].a0 <= high:
                high, i, grown = max(high, ours[i].a1), i + 1, True
            while j < len(theirs) and theirs[j].a0 <= high:
                high, j, grown = max(high, theirs[j].a1), j + 1, True
        end_o = ours[i - 1].b1 - ours[i - 1].a1 if i > i0 else shift_o
        end_t = theirs[j - 1].b1 - theirs[j - 1].a1 if j > j0 else shift_t
        mine = slice(low + shift_o, high + end_o)
        other = slice(low + shift_t, high + end_t)
        result: Literal["patched", "target"] | None = None
        if i == i0 or o[mine] == t[other]:
            result = "target"
        elif j == j0:
            result = "patched"
        found.append(Region(slice(low, high), mine, other, result))
        shift_o, shift_t = end_o, end_t
    return found


def merge_text(base: bytes, patched: bytes, target: bytes) -> bytes | None:
    """Merge two changed versions of ``base`` by lines.

    Args:
        base: The file the patch was written on.
        patched: The file with the patch.
        target: Upstream's file at the ref.

    Returns:
        The merged bytes, or None where both sides changed the same or adjoining lines differently.
    """
    if patched in (base, target):
        return target
    if base == target:
        return patched
    o, t = split_lines(patched), split_lines(target)
    out: list[bytes] = []
    at = 0
    for region in regions(base, patched, target):
        if region.result is None:
            return None
        out += t[at : region.target.start]
        out += o[region.patched] if region.result == "patched" else t[region.target]
        at = region.target.stop
    return b"".join([*out, *t[at:]])


def conflict_markers(
    base: bytes, patched: bytes, target: bytes, labels: Labels | None = None
) -> bytes:
    """Merge by lines and show each disagreement between diff3-style markers.

    Args:
        base: The file the patch was written on.
        patched: The file with the patch.
        target: Upstream's file at the ref.
        labels: Names for the three sides.

    Returns:
        The merged bytes; equal to :func:`merge_text` where nothing disagrees.
    """
    names = labels or Labels()
    clean = merge_text(base, patched, target)
    if clean is not None:
        return clean
    b, o, t = split_lines(base), split_lines(patched), split_lines(target)
    newline = b"\r\n" if any(line.endswith(b"\r\n") for line in t[:1]) else b"\n"

    def closed(part: Iterable[bytes]) -> list[bytes]:
        return [line if line.endswith(b"\n") else line + newline for line in part]

    out: list[bytes] = []
    at = 0
    for region in regions(base, patched, target):
        out += t[at : region.target.start]
        at = region.target.stop
        if region.result is not None:
            out += o[region.patched] if region.result == "patched" else t[region.target]
            continue
        out = [*closed(out), b"<<<<<<< " + names.target.encode() + newline]
        out += [*closed(t[region.target]), b"||||||| " + names.base.encode() + newline]
        out += [*closed(b[region.base]), b"=======" + newline]
        out += [*closed(o[region.patched]), b">>>>>>> " + names.patched.encode() + newline]
    return b"".join([*out, *t[at:]])
