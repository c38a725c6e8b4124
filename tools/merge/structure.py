"""The three-way merge on syntax."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tools.merge import splice
from tools.merge.align import Alignment, align, hint, key, telling
from tools.merge.follow import Follower, is_class
from tools.merge.model import Conflict, Edit, Site
from tools.merge.splice import CannotPlace, Place, Splice
from tools.merge.syntax import Node, Role, Source

_LINED = (Role.BODY, Role.DECORATORS, Role.COMPOUND)


@dataclass(frozen=True)
class _Landing:
    """An edit before the merged file exists: its line there is not known yet."""

    kind: str
    written: Site
    path: str
    qualname: str
    at: int
    first_line: int
    present: bool


@dataclass(frozen=True)
class Merged:
    """Outcome of :func:`merge`: as in a file merge, without the rule."""

    files: dict[str, bytes]
    edits: tuple[Edit, ...]
    conflicts: tuple[Conflict, ...]


def merge(path: str, base: Source, patched: Source, follower: Follower) -> Merged:
    """Do to the target what the patch did to the base, node by node.

    Args:
        path: The file.
        base: The file the patch was written on.
        patched: The file with the patch.
        follower: The target, and where a definition may have gone in it.

    Returns:
        The merged file, or those that edits followed a definition into; each edit with the place
        where it landed; and what could not be decided.
    """
    merger = _Merger(path, follower)
    merger.node(base.root, patched.root, follower.target.root)
    return merger.finish()


@dataclass
class _Merger:
    path: str
    follower: Follower
    splices: dict[str, list[Splice]] = field(default_factory=dict)
    landings: list[_Landing] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)

    # --- what came out --------------------------------------------------------------------------

    def finish(self) -> Merged:
        files = {self.path: self.follower.target.data}
        if not self.conflicts:
            for path, splices in self.splices.items():
                try:
                    files[path] = splice.apply(self.follower.sources[path].data, splices)
                except CannotPlace as problem:
                    site = self.landings[0].written
                    self.conflicts.append(Conflict(str(problem), site, Site(path, "", 1)))
        edits = tuple(self._edit(landing, files) for landing in self.landings)
        if len(files) > 1 and files[self.path] == self.follower.target.data:
            del files[self.path]  # everything went where a definition had moved to
        return Merged(files, edits, tuple(self.conflicts))

    def _edit(self, landing: _Landing, files: dict[str, bytes]) -> Edit:
        line = self.follower.sources[landing.path].line_number(landing.at)
        if landing.kind != "delete" and not self.conflicts:
            at = splice.moved(
                landing.at,
                [
                    s
                    for s in self.splices.get(landing.path, [])
                    if s.end <= landing.at
                    and not (s.start == s.end == landing.at and not landing.present)
                ],
            )
            line = files[landing.path].count(b"\n", 0, at) + 1 + landing.first_line
        site = Site(landing.path, landing.qualname, line)
        return Edit(landing.kind, landing.written, site, landing.present)

    def _site(self, node: Node) -> Site:
        return Site(self.path, node.qualname, node.line)

    def _target_site(self, node: Node) -> Site:
        return Site(self.follower.path_of(node.source), node.qualname, node.line)

    def _conflict(self, reason: str, written: Node, target: Node | None) -> None:
        there = self._target_site(target) if target is not None else None
        self.conflicts.append(Conflict(reason, self._site(written), there))

    def _land(self, kind: str, written: Node, target: Node, *, present: bool = False) -> None:
        path = self.follower.path_of(target.source)
        self.landings.append(
            _Landing(kind, self._site(written), path, target.qualname, target.start, 0, present)
        )

    def _write(self, target: Source, splices: Sequence[Splice]) -> None:
        self.splices.setdefault(self.follower.path_of(target), []).extend(splices)

    # --- one node -------------------------------------------------------------------------------

    def node(self, b: Node, o: Node, t: Node) -> None:
        """Merge three versions of one node."""
        if b.same(o):
            return
        if b.tail != o.tail:
            self._tail(b, o, t)
            if b.code == o.code:
                return
        if (lists := _interchangeable(b, o, t)) is not None:
            self.members(*lists)
        elif b.role is o.role is t.role and (
            b.role in _LINED or (b.role is Role.SEQUENCE and b.kind == o.kind == t.kind)
        ):
            self.members(b, o, t)
        elif o.squeezed == t.squeezed and o.code == t.code:
            self._land("change", o, t, present=True)
        elif not b.role is o.role is t.role:
            self._replace(b, o, t)
        elif b.role in (Role.DEFINITION, Role.BRANCH):
            self._named_parts(b, o, t)
        elif b.role is Role.FIXED and _same_shape(b, o, t):
            for parts in zip(b.children, o.children, t.children, strict=True):
                self.node(*parts)
        else:
            self._replace(b, o, t)

    def _tail(self, b: Node, o: Node, t: Node) -> None:
        if t.tail == o.tail:
            self._land("change", o, t, present=True)
        elif t.tail == b.tail:
            self._write(t.source, [splice.replace_tail(t, o)])
            self._land("change", o, t)
        else:
            self._conflict("the comment behind it changed on both sides", o, t)

    def _replace(self, b: Node, o: Node, t: Node) -> None:
        if b.squeezed == t.squeezed and b.code == t.code:
            self._write(t.source, [splice.replace(t, o)])
            self._land("change", o, t)
        else:
            self._conflict("changed differently on both sides", o, t)

    def _named_parts(self, b: Node, o: Node, t: Node) -> None:
        kinds = {part.kind for side in (b, o, t) for part in side.children}
        for kind in ("decorators", "header", "body"):
            if kind not in kinds:
                continue
            parts = [
                next((part for part in side.children if part.kind == kind), None)
                for side in (b, o, t)
            ]
            b_part, o_part, t_part = parts
            if b_part is not None and o_part is not None:
                if t_part is not None:
                    self.node(b_part, o_part, t_part)
                elif not b_part.same(o_part):
                    self._conflict(f"the target has no {kind} there", o_part, t)
            elif b_part is not o_part and not _same_part(o_part, t_part):
                self._conflict(f"{kind} came or went as a whole", o, t)

    # --- sequences ------------------------------------------------------------------------------

    def members(self, b: Node, o: Node, t: Node) -> None:
        """Merge three versions of a sequence, member by member."""
        written = align(b.children, o.children, moves=False)
        upstream = align(b.children, t.children, moves=True)
        here = _Sequence(b, o, t, written, upstream)
        for i, b_child in enumerate(b.children):
            if i in written.pairs:
                o_child = o.children[written.pairs[i]]
                if not b_child.same(o_child):
                    self._changed(here, i, o_child)
            else:
                self._deleted(here, i)
        self._inserted(here)

    def _changed(self, here: "_Sequence", i: int, o_child: Node) -> None:
        b_child = here.b.children[i]
        t_child = here.partner(i)
        if t_child is None:
            t_child = self.follower.find(b_child)
        elif not here.sure(i):
            self._conflict("more than one place in the target looks like it", o_child, t_child)
            return
        if t_child is not None:
            self.node(b_child, o_child, t_child)
            return
        same = [c for c in here.fresh() if c.same(o_child)]
        if len(same) == 1:
            self._land("change", o_child, same[0], present=True)
        elif not self._methods_elsewhere(b_child, o_child):
            self._conflict("the target has no counterpart of it", o_child, here.t)

    def _methods_elsewhere(self, b: Node, o: Node) -> bool:
        """Merge the methods of a class that is gone, each where it went as a whole."""
        if not (is_class(b) and is_class(o) and b.named("header").same(o.named("header"))):
            return False
        b_body, o_body = b.named("body"), o.named("body")
        written = align(b_body.children, o_body.children, moves=False)
        if len(written.pairs) < max(len(b_body.children), len(o_body.children)):
            return False
        changed = [
            (b_body.children[i], o_body.children[j])
            for i, j in written.pairs.items()
            if not b_body.children[i].same(o_body.children[j])
        ]
        homes = [self.follower.find(member) for member, _ in changed]
        if None in homes or any(b.role is not Role.DEFINITION for b, _ in changed):
            return False
        for (b_child, o_child), t_child in zip(changed, homes, strict=True):
            if t_child is not None:
                self.node(b_child, o_child, t_child)
        return True

    def _deleted(self, here: "_Sequence", i: int) -> None:
        b_child = here.b.children[i]
        t_child = here.partner(i)
        if t_child is None:
            if here.replaced(i) or not here.gap_is_clean(i):
                self._conflict("the target has no counterpart of what it replaces", b_child, here.t)
            else:
                self._land("delete", b_child, here.t, present=True)
        elif not here.sure(i):
            self._conflict("more than one place in the target looks like it", b_child, t_child)
        elif not b_child.same(t_child):
            self._conflict("deleted by the patch, changed in the target", b_child, t_child)
        else:
            try:
                lined = here.t.role is not Role.SEQUENCE
                done = splice.delete_lines(t_child) if lined else splice.delete_member(t_child)
            except CannotPlace as problem:
                self._conflict(str(problem), b_child, t_child)
                return
            self._write(t_child.source, [done])
            self._land("delete", b_child, t_child)

    def _inserted(self, here: "_Sequence") -> None:
        group: list[Node] = []
        for k, o_child in enumerate(here.o.children):
            if k in here.written.back:
                self._place(here, group)
                group = []
                continue
            found = here.already(o_child, k)
            if found is None:
                group.append(o_child)
                continue
            self._place(here, group)
            group = []
            if found.same(o_child):
                here.present[k] = found
                self._land("insert", o_child, found, present=True)
            else:
                self._conflict("added differently on both sides", o_child, found)
        self._place(here, group)

    def _place(self, here: "_Sequence", group: list[Node]) -> None:
        if not group:
            return
        try:
            place = here.place(group, self.follower)
            done = splice.insert(place, group)
        except CannotPlace as problem:
            self._conflict(str(problem), group[0], here.t)
            return
        self._write(place.container.source, done)
        path = self.follower.path_of(place.container.source)
        text, at = done[-1].text, done[-1].start
        offset = 0
        for node in group:
            first = node.text.split(b"\n")[0].rstrip()
            offset = max(text.find(first, offset), offset)
            qualname = ".".join(filter(None, [place.container.qualname, node.name]))
            self.landings.append(
                _Landing(
                    "insert",
                    self._site(node),
                    path,
                    qualname,
                    at,
                    text.count(b"\n", 0, offset),
                    present=False,
                )
            )


@dataclass
class _Sequence:
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


def _interchangeable(b: Node, o: Node, t: Node) -> tuple[Node, Node, Node] | None:
    """Return the members of three lists of one kind or of kinds whose members are alike."""
    if b.kind == t.kind or b.kind != o.kind:
        return None
    lists = tuple(found for found in map(_plain_list, (b, o, t)) if found is not None)
    return (lists[0], lists[1], lists[2]) if len(lists) == 3 else None


def _plain_list(node: Node) -> Node | None:
    if node.kind in ("list", "set", "tuple"):
        return node
    # `Literal[...]` is a list of its members; other subscripts are something else.
    inner = node.children[0] if node.kind == "type" else node
    if inner.kind in ("subscript", "generic_type") and inner.children[0].text.endswith(b"Literal"):
        return inner.children[-1]
    return None


def _same_shape(b: Node, o: Node, t: Node) -> bool:
    if not len(b.children) == len(o.children) == len(t.children):
        return False
    return all(
        p.kind == q.kind or (p.raw.is_named and q.raw.is_named)
        for p, q in zip(b.children, t.children, strict=True)
    )


def _same_part(o: Node | None, t: Node | None) -> bool:
    return o is not None and t is not None and o.same(t)
