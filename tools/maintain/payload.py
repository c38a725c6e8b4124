"""What a patch does: the lines that it takes away and puts in, by file and in order.

Two patches have one payload when they remove and add the same lines in the same files and in the
same order, whatever the line numbers and the lines around them. What changed around them is the
drift. A file that upstream renamed is another file: where a patch follows it, a person is to see
that.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tools.git import Change, Entry, Git
from tools.merge.lines import Hunk, hunks, split_lines

CONTEXT = 3  # lines around a hunk whose change counts as drift
_T = TypeVar("_T", bound=Hashable)
_FILES = ("100644", "100755")


@dataclass(frozen=True)
class Line:
    """One line: ``sign`` is ``-``, ``+`` or ``!`` (a file's name, or a change that is no text)."""

    sign: str
    text: bytes

    def __str__(self) -> str:
        return self.sign + os.fsdecode(self.text.rstrip(b"\r\n"))


@dataclass(frozen=True)
class Payload:
    """The lines that a patch removes and adds below their file, and those around, in order."""

    lines: tuple[Line, ...]
    context: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        """The start of a SHA-256 over the lines in their order: equal for equal payloads."""
        rows = [f"{line.sign}{len(line.text)} ".encode() + line.text for line in self.lines]
        return hashlib.sha256(b"".join(rows)).hexdigest()[:16]


@dataclass(frozen=True)
class Comparison:
    """A patch before and after it was written anew.

    Attributes:
        before: The payload's digest before.
        after: The payload's digest after.
        lost: What it did and does no more.
        gained: What it did not do before.
        drift: What changed around the hunks: ``-`` was there, ``+`` is there now.
    """

    before: str
    after: str
    lost: tuple[Line, ...]
    gained: tuple[Line, ...]
    drift: tuple[Line, ...]


def payload(git: Git, old: str, new: str) -> Payload:
    """Return what happens between two trees or commits."""
    lines: list[Line] = []
    context: list[bytes] = []
    for change in git.changes(old, new):
        lines += [Line("!", b"file " + change.path), *_whole_file(change)]
        sides = [_text(git, entry) for entry in (change.old, change.new)]
        if b"\0" in b"".join(sides):
            ids = [entry.oid if entry else "none" for entry in (change.old, change.new)]
            lines.append(Line("!", f"binary {ids[0]} to {ids[1]}".encode()))
            continue
        a, b = split_lines(sides[0]), split_lines(sides[1])
        found = hunks(a, b)
        for hunk in found:
            lines += _signed(a[hunk.a0 : hunk.a1], b[hunk.b0 : hunk.b1])
        context += _around(a, found)
    return Payload(tuple(lines), tuple(context))


def compare(before: Payload, after: Payload) -> Comparison:
    """Return how a patch changed: its payload, and apart from it the lines around."""
    moved = hunks(before.lines, after.lines)
    return Comparison(
        before.digest,
        after.digest,
        tuple(line for hunk in moved for line in before.lines[hunk.a0 : hunk.a1]),
        tuple(line for hunk in moved for line in after.lines[hunk.b0 : hunk.b1]),
        (
            *(Line("-", text) for text in _missing(before.context, after.context)),
            *(Line("+", text) for text in _missing(after.context, before.context)),
        ),
    )


def _missing(these: tuple[_T, ...], those: tuple[_T, ...]) -> tuple[_T, ...]:
    left = Counter(these) - Counter(those)
    found = []
    for item in these:
        if left[item] > 0:
            left[item] -= 1
            found.append(item)
    return tuple(found)


def _signed(gone: Sequence[bytes], come: Sequence[bytes]) -> list[Line]:
    """Return one hunk's lines.

    Blank lines that begin what is only put in, or only taken away, count at its end: on which side
    of it a diff shows them depends on the lines around.
    """
    if not (gone and come):
        gone, come = _turned(gone), _turned(come)
    return [*(Line("-", text) for text in gone), *(Line("+", text) for text in come)]


def _turned(lines: Sequence[bytes]) -> Sequence[bytes]:
    blank = next((at for at, line in enumerate(lines) if line.strip()), 0)
    return (*lines[blank:], *lines[:blank])


def _whole_file(change: Change) -> list[Line]:
    modes = [entry.mode if entry else "none" for entry in (change.old, change.new)]
    return [] if modes[0] == modes[1] else [Line("!", f"mode {modes[0]} to {modes[1]}".encode())]


def _text(git: Git, entry: Entry | None) -> bytes:
    return git.read_blob(entry.oid) if entry and entry.mode in _FILES else b""


def _around(lines: Sequence[bytes], found: Iterable[Hunk]) -> list[bytes]:
    inside = {at for hunk in found for at in range(hunk.a0, hunk.a1)}
    near = {
        at
        for hunk in found
        for at in (*range(hunk.a0 - CONTEXT, hunk.a0), *range(hunk.a1, hunk.a1 + CONTEXT))
        if 0 <= at < len(lines)
    }
    return [lines[at] for at in sorted(near - inside)]
