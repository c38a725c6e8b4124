"""Sequence alignment, and the three-way merge of lines built on it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

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


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines with their ends; only a line feed ends a line, as for git."""
    lines = data.split(b"\n")
    last = lines.pop()
    ended = [line + b"\n" for line in lines]
    return [*ended, last] if last else ended


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


@dataclass(frozen=True)
class _Region:
    """A base range that one side or both changed; ``result`` is None where they disagree."""

    b0: int
    b1: int
    patched: list[bytes]
    target: list[bytes]
    result: list[bytes] | None


def _regions(base: list[bytes], patched: list[bytes], target: list[bytes]) -> list[_Region]:
    ours, theirs = hunks(base, patched), hunks(base, target)
    regions: list[_Region] = []
    i = j = 0
    shift_o = shift_t = 0  # how far the unchanged lines before this point are displaced
    while i < len(ours) or j < len(theirs):
        heads = [side[k] for side, k in ((ours, i), (theirs, j)) if k < len(side)]
        lo = min(head.a0 for head in heads)
        hi = lo
        i0, j0 = i, j
        grown = True
        # Hunks that touch without one common line between them belong together, as for git.
        while grown:
            grown = False
            while i < len(ours) and ours[i].a0 <= hi:
                hi, i, grown = max(hi, ours[i].a1), i + 1, True
            while j < len(theirs) and theirs[j].a0 <= hi:
                hi, j, grown = max(hi, theirs[j].a1), j + 1, True
        end_o = ours[i - 1].b1 - ours[i - 1].a1 if i > i0 else shift_o
        end_t = theirs[j - 1].b1 - theirs[j - 1].a1 if j > j0 else shift_t
        mine = patched[lo + shift_o : hi + end_o]
        other = target[lo + shift_t : hi + end_t]
        result = mine if j == j0 or mine == other else other if i == i0 else None
        regions.append(_Region(lo, hi, mine, other, result))
        shift_o, shift_t = end_o, end_t
    return regions


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
    lines = split_lines(base)
    out: list[bytes] = []
    at = 0
    for region in _regions(lines, split_lines(patched), split_lines(target)):
        if region.result is None:
            return None
        out += lines[at : region.b0] + region.result
        at = region.b1
    return b"".join(out + lines[at:])


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
    lines = split_lines(base)
    newline = b"\r\n" if any(line.endswith(b"\r\n") for line in lines[:1]) else b"\n"

    def closed(part: list[bytes]) -> list[bytes]:
        return [line if line.endswith(b"\n") else line + newline for line in part]

    out: list[bytes] = []
    at = 0
    for region in _regions(lines, split_lines(patched), split_lines(target)):
        out += lines[at : region.b0]
        at = region.b1
        if region.result is not None:
            out += region.result
            continue
        out = [*closed(out), b"<<<<<<< " + names.target.encode() + newline]
        out += [*closed(region.target), b"||||||| " + names.base.encode() + newline]
        out += [*closed(lines[region.b0 : region.b1]), b"=======" + newline]
        out += [*closed(region.patched), b">>>>>>> " + names.patched.encode() + newline]
    return b"".join(out + lines[at:])
