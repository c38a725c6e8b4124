"""Python source as a tree shaped for merging.

tree-sitter parses; this module gives its tree the shape that merging needs: *sequences* whose
members have an identity of their own (statements of a body, entries of a list, arguments), and
*fixed* nodes whose parts are matched by position. Nodes are made when they are asked for, since
most of a file is never looked at.
"""

from collections.abc import Iterator
from enum import Enum, auto
from functools import cached_property

import tree_sitter_python
from tree_sitter import Language, Parser, Tree
from tree_sitter import Node as Raw

from tools.merge.text import Text, parse_near
from tools.merge.tokens import squeezed, tokens

_PARSER = Parser(Language(tree_sitter_python.language()))

_DEFINITIONS = {"function_definition", "class_definition", "decorated_definition"}
_COMPOUND = {
    "if_statement",
    "for_statement",
    "while_statement",
    "with_statement",
    "try_statement",
    "match_statement",
    "case_clause",
}
_CLAUSES = {"elif_clause", "else_clause", "except_clause", "except_group_clause", "finally_clause"}
_SEQUENCES = {
    "dictionary",
    "list",
    "set",
    "tuple",
    "argument_list",
    "parameters",
    "lambda_parameters",
    "type_parameter",
    "expression_list",
    "pattern_list",
    "concatenated_string",
}
_NAMED_VALUES = _SEQUENCES | {"subscript", "parenthesized_expression"}


class Role(Enum):
    """How a node takes part in a merge."""

    BODY = auto()  # sequence of statements, each on lines of its own
    DEFINITION = auto()  # decorators, header, body
    COMPOUND = auto()  # sequence of branches
    BRANCH = auto()  # header, body
    DECORATORS = auto()  # sequence of decorator lines
    SEQUENCE = auto()  # members with separators
    FIXED = auto()  # parts by position
    LEAF = auto()
    COMMENT = auto()


class Source(Text):
    """One parsed file.

    Args:
        data: Its bytes.
        near: A file that differs in few places: parsing then only reads what changed.
    """

    def __init__(self, data: bytes, near: "Source | None" = None) -> None:
        super().__init__(data)
        # Held here: nodes read from the tree for as long as the source lives.
        self.tree: Tree = (
            _PARSER.parse(data) if near is None else parse_near(_PARSER, data, near.data, near.tree)
        )
        self.parses = not self.tree.root_node.has_error

    @cached_property
    def root(self) -> "Node":
        """The module as a body."""
        raw = self.tree.root_node
        node = Node(self, Role.BODY, "module", raw, None)
        node.start, node.end = 0, len(self.data)
        return node


class _Kept:
    """The sources asked for last, by content."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sources: dict[bytes, Source] = {}

    def get(self, data: bytes, near: bytes | None) -> Source:
        found = self._sources.pop(data, None)
        if found is None:
            found = Source(data, None if near is None else self._sources.get(near))
        self._sources[data] = found
        if len(self._sources) > self._limit:
            del self._sources[next(iter(self._sources))]
        return found


# A patch series touches about a dozen files, each in four versions at a time.
_KEPT = _Kept(limit=64)


def parse(data: bytes, near: bytes | None = None) -> Source:
    """Return the parsed file; the last ones asked for are kept.

    Args:
        data: The file.
        near: A file that differs in few places.
    """
    return _KEPT.get(data, near)


class Node:
    """A node of a :class:`Source`.

    Args:
        source: The file.
        role: How the node takes part in a merge.
        kind: tree-sitter's type, or the name of a part that it has no node for.
        raw: The node it was made from.
        parent: The node that holds it.
        raws: The nodes it consists of, where it is only a part of ``raw``.
    """

    def __init__(
        self,
        source: Source,
        role: Role,
        kind: str,
        raw: Raw,
        parent: "Node | None",
        raws: list[Raw] | None = None,
    ) -> None:
        self.source = source
        self.role = role
        self.kind = kind
        self.raw = raw
        self.parent = parent
        self.raws = raws
        self.start = raws[0].start_byte if raws else raw.start_byte
        self.end = raws[-1].end_byte if raws else raw.end_byte
        self.known_key: tuple[str, bytes] | None = None
        self.key_is_known = False
        # A comment behind the node on its line belongs to it; so does the comma before that.
        self.comma_end = self.end
        self.full_end = self.end

    def __repr__(self) -> str:
        return f"<{self.kind} {self.line}: {self.text[:40]!r}>"

    @property
    def text(self) -> bytes:
        """The node's bytes."""
        return self.source.data[self.start : self.end]

    @property
    def tail(self) -> bytes:
        """The comment that follows on the same line, or b""."""
        return self.source.data[self.comma_end : self.full_end].strip()

    @property
    def line(self) -> int:
        """1-based line on which the node starts."""
        return self.source.line_number(self.start)

    @cached_property
    def children(self) -> "list[Node]":
        """The members of a sequence, or the parts of a fixed node."""
        return list(_children(self))

    @cached_property
    def code(self) -> bytes:
        """The tokens, inner comments included, without layout: equal ones mean equal code.

        Layout is blanks, line breaks inside brackets, trailing commas and the choice of quotes.
        """
        if self.role in (Role.BODY, Role.COMPOUND, Role.BRANCH, Role.DEFINITION, Role.DECORATORS):
            return b"\x01" + b"\x02".join(child.norm for child in self.children) + b"\x03"
        return tokens(self.text)

    @cached_property
    def squeezed(self) -> bytes:
        """The text without blanks and commas: what may be equal is found by it, not proved."""
        return squeezed(self.text)

    @property
    def norm(self) -> bytes:
        """The code and the comment behind it."""
        return self.code + b" " + self.tail if self.tail else self.code

    @cached_property
    def shell(self) -> bytes:
        """The norm with the members of every sequence and every body left out."""
        match self.role:
            case Role.SEQUENCE:
                return b"[]"
            case Role.BODY:
                return b":"
            case Role.LEAF | Role.COMMENT:
                return self.code
            case Role.COMPOUND:
                return self.children[0].shell
            case _:
                return b" ".join(child.shell for child in self.children)

    def same(self, other: "Node") -> bool:
        """Return whether both hold the same code, whatever the layout."""
        if self.alike(other):
            return True
        if self.squeezed != other.squeezed or self.tail != other.tail:
            return False
        return self.code == other.code

    def alike(self, other: "Node") -> bool:
        """Return whether both hold the same bytes, the lines' common indentation aside."""
        if self.tail != other.tail:
            return False
        if self.text == other.text:
            mine, theirs = self.source.indent(self.start), other.source.indent(other.start)
            return mine == theirs or b"\n" not in self.text
        return False

    def named(self, name: str) -> "Node":
        """Return the part of a definition or branch that is called ``name``."""
        return next(child for child in self.children if child.kind == name)

    def path(self) -> Iterator["Node"]:
        """Yield the node and those that hold it, innermost first."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    @cached_property
    def name(self) -> str:
        """A definition's name, the name a container is assigned to, or ""."""
        if self.role is Role.DEFINITION:
            inner = self.raw.child_by_field_name("definition") or self.raw
            found = inner.child_by_field_name("name")
        elif self.kind == "assignment":
            found = self.raw.child_by_field_name("left")
            value = self.raw.child_by_field_name("right") or self.raw.child_by_field_name("type")
            if found is None or value is None or found.type != "identifier":
                return ""
            found = found if value.type in _NAMED_VALUES else None
        else:
            return ""
        return (found.text or b"").decode(errors="replace") if found is not None else ""

    @cached_property
    def qualname(self) -> str:
        """Dotted path of the definitions and named containers that hold the node, and itself."""
        return ".".join(reversed([node.name for node in self.path() if node.name]))


def _children(node: Node) -> Iterator[Node]:
    match node.role:
        case Role.BODY:
            yield from _statements(node)
        case Role.DEFINITION:
            yield from _definition_parts(node)
        case Role.COMPOUND:
            yield from _branches(node)
        case Role.BRANCH:
            yield from _branch_parts(node, node.raws or node.raw.children)
        case Role.SEQUENCE:
            yield from _members(node)
        case Role.DECORATORS:
            yield from (_wrap(node, raw) for raw in node.raws or [])
        case Role.FIXED:
            yield from _parts(node)
        case _:
            return


def _wrap(parent: Node, raw: Raw) -> Node:
    kind = raw.type
    # A statement that only holds an expression is that expression.
    if kind == "expression_statement" and raw.child_count == 1:
        raw = raw.children[0]
        kind = raw.type
    if kind in _DEFINITIONS:
        role = Role.DEFINITION
    elif kind in _COMPOUND:
        role = Role.COMPOUND
    elif kind in _SEQUENCES:
        role = Role.SEQUENCE
    elif kind == "block":
        role = Role.BODY
    elif kind == "comment":
        role = Role.COMMENT
    elif kind == "string" or not raw.child_count:
        role = Role.LEAF
    else:
        role = Role.FIXED
    return Node(parent.source, role, kind, raw, parent)


def _with_tails(items: list[Node]) -> list[Node]:
    """Give each comment that follows a node on its line to that node."""
    kept: list[Node] = []
    for item in items:
        if item.role is Role.COMMENT and kept and not item.source.starts_line(item.start):
            between = item.source.data[kept[-1].full_end : item.start]
            if b"\n" not in between and not kept[-1].tail:
                kept[-1].full_end = item.end
                continue
        kept.append(item)
    return kept


def _statements(node: Node) -> Iterator[Node]:
    raws = node.raw.children if node.raws is None else node.raws
    items: list[Node] = []
    for raw in raws:
        if raw.type == "block":
            items += [_wrap(node, inner) for inner in raw.children if inner.is_named]
        elif raw.is_named:
            items.append(_wrap(node, raw))
    for item in items:
        item.parent = node
    return iter(_with_tails(items))


def _definition_parts(node: Node) -> Iterator[Node]:
    raw = node.raw
    inner = raw.child_by_field_name("definition") or raw
    decorators = [child for child in raw.children if child.type in ("decorator", "comment")]
    if inner is not raw and decorators:
        yield Node(node.source, Role.DECORATORS, "decorators", raw, node, decorators)
    yield from _branch_parts(node, inner.children)


def _branches(node: Node) -> Iterator[Node]:
    own: list[Raw] = []
    rest: list[Raw] = []
    for child in node.raw.children:
        (rest if child.type in _CLAUSES or rest else own).append(child)
    yield Node(node.source, Role.BRANCH, own[0].type, node.raw, node, own)
    branches = [
        Node(node.source, Role.COMMENT, "comment", raw, node)
        if raw.type == "comment"
        else Node(node.source, Role.BRANCH, raw.children[0].type, raw, node)
        for raw in rest
    ]
    yield from branches


def _branch_parts(node: Node, raws: list[Raw]) -> Iterator[Node]:
    colon = next((k for k in range(len(raws) - 1, -1, -1) if raws[k].type == ":"), len(raws) - 1)
    header = Node(node.source, Role.FIXED, "header", node.raw, node, raws[: colon + 1])
    rest = raws[colon + 1 :]
    ends = raws[colon].end_point.row
    if rest and rest[0].type == "comment" and rest[0].start_point.row == ends:
        header.full_end = rest[0].end_byte
        rest = rest[1:]
    yield header
    if rest:
        yield Node(node.source, Role.BODY, "body", node.raw, node, rest)


def _parts(node: Node) -> Iterator[Node]:
    raws = node.raws or node.raw.children
    if node.kind in ("subscript", "import_from_statement", "future_import_statement"):
        # tree-sitter has no node for what stands between the brackets, or after `import`.
        word = "[" if node.kind == "subscript" else "import"
        cut = next(k for k, raw in enumerate(raws) if raw.type == word)
        cut += node.kind != "subscript"
        for raw in raws[:cut]:
            yield _wrap(node, raw)
        yield Node(node.source, Role.SEQUENCE, f"{node.kind} members", node.raw, node, raws[cut:])
    else:
        for raw in raws:
            yield _wrap(node, raw)


def _members(node: Node) -> Iterator[Node]:
    items: list[Node] = []
    for raw in node.raw.children if node.raws is None else node.raws:
        if raw.is_named:
            item = _wrap(node, raw)
            if raw.type == "comment" and items:
                last = items[-1]
                between = node.source.data[last.full_end : item.start]
                if b"\n" not in between and last.role is not Role.COMMENT and not last.tail:
                    last.full_end = item.end
                    continue
            items.append(item)
        elif raw.type == "," and items:
            owner = next((it for it in reversed(items) if it.role is not Role.COMMENT), None)
            if owner is not None and owner.full_end == owner.end:
                owner.comma_end = owner.full_end = raw.end_byte
    yield from items
