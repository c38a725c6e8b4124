"""Writing into a file so that only the spans that change are rewritten."""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.merge.syntax import Node, Role, Source


class CannotPlace(Exception):
    """The layout around the place leaves no safe way to write there."""


@dataclass(frozen=True)
class Splice:
    """Put ``text`` in place of the bytes ``start:end``."""

    start: int
    end: int
    text: bytes


@dataclass(frozen=True)
class Place:
    """A place between the members of a sequence.

    Args:
        container: The sequence in the target.
        anchor: A member of it, or None when it is empty.
        after: Whether the place is behind the anchor, or before it.
    """

    container: Node
    anchor: Node | None
    after: bool


def apply(data: bytes, splices: Sequence[Splice]) -> bytes:
    """Return ``data`` with the splices done.

    Raises:
        CannotPlace: Two splices overlap.
    """
    out: list[bytes] = []
    at = 0
    for splice in sorted(splices, key=lambda s: (s.start, s.end)):
        if splice.start < at:
            raise CannotPlace("two edits touch the same bytes")
        out += [data[at : splice.start], splice.text]
        at = splice.end
    return b"".join([*out, data[at:]])


def moved(at: int, splices: Sequence[Splice]) -> int:
    """Return where byte ``at`` of the target is once the splices are done."""
    return at + sum(len(s.text) - (s.end - s.start) for s in splices if s.end <= at)


def rendered(node: Node, to: Source, indent: bytes) -> bytes:
    """Return a node's text as it stands in another file, its first line without indentation.

    Lines inside a string that spans lines keep their indentation: it is part of the value.
    """
    own = node.source.indent(node.start)
    strings = _string_spans(node)
    lines = node.text.split(b"\n")
    at = node.start
    out = [lines[0]]
    for line in lines[1:]:
        at = node.source.data.index(b"\n", at) + 1
        if own != indent and line.startswith(own) and not any(a < at <= b for a, b in strings):
            line = indent + line[len(own) :] if line.strip() else line  # noqa: PLW2901
        out.append(line)
    text = b"\n".join(out)
    if node.source.newline != to.newline:
        text = text.replace(b"\r\n", b"\n").replace(b"\n", to.newline)
    return text


def _string_spans(node: Node) -> list[tuple[int, int]]:
    if b"\n" not in node.text or (b'"""' not in node.text and b"'''" not in node.text):
        return []
    spans: list[tuple[int, int]] = []
    work = list(node.raws or [node.raw])
    while work:
        raw = work.pop()
        if raw.type == "string":
            if raw.start_point.row != raw.end_point.row:
                spans.append((raw.start_byte, raw.end_byte))
        elif raw.start_point.row != raw.end_point.row:
            work += raw.children
    return spans


def replace(old: Node, new: Node) -> Splice:
    """Put the text of ``new``, from another file, in place of ``old``."""
    return Splice(old.start, old.end, rendered(new, old.source, old.source.indent(old.start)))


def replace_tail(old: Node, new: Node) -> Splice:
    """Give ``old`` the comment that ``new`` has behind it on its line."""
    text = b"  " + new.tail if new.tail else b""
    return Splice(old.comma_end, old.full_end, text)


def insert(place: Place, nodes: Sequence[Node]) -> list[Splice]:
    """Write ``nodes``, neighbours in another file, at a place.

    Raises:
        CannotPlace: The layout there leaves no safe way.
    """
    if place.container.role is Role.SEQUENCE:
        return _insert_members(place, nodes)
    return [_insert_lines(place, nodes)]


# --- statements, decorators, branches: lines of their own ---------------------------------------


def _gap(before: Node | None, after: Node) -> int:
    """Count the blank lines between two neighbours."""
    if before is None:
        return 0
    between = after.source.data[before.full_end : after.start]
    return max(0, between.count(b"\n") - 1)


def _siblings(node: Node) -> tuple[Node | None, Node | None]:
    if node.parent is None:
        return None, None
    family = node.parent.children
    at = next(k for k, child in enumerate(family) if child is node)
    return (family[at - 1] if at else None, family[at + 1] if at + 1 < len(family) else None)


def _insert_lines(place: Place, nodes: Sequence[Node]) -> Splice:
    anchor = place.anchor
    source = place.container.source
    if anchor is None:
        raise CannotPlace("the body it belongs to has no statement left")
    if not source.starts_line(anchor.start):
        raise CannotPlace("the neighbour shares its line with other code")
    indent = source.indent(anchor.start)
    blocks: list[bytes] = []
    for node in nodes:
        before, _ = _siblings(node)
        blank = _gap(before, node) if place.after or node is not nodes[0] else 0
        tail = b"  " + node.tail if node.tail else b""
        blocks.append(source.newline * blank + indent + rendered(node, source, indent) + tail)
    if place.after:
        end = source.line_end(max(anchor.start, anchor.full_end - 1))
        if source.data[anchor.full_end : end].strip():
            raise CannotPlace("the neighbour shares its line with other code")
        text = source.newline.join(blocks)
        if source.data[end - 1 : end] != b"\n":  # the file ends without a line feed, and still does
            return Splice(end, end, source.newline + text)
        return Splice(end, end, text + source.newline)
    start = source.line_start(anchor.start)
    _, follower = _siblings(nodes[-1])
    blank = _gap(nodes[-1], follower) if follower else 0
    text = source.newline.join(blocks) + source.newline * (1 + blank)
    return Splice(start, start, text)


def delete_lines(node: Node) -> Splice:
    """Remove a statement, decorator or branch with the blank lines that set it off.

    Raises:
        CannotPlace: It shares its line with other code, or nothing is left beside it.
    """
    source = node.source
    before, after = _siblings(node)
    end = source.line_end(max(node.start, node.full_end - 1))
    if not source.starts_line(node.start) or source.data[node.full_end : end].strip():
        raise CannotPlace("it shares its line with other code")
    if before is not None:
        return Splice(source.line_end(max(before.start, before.full_end - 1)), end, b"")
    if after is None and node.parent is not None and node.parent.kind != "module":
        raise CannotPlace("nothing would be left of its block")
    stop = source.line_start(after.start) if after is not None else end
    return Splice(source.line_start(node.start), stop, b"")


# --- members of a list, arguments, names: separated ---------------------------------------------


def _insert_members(place: Place, nodes: Sequence[Node]) -> list[Splice]:
    container, anchor = place.container, place.anchor
    source = container.source
    separator = b"" if container.kind == "concatenated_string" else b","
    if anchor is None:
        return [_fill_empty(container, nodes)]
    own_line = source.starts_line(anchor.start)
    if own_line and place.after and _shares_line_end(anchor):
        own_line = False
    if not own_line:
        if any(node.role is Role.COMMENT or node.tail for node in nodes):
            raise CannotPlace("a comment cannot be written into a list on one line")
        indent = source.indent(anchor.start)
        texts = [rendered(node, source, indent) for node in nodes]
        glue = separator + b" "
        if place.after:
            return [Splice(anchor.end, anchor.end, glue + glue.join(texts))]
        return [Splice(anchor.start, anchor.start, glue.join(texts) + glue)]
    indent = source.indent(anchor.start)
    ends = [b"" if node.role is Role.COMMENT else separator for node in nodes]
    splices: list[Splice] = []
    at = source.line_start(anchor.start)
    if place.after:
        last = anchor.role is not Role.COMMENT and anchor.comma_end == anchor.end
        if last and separator:
            # The list ends without a comma: the anchor gets one, the new last member none.
            real = [k for k, node in enumerate(nodes) if node.role is not Role.COMMENT]
            if real:
                splices.append(Splice(anchor.end, anchor.end, separator))
                ends[real[-1]] = b""
        at = anchor.full_end
    lines = [
        indent + rendered(node, source, indent) + end + (b"  " + node.tail if node.tail else b"")
        for node, end in zip(nodes, ends, strict=True)
    ]
    if not place.after:
        text = b"".join(line + source.newline for line in lines)
    else:
        text = b"".join(source.newline + line for line in lines)
        if nodes[-1].role is Role.COMMENT and source.data[at : at + 1] not in (b"\n", b"\r"):
            raise CannotPlace("a comment cannot be written before a closing bracket on its line")
    if splices and splices[0].start == at:
        return [Splice(at, at, splices[0].text + text)]
    return [*splices, Splice(at, at, text)]


def _shares_line_end(anchor: Node) -> bool:
    """Return whether another member starts on the line on which ``anchor`` ends."""
    _, after = _siblings(anchor)
    return after is not None and not after.source.starts_line(after.start)


def _fill_empty(container: Node, nodes: Sequence[Node]) -> Splice:
    text = container.text
    if len(text) < 2 or text[1:-1].strip():
        raise CannotPlace("the list it belongs to has no member left")
    if any(node.role is Role.COMMENT or node.tail for node in nodes):
        raise CannotPlace("a comment cannot be written into an empty list")
    source = container.source
    indent = source.indent(container.start)
    inner = b", ".join(rendered(node, source, indent) for node in nodes)
    if container.kind == "tuple" and len(nodes) == 1:
        inner += b","
    return Splice(container.start + 1, container.end - 1, inner)


def delete_member(node: Node) -> Splice:
    """Remove a member of a list with its separator.

    Raises:
        CannotPlace: The list cannot be written without it.
    """
    source = node.source
    before, after = _siblings(node)
    line_end = source.line_end(max(node.start, node.full_end - 1))
    alone = source.starts_line(node.start) and not source.data[node.full_end : line_end].strip()
    has_comma = node.role is Role.COMMENT or node.comma_end > node.end
    if alone and (has_comma or before is None):
        return Splice(source.line_start(node.start), line_end, b"")
    if node.role is Role.COMMENT or node.tail:
        raise CannotPlace("a comment there cannot be removed safely")
    members = node.parent.children if node.parent else []
    if node.parent is not None and node.parent.kind == "tuple" and len(members) <= 2:
        raise CannotPlace("a tuple with one member left needs another form")
    if after is not None and after.role is not Role.COMMENT:
        return Splice(node.start, after.start, b"")
    if before is not None and before.role is not Role.COMMENT and not before.tail:
        return Splice(before.end, node.end, b"")
    if before is None and after is None:
        return Splice(node.start, node.comma_end, b"")
    raise CannotPlace("a member there cannot be removed safely")
