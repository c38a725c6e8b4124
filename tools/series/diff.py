"""The headers of a git diff: which files it touches, from which blobs to which blobs.

The format is that of git's ``diff-generate-patch`` documentation. Hunks are skipped by the line
counts in their headers, so that text which looks like a header inside a hunk is not taken for one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.errors import BadInput

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_INDEX = re.compile(rb"([0-9a-f]{7,40})\.\.([0-9a-f]{7,40})(?: ([0-7]{6}))?")
_ESCAPES = {
    ord("a"): 7,
    ord("b"): 8,
    ord("t"): 9,
    ord("n"): 10,
    ord("v"): 11,
    ord("f"): 12,
    ord("r"): 13,
    ord('"'): 34,
    ord("\\"): 92,
}


@dataclass(frozen=True)
class FileDiff:
    """One file of a diff.

    Attributes:
        old_path: The path before, or None for a new file.
        new_path: The path after, or None for a deleted file.
        old_oid: The blob before as the ``index`` line gives it (7 to 40 digits), or None.
        new_oid: The blob after, likewise.
        new_mode: The mode after, where the diff states one.
    """

    old_path: bytes | None
    new_path: bytes | None
    old_oid: str | None
    new_oid: str | None
    new_mode: str | None


@dataclass
class _Draft:
    """The headers of one file while they are read."""

    header: bytes
    minus: bytes | None = None
    plus: bytes | None = None
    fields: dict[bytes, bytes] = field(default_factory=dict)


def parse_diff(diff: bytes) -> tuple[FileDiff, ...]:
    """Return the files that a git diff touches, in its order.

    Raises:
        BadInput: It is not a git diff, a hunk is cut short, or a path leads out of the tree.
    """
    files = tuple(_finish(draft) for draft in _drafts(diff.split(b"\n")))
    if not files:
        raise BadInput("the patch holds no git diff", "write it with git format-patch --full-index")
    return files


def _drafts(lines: list[bytes]) -> Iterator[_Draft]:
    draft: _Draft | None = None
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        if line.startswith(b"diff --git "):
            if draft:
                yield draft
            draft = _Draft(line.removeprefix(b"diff --git ").rstrip(b"\r"))
        elif draft is None:
            continue
        elif hunk := _HUNK.match(line):
            position = _skip_hunk(lines, position, hunk)
        elif line.startswith(b"--- "):
            draft.minus = line[4:]
        elif line.startswith(b"+++ "):
            draft.plus = line[4:]
        else:
            for key in _EXTENDED:
                if line.startswith(key + b" "):
                    draft.fields[key] = line[len(key) + 1 :]
    if draft:
        yield draft


_EXTENDED = (
    b"old mode",
    b"new mode",
    b"deleted file mode",
    b"new file mode",
    b"copy from",
    b"copy to",
    b"rename from",
    b"rename to",
    b"index",
)


def _skip_hunk(lines: list[bytes], position: int, hunk: re.Match[bytes]) -> int:
    old, new = (int(count) if count is not None else 1 for count in hunk.groups())
    while old > 0 or new > 0:
        if position >= len(lines):
            raise BadInput("the patch ends inside a hunk", "fetch or export it again")
        mark = lines[position][:1]
        if mark not in (b" ", b"-", b"+", b"\\", b""):
            raise BadInput("a hunk is shorter than its header says", "export the patch again")
        old -= mark in (b" ", b"-", b"")
        new -= mark in (b" ", b"+", b"")
        position += 1
    return position


def _finish(draft: _Draft) -> FileDiff:
    fields = draft.fields
    old = _name(fields.get(b"rename from", fields.get(b"copy from")), draft.minus, b"a/")
    new = _name(fields.get(b"rename to", fields.get(b"copy to")), draft.plus, b"b/")
    if old is None and new is None:
        old = new = _same_name(draft.header)
    if b"new file mode" in fields or (draft.minus or b"").startswith(b"/dev/null"):
        old = None
    if b"deleted file mode" in fields or (draft.plus or b"").startswith(b"/dev/null"):
        new = None
    index = _INDEX.match(fields.get(b"index", b""))
    mode = fields.get(b"new file mode", fields.get(b"new mode", index[3] if index else None))
    for path in (old, new):
        if path is not None:
            check_path(path)
    return FileDiff(
        old,
        new,
        index[1].decode() if index and old is not None else None,
        index[2].decode() if index and new is not None else None,
        mode.decode() if mode else None,
    )


def check_path(path: bytes) -> None:
    """Refuse a path that is not plainly inside the tree.

    Raises:
        BadInput: The path is absolute, has an empty, ``.``, ``..`` or ``.git`` part or a NUL.
    """
    parts = path.split(b"/")
    bad = {b"", b".", b".."}
    if b"\0" in path or any(part in bad or part.lower() == b".git" for part in parts):
        shown = path.decode("utf-8", "backslashreplace")
        raise BadInput(f"the path {shown!r} leads out of the tree", "do not use this patch")


def _name(stated: bytes | None, marker: bytes | None, prefix: bytes) -> bytes | None:
    if stated is not None:
        return _unquote(stated)
    if marker is None or marker.startswith(b"/dev/null"):
        return None
    # `--- a/name<TAB>` closes a name that has a space in it.
    name = _unquote(marker.rstrip(b"\r").rstrip(b"\t"))
    if not name.startswith(prefix):
        shown = name.decode("utf-8", "backslashreplace")
        raise BadInput(
            f"the path {shown!r} lacks the prefix {prefix.decode()}",
            "write the patch with git format-patch and no diff.noprefix",
        )
    return name[len(prefix) :]


def _same_name(header: bytes) -> bytes:
    """Return the name in ``a/NAME b/NAME``, which is ambiguous unless both are the same."""
    if header.startswith(b'"'):
        return _unquote(header[: _quoted_end(header)])[2:]
    half = len(header) // 2
    left, right = header[:half], header[half + 1 :]
    if left[2:] != right[2:] or left[:2] != b"a/":
        shown = header.decode("utf-8", "backslashreplace")
        raise BadInput(f"the diff header {shown!r} names no one file", "export the patch again")
    return left[2:]


def _quoted_end(text: bytes) -> int:
    position = 1
    while position < len(text) and text[position : position + 1] != b'"':
        position += 2 if text[position : position + 1] == b"\\" else 1
    return position + 1


def _unquote(name: bytes) -> bytes:
    """Undo git's C-style quoting, if the name is quoted."""
    if not name.startswith(b'"'):
        return name
    out = bytearray()
    position, end = 1, _quoted_end(name) - 1
    while position < end:
        byte = name[position]
        if byte != ord("\\"):
            out.append(byte)
            position += 1
        elif name[position + 1 : position + 2] in _ESCAPES_BYTES:
            out.append(_ESCAPES[name[position + 1]])
            position += 2
        else:
            digits = name[position + 1 : position + 4]
            if not re.fullmatch(rb"[0-3][0-7]{2}", digits):
                raise BadInput(f"bad quoting in the path {name!r}", "export the patch again")
            out.append(int(digits, 8))
            position += 4
    return bytes(out)


_ESCAPES_BYTES = frozenset(bytes([code]) for code in _ESCAPES)
