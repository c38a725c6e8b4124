"""One sequence in its three versions: who is who, and where an insertion goes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.merge.align import Alignment, align, hint, key, telling
from tools.merge.follow import Follower, is_class
from tools.merge.splice import CannotPlace, Place
from tools.merge.syntax import Node, Role


@dataclass
class Versions:
    """One sequence in its three versions, with who is who."""

    b: Node
    o: Node
    t: Node
    written: Alignment
    upstream: Alignment
    present: dict[int, Node] = field(default_factory=dict)
    _nested: dict[int, Node] | None = None

    def fresh(self) -> Iterator[Node]:
        """Yield what only the target has."""
        return (c for j, c in enumerate(self.t.children) if j not in self.upstream.back)

    def partner(self, i: int) -> Node | None:
        """Return the target's version of the base's member ``i``."""
        if i in self.upstream.pairs:
            return self.t.children[self.upstream.pairs[i]]
        return self._wrapped().get(i)

    def sure(self, i: int) -> bool:
        """Return whether the partner of the base's member ``i`` is beyond doubt."""
        if self.b.alike(self.t):
            return True
        return i not in self.upstream.pairs or self.upstream.sure(i)

    def _wrapped(self) -> dict[int, Node]:
        """Match statements that the target moved, as a run, under a new compound statement."""
        if self._nested is None:
            self._nested = {}
            lost = [i for i in range(len(self.b.children)) if i not in self.upstream.pairs]
            if self.b.role is Role.BODY and lost:
                for statement in self.fresh():
                    self._search(statement, lost)
        return self._nested

    def _search(self, statement: Node, lost: list[int]) -> None:
        if statement.role is not Role.COMPOUND or self._nested is None:
            return
        for branch in statement.children:
            body = next((part for part in branch.children if part.role is Role.BODY), None)
            if body is None:
                continue
            members = [self.b.children[i] for i in lost]
            inner = align(members, body.children, moves=False)
            exact = [x for x, y in inner.pairs.items() if members[x].same(body.children[y])]
            # Half of the block must be the base's, unchanged: else it is another block.
            moved = len(exact) == len(lost) or any(telling(members[x]) for x in exact)
            if exact and moved and 2 * len(exact) >= len(body.children):
                for x, y in inner.pairs.items():
                    if inner.sure(x):
                        self._nested.setdefault(lost[x], body.children[y])

    # --- deletions ------------------------------------------------------------------------------

    def replaced(self, i: int) -> bool:
        """Return whether the patch puts something in the place of the base's member ``i``."""
        before = max((y for x, y in self.written.pairs.items() if x < i), default=-1)
        after = min(
            (y for x, y in self.written.pairs.items() if x > i), default=len(self.o.children)
        )
        return after - before > 1

    def uprooted(self) -> bool:
        """Return whether the patch deletes all that is left beside what the target added.

        Seen from the target's side that is an insertion without a neighbour, and no merge either.
        """
        left = [i for i in range(len(self.b.children)) if self.partner(i) is not None]
        deletes = bool(left) and not any(i in self.written.pairs for i in left)
        return deletes and next(self.fresh(), None) is not None

    def gap_is_clean(self, i: int) -> bool:
        """Return whether the target has nothing new where the base's member ``i`` stood."""
        if key(self.b.children[i]):
            return True
        pairs = self.upstream.pairs
        before = max((y for x, y in pairs.items() if x < i), default=-1)
        after = min((y for x, y in pairs.items() if x > i), default=len(self.t.children))
        return all(y in self.upstream.back for y in range(before + 1, after))

    # --- insertions -----------------------------------------------------------------------------

    def already(self, node: Node, k: int) -> Node | None:
        """Return what the target has of its own in the place of an insertion, or None."""
        if node.role is Role.COMMENT:
            found = [c for c in self.fresh() if c.same(node)]
            return found[0] if len(found) == 1 else None
        own = key(node)
        if own is not None:
            # Also where it was taken for what became of another entry.
            others = (
                c
                for j, c in enumerate(self.t.children)
                if (i := self.upstream.back.get(j)) is None or key(self.b.children[i]) != own
            )
            return next((c for c in others if key(c) == own), None)
        same = [c for c in self.fresh() if c.same(node)]
        if len(same) == 1 and (telling(node) or self._between(same[0], k)):
            return same[0]
        clue = hint(node)
        if clue is None or clue[0] == "from":
            return None
        rivals = [c for c in self.fresh() if hint(c) == clue]
        return (
            rivals[0]
            if len(rivals) == 1 and (telling(node) or self._between(rivals[0], k))
            else None
        )

    def _between(self, found: Node, k: int) -> bool:
        at = next(j for j, child in enumerate(self.t.children) if child is found)
        ends = []
        for step in (-1, 1):
            x = k + step
            while 0 <= x < len(self.o.children):
                i = self.written.back.get(x)
                if i is not None and i in self.upstream.pairs:
                    ends.append(self.upstream.pairs[i])
                    break
                x += step
            else:
                ends.append(-1 if step < 0 else len(self.t.children))
        return ends[0] < at < ends[1]

    def _neighbour(self, k: int, step: int) -> tuple[Node | None, int, list[Node]]:
        """Return the nearest surviving neighbour of the patched member ``k``.

        Returns:
            The neighbour's version in the target, how many members away it is (comments do not
            count), and the neighbours that were passed over.
        """
        distance = 0
        passed: list[Node] = []
        x = k + step
        while 0 <= x < len(self.o.children):
            child = self.o.children[x]
            distance += child.role is not Role.COMMENT
            i = self.written.back.get(x)
            found = self.present.get(x) if i is None else self.partner(i)
            if found is not None and (i is None or self.sure(i)):
                return found, max(distance, 1), passed
            if i is not None and child.role is not Role.COMMENT:
                passed.append(self.b.children[i])
            x += step
        return None, distance + 1, passed

    def place(self, group: list[Node], follower: Follower) -> Place:
        """Return where in the target an insertion goes.

        Raises:
            CannotPlace: No neighbour survives, or they disagree.
        """
        first = next(k for k, child in enumerate(self.o.children) if child is group[0])
        before, before_away, lost_before = self._neighbour(first, -1)
        after, after_away, lost_after = self._neighbour(first + len(group) - 1, 1)
        if before is None and after is None:
            if self.b.children or self.t.children:
                raise CannotPlace("no neighbour of the insertion is left in the target")
            return Place(self.t, None, after=True)
        beside = 1 in (before_away, after_away) and (
            (before is not None and before_away == 1) or (after is not None and after_away == 1)
        )
        gone = [nodes[0] for nodes in (lost_before, lost_after) if nodes]
        if self.t.role is Role.SEQUENCE:
            split = [n for n in gone if follower.regrouped(n, self.t, new_only=beside)]
            if split:
                raise CannotPlace(
                    f"its neighbour {split[0].text.decode(errors='replace')[:60]!r}"
                    " moved to another container"
                )
        if before is not None and after is not None:
            self._check_order(before, after, beside)
        self._check_positions(group, before, after)
        use_before = before is not None and (before_away == 1 or after_away > 1 or after is None)
        anchor = before if use_before else after
        if anchor is None or anchor.parent is None:
            raise CannotPlace("no neighbour of the insertion is left in the target")
        return Place(anchor.parent, anchor, after=use_before)

    def _check_order(self, before: Node, after: Node, beside: bool) -> None:
        if self.t.role is Role.SEQUENCE:
            return
        if before.parent is not after.parent:
            raise CannotPlace("its neighbours stand in different blocks of the target")
        family = before.parent.children if before.parent else []
        at = {id(child): j for j, child in enumerate(family)}
        low, high = at[id(before)], at[id(after)]
        if self.ordered and low > high:
            raise CannotPlace("its neighbours changed places in the target")
        between = [c for c in family[low + 1 : high] if c.role is not Role.COMMENT]
        if self.ordered and between and not beside:
            raise CannotPlace("its neighbours were replaced by other code in the target")

    def _check_positions(self, group: list[Node], before: Node | None, after: Node | None) -> None:
        """Refuse to guess which of two new positional members comes first."""
        if not any(_positional(node, self.b) for node in group):
            return
        family = self.t.children
        low = -1 if before is None else next(j for j, c in enumerate(family) if c is before)
        high = len(family) if after is None else next(j for j, c in enumerate(family) if c is after)
        rivals = (c for c in family[low + 1 : high] if any(c is new for new in self.fresh()))
        if any(_positional(c, self.b) for c in rivals):
            raise CannotPlace("both sides add a positional member there: which comes first is open")

    @property
    def ordered(self) -> bool:
        """Whether the members' order decides what the code does."""
        owner = self.t.parent
        return not (self.t.kind == "module" or (owner is not None and is_class(owner)))


def _positional(node: Node, base: Node) -> bool:
    """Return whether a member means what it means by where it stands."""
    container = node.parent.kind if node.parent is not None else ""
    if container == "argument_list":
        return node.kind not in ("keyword_argument", "dictionary_splat", "comment")
    if container == "parameters":
        return node.kind in ("identifier", "typed_parameter")
    if container in ("tuple", "expression_list", "pattern_list", "concatenated_string"):
        # Many strings in parentheses are a set of names; two are a pair.
        names = [child for child in base.children if child.kind == "string"]
        return container != "tuple" or len(names) < 3 or len(names) < len(base.children)
    return False
