"""The three-way merge on syntax."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.merge import splice
from tools.merge.align import align
from tools.merge.follow import Follower, is_class
from tools.merge.model import Conflict, Edit, Site
from tools.merge.sequence import Versions
from tools.merge.splice import CannotPlace, Splice
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
            # A file that an edit was followed to, and that already held it, is not written.
            data = files.get(landing.path, self.follower.sources[landing.path].data)
            line = data.count(b"\n", 0, at) + 1 + landing.first_line
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
        elif len({_is_wrapped(side) for side in (b, o, t)}) > 1:
            self.node(*map(_unwrapped, (b, o, t)))
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
        if b.children and o.children and not written.pairs and b.same(t):
            self._replace(b, o, t)  # one by one it would be empty between
            return
        here = Versions(b, o, t, written, upstream)
        if here.uprooted():
            self._conflict("nothing would be left beside what the target has added", b, t)
        for i, b_child in enumerate(b.children):
            if i in written.pairs:
                o_child = o.children[written.pairs[i]]
                if not b_child.same(o_child):
                    self._changed(here, i, o_child)
            else:
                self._deleted(here, i)
        self._inserted(here)

    def _changed(self, here: Versions, i: int, o_child: Node) -> None:
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

    def _deleted(self, here: Versions, i: int) -> None:
        b_child = here.b.children[i]
        t_child = here.partner(i)
        if t_child is None:
            moved = self.follower.find(b_child) if b_child.role is Role.DEFINITION else None
            if moved is not None:
                self._conflict("deleted by the patch, moved in the target", b_child, moved)
            elif here.replaced(i) or not here.gap_is_clean(i):
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

    def _inserted(self, here: Versions) -> None:
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

    def _place(self, here: Versions, group: list[Node]) -> None:
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


def _is_wrapped(node: Node) -> bool:
    """Return whether the node stands in parentheses of its own, as long expressions do."""
    return node.kind == "parenthesized_expression" and len(node.children) == 3


def _unwrapped(node: Node) -> Node:
    return node.children[1] if _is_wrapped(node) else node


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
