"""Which member of one sequence is which member of the other."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tools.merge.lines import increasing, match_pairs
from tools.merge.syntax import Node, Role
from tools.merge.tokens import tokens

# Share of tokens that two nodes of a kind must have in common to be one node that was changed.
_SIMILAR = 0.5
# How much more similar than any rival, and how many comparisons are worth it.
_CLEARLY = 0.05
_MANY = 2500
# A statement with fewer bytes says too little to be found again away from its neighbours.
_TELLING = 20

_PARAMETERS = {
    "default_parameter",
    "typed_parameter",
    "typed_default_parameter",
    "identifier",
    "list_splat_pattern",
    "dictionary_splat_pattern",
}

_WORD = re.compile(rb"\w+")
_OTHER_START = 0.1
_NAME = re.compile(rb"[^\W\d]\w*")

Key = tuple[str, bytes]


def key(node: Node) -> Key | None:
    """Return the identity that a node keeps when its content changes, or None where it has none.

    Definitions have their name, dictionary entries their key, keyword arguments and parameters
    their name, names on an import themselves, plain list entries and decorators their text; a
    decorator with arguments has none, since they are what changes.
    """
    if not node.key_is_known:
        node.known_key = _key(node)
        node.key_is_known = True
    return node.known_key


def _key(node: Node) -> Key | None:
    if node.role is Role.DEFINITION:
        return "def", node.name.encode()
    if node.role is Role.COMMENT or node.parent is None:
        return None
    if node.parent.role is Role.DECORATORS:
        return None if _called(node) else ("decorator", node.code)
    if node.parent.role is not Role.SEQUENCE or node.parent.kind == "concatenated_string":
        return None
    return _member_key(node, node.parent.kind)


def _member_key(node: Node, container: str) -> Key | None:
    if node.kind in ("pair", "keyword_argument"):
        return node.kind, tokens(node.raw.children[0].text or b"")
    if container.endswith("parameters") and node.kind in _PARAMETERS:
        found = _NAME.search(node.text)
        return "parameter", found.group() if found else node.text
    if container.startswith(("import", "future_import")) or node.role is Role.LEAF:
        return "entry", node.code
    if node.kind in ("attribute", "type", "dictionary_splat", "list_splat", "unary_operator"):
        return "entry", node.code
    return None


def hint(node: Node) -> Key | None:
    """Return what a statement or branch is likely to keep when it changes.

    Unlike a :func:`key` it says which of two candidates is meant, not that they are the same.
    """
    if node.kind == "assignment":
        return "=", node.children[0].code
    if node.kind in ("import_from_statement", "future_import_statement"):
        return "from", node.children[1].code
    if node.kind == "decorator" and (called := _called(node)):
        return "@", called
    if node.role in (Role.COMPOUND, Role.BRANCH):
        return node.kind, node.named("header").shell if node.role is Role.BRANCH else node.shell
    return None


def _called(decorator: Node) -> bytes:
    """Return what a decorator calls, or b"" where it is no call."""
    call = decorator.raw.children[1]
    return tokens(call.children[0].text or b"") if call.type == "call" else b""


def similarity(a: Node, b: Node) -> float:
    """Return the share of words, by number, that two nodes have in common.

    Nodes that start differently need more in common: `go(1)` is not `stop(1)`.
    """
    mine, theirs = (_WORD.findall(node.code) for node in (a, b))
    total = len(mine) + len(theirs)
    if not total:
        return 1.0
    share = 2 * (Counter(mine) & Counter(theirs)).total() / total
    return share if mine[:1] == theirs[:1] else share - _OTHER_START


def telling(node: Node) -> bool:
    """Return whether the node says enough to be recognised away from its neighbours."""
    return node.role is not Role.COMMENT and len(node.squeezed) >= _TELLING


@dataclass(frozen=True)
class Alignment:
    """Members of ``left`` and ``right`` that are each other.

    Args:
        left: Members of the one sequence.
        right: Members of the other.
        pairs: Positions, in the order of ``left``.
    """

    left: Sequence[Node]
    right: Sequence[Node]
    pairs: dict[int, int]

    @cached_property
    def back(self) -> dict[int, int]:
        """Positions in ``left`` by position in ``right``."""
        return {j: i for i, j in self.pairs.items()}

    @cached_property
    def _counts(self) -> tuple[Counter[Key], Counter[Key]]:
        return Counter(map(_label, self.left)), Counter(map(_label, self.right))

    def sure(self, i: int) -> bool:
        """Return whether the partner of ``left[i]`` is the only one it can have.

        A member with look-alikes is sure only beside a neighbour without, matched likewise.
        """
        if self._single(i):
            return True
        j = self.pairs[i]
        return any(
            0 <= i + step < len(self.left)
            and self.pairs.get(i + step) == j + step
            and self._single(i + step)
            for step in (-1, 1)
        )

    def _single(self, i: int) -> bool:
        left, right = self._counts
        mine, theirs = _label(self.left[i]), _label(self.right[self.pairs[i]])
        return left[mine] == 1 and right[theirs] == 1 and right[mine] <= 1 and left[theirs] <= 1


def _label(node: Node) -> Key:
    return key(node) or ("text", node.squeezed)


def align(left: Sequence[Node], right: Sequence[Node], *, moves: bool) -> Alignment:
    """Match the members of two sequences.

    Args:
        left: The members in one version.
        right: The members in another.
        moves: Whether a member may be found again out of order. A patch is read without, so that
            a reordering is a deletion and an insertion; upstream is searched with.

    Returns:
        The alignment.
    """
    pairs = dict(match_pairs([_label(node) for node in left], [_label(node) for node in right]))
    _pair_gaps(left, right, pairs)
    if moves:
        _pair_moved(left, right, pairs)
    return Alignment(left, right, dict(sorted(pairs.items())))


def _pair_gaps(left: Sequence[Node], right: Sequence[Node], pairs: dict[int, int]) -> None:
    """Pair changed members that stand between the same matched neighbours."""
    i = j = 0
    for x, y in [*sorted(pairs.items()), (len(left), len(right))]:
        if i < x and j < y:
            _pair_gap(left, right, range(i, x), range(j, y), pairs)
        i, j = x + 1, y + 1


def _pair_gap(
    left: Sequence[Node], right: Sequence[Node], xs: range, ys: range, pairs: dict[int, int]
) -> None:
    found = _unique_matches({i: hint(left[i]) for i in xs}, {j: hint(right[j]) for j in ys})
    taken = set(found.values())
    olds = [i for i in xs if i not in found]
    news = [j for j in ys if j not in taken]
    if len(olds) * len(news) <= _MANY:
        found.update(_most_similar(left, right, olds, news))
    pairs.update(increasing(sorted(found.items())))
    _pair_replaced(left, right, xs, ys, pairs)


def _most_similar(
    left: Sequence[Node], right: Sequence[Node], olds: list[int], news: list[int]
) -> Iterator[tuple[int, int]]:
    """Yield members that are each other's most similar by a clear margin."""
    scores = {
        (i, j): similarity(left[i], right[j])
        for i in olds
        for j in news
        if _comparable(left[i], right[j])
    }
    for (i, j), score in scores.items():
        rivals = (s for (x, y), s in scores.items() if (x == i) != (y == j))
        if score >= _SIMILAR and score > max(rivals, default=0.0) + _CLEARLY:
            yield i, j


def _pair_replaced(
    left: Sequence[Node], right: Sequence[Node], xs: range, ys: range, pairs: dict[int, int]
) -> None:
    """Pair plain entries one by one where as many went as came: they were replaced."""
    olds = [i for i in xs if _plain_entry(left[i])]
    news = [j for j in ys if _plain_entry(right[j])]
    if len(olds) != len(news):
        return
    stay = {_label(node) for node in left} & {_label(node) for node in right}
    if not any(_label(left[i]) in stay for i in olds) and not any(
        _label(right[j]) in stay for j in news
    ):
        pairs.update(zip(olds, news, strict=True))


def _plain_entry(node: Node) -> bool:
    own = key(node)
    return own is not None and own[0] == "entry"


def _comparable(a: Node, b: Node) -> bool:
    if key(a) or key(b) or a.role is not b.role or a.kind != b.kind:
        return False
    # An assignment to another name is another assignment.
    return a.kind != "assignment" or hint(a) == hint(b)


def _unique_matches(left: dict[int, Key | None], right: dict[int, Key | None]) -> dict[int, int]:
    lefts, rights = Counter(left.values()), Counter(right.values())
    at = {label: j for j, label in right.items() if label and rights[label] == 1}
    return {i: at[label] for i, label in left.items() if lefts[label] == 1 and label in at}


def _pair_moved(left: Sequence[Node], right: Sequence[Node], pairs: dict[int, int]) -> None:
    """Pair members found again out of order, where nothing else could be meant."""
    counts = Counter(map(_label, left)), Counter(map(_label, right))
    taken = set(pairs.values())
    free = {
        _label(node): j
        for j, node in enumerate(right)
        if j not in taken and counts[1][_label(node)] == 1
    }
    for i, node in enumerate(left):
        label = _label(node)
        found = free.get(label)
        if i in pairs or found is None or counts[0][label] != 1:
            continue
        if key(node) or telling(node):
            pairs[i] = found
    taken = set(pairs.values())
    hints = _unique_matches(
        {i: hint(node) for i, node in enumerate(left)},
        {j: hint(node) for j, node in enumerate(right)},
    )
    pairs.update({i: j for i, j in hints.items() if i not in pairs and j not in taken})
