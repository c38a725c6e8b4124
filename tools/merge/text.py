"""A file's bytes by lines, and parsing it beside a near one."""

import re
from bisect import bisect_right
from functools import cached_property

from tree_sitter import Parser, Tree


class Text:
    """A file's bytes.

    Args:
        data: The bytes.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.newline = b"\r\n" if b"\r\n" in data[: data.find(b"\n") + 1] else b"\n"

    def line_start(self, at: int) -> int:
        """Return where the line that holds byte ``at`` starts."""
        return self.data.rfind(b"\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        """Return where the line that holds byte ``at`` ends, its line feed included."""
        end = self.data.find(b"\n", at)
        return len(self.data) if end < 0 else end + 1

    def indent(self, at: int) -> bytes:
        """Return the blanks that the line of byte ``at`` starts with."""
        start = self.line_start(at)
        line = self.data[start : self.line_end(at)]
        return line[: len(line) - len(line.lstrip(b" \t\f"))]

    def starts_line(self, at: int) -> bool:
        """Return whether only blanks precede byte ``at`` on its line."""
        return not self.data[self.line_start(at) : at].strip(b" \t\f")

    @cached_property
    def lines(self) -> list[int]:
        """Where each line starts."""
        return [0, *(found.end() for found in re.finditer(rb"\n", self.data))]

    def line_number(self, at: int) -> int:
        """Return the 1-based line of byte ``at``."""
        return bisect_right(self.lines, at)


def parse_near(parser: Parser, data: bytes, old: bytes, old_tree: Tree) -> Tree:
    """Parse with the help of another file's tree: one changed span between two equal ends.

    Args:
        parser: The parser.
        data: The file.
        old: A file that differs in few places.
        old_tree: Its tree, which stays as it is.
    """
    head = _common_start(old, data)
    tail = _common_start(old[head:][::-1], data[head:][::-1])
    tree = old_tree.copy()
    old_end, new_end = len(old) - tail, len(data) - tail
    tree.edit(
        start_byte=head,
        old_end_byte=old_end,
        new_end_byte=new_end,
        start_point=_point(old, head),
        old_end_point=_point(old, old_end),
        new_end_point=_point(data, new_end),
    )
    return parser.parse(data, tree)


def _common_start(a: bytes, b: bytes) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _point(data: bytes, at: int) -> tuple[int, int]:
    return data.count(b"\n", 0, at), at - data.rfind(b"\n", 0, at) - 1
