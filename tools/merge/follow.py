"""Definitions and containers that upstream renamed or moved as a whole."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from tools.merge.align import key
from tools.merge.lines import split_lines
from tools.merge.syntax import Node, Role, Source, parse

# How much of a definition must be the same for it to be the same one under another name, or with
# its own name in another place; and by how much the runner-up must be worse.
_RENAMED = 0.75
_MOVED = 0.5
_MARGIN = 0.15
# So many methods of a class that is gone, found in another one, make that its new home; so many
# members of a container, found in another one, make that the same under another name.
_GROUP = 3
# Share of a container's members that the other one must hold.
_CONTAINED = 0.75


class Follower:
    """Finds in the target what the base has under another name or in another place.

    Args:
        path: The file.
        base: The base's version of it.
        target: The target's version.
        elsewhere: Other files of the target in which a definition may be.
        elsewhere_base: The base's versions of those files: what they define is not new.
    """

    def __init__(
        self,
        path: str,
        base: Source,
        target: Source,
        elsewhere: Mapping[str, bytes],
        elsewhere_base: Mapping[str, bytes],
    ) -> None:
        self.path = path
        self.base = base
        self.target = target
        self.sources = {path: target}
        self._elsewhere = elsewhere
        self._elsewhere_base = elsewhere_base

    def path_of(self, source: Source) -> str:
        """Return the path of one of the target's files."""
        return next(path for path, known in self.sources.items() if known is source)

    def _others(self, node: Node) -> Iterator[tuple[str, Source]]:
        """Yield the other files that hold a definition of that name and most of its lines."""
        mine = {line.strip() for line in node.text.splitlines()}
        head = (b"class " if is_class(node) else b"def ") + node.name.encode()
        for path, data in self._elsewhere.items():
            if path == self.path or not path.endswith((".py", ".pyi")) or head not in data:
                continue
            known = {line.strip() for line in split_lines(data)}
            if len(mine & known) < _MOVED * len(mine):
                continue
            source = self.sources.get(path) or parse(data)
            if source.parses:
                self.sources[path] = source
                yield path, source

    @cached_property
    def _lost(self) -> list[Node]:
        """Definitions of the base that the target's file does not have by qualified name."""
        kept = {node.qualname for node in definitions(self.target.root)}
        return [node for node in definitions(self.base.root) if node.qualname not in kept]

    def _fresh(self, node: Node) -> Iterator[Node]:
        known = {node.qualname for node in definitions(self.base.root)}
        yield from (n for n in definitions(self.target.root) if n.qualname not in known)
        for path, source in self._others(node):
            before = self._elsewhere_base.get(path)
            own = {n.qualname for n in definitions(parse(before).root)} if before else set()
            yield from (n for n in definitions(source.root) if n.qualname not in own)

    def find(self, node: Node) -> Node | None:
        """Return the target's version of a definition or named container that is not in its place.

        Only one that is new in the target, is mostly the same and has no rival is returned.
        """
        if node.role is Role.DEFINITION:
            return self._definition(node)
        if node.kind == "assignment":
            return self._container(node)
        return None

    def _definition(self, node: Node) -> Node | None:
        kind = is_class(node)
        mine = _bag(node)
        # A method that left a class which is still there must be the very same elsewhere.
        owner = node.parent.parent if node.parent is not None else None
        stays = owner is not None and owner not in self._lost
        scored: list[tuple[float, bool, Node]] = []
        for other in self._fresh(node):
            if is_class(other) is not kind:
                continue
            score = _share(mine, _bag(other))
            named = other.name == node.name
            if score >= (_MOVED if named and not stays else _RENAMED):
                scored.append((score, named, other))
        best = _clear_best(scored)
        if best is None:
            return self._with_its_class(node)
        # The base must not have another lost definition that fits as well.
        rivals = [
            (_share(_bag(lost), _bag(best)), lost.name == best.name, lost)
            for lost in self._lost
            if is_class(lost) is kind
        ]
        return best if _clear_best(rivals) is node or _only(rivals, node) else None

    def _with_its_class(self, node: Node) -> Node | None:
        """Return a method that changed on the way, where its class' methods moved together."""
        owner = node.parent.parent if node.parent is not None else None
        if owner is None or owner.role is not Role.DEFINITION or owner not in self._lost:
            return None
        names = {child.name for child in owner.named("body").children if child.name}
        groups: dict[str, list[Node]] = {}
        for other in self._fresh(node):
            if other.parent is not None and other.parent.kind != "module":
                groups.setdefault(other.parent.qualname, []).append(other)
        homes = []
        for members in groups.values():
            moved = [other for other in members if other.name in names]
            if len(moved) >= _GROUP and len(moved) >= _CONTAINED * len(members):
                homes.append([other for other in moved if other.name == node.name])
        if len(homes) != 1 or len(homes[0]) != 1:
            return None
        return homes[0][0]

    def _container(self, node: Node) -> Node | None:
        mine = _members(node)
        parent = node.parent
        if not mine or parent is None or parent.kind != "module":
            return None
        known = {child.name for child in parent.children if child.name}
        scored = []
        for other in self.target.root.children:
            theirs = _members(other)
            if other.kind != "assignment" or not theirs or other.name in known:
                continue
            small, large = sorted((mine, theirs), key=len)
            shared = len(small & large)
            score = shared / len(small)
            if score >= _CONTAINED and (shared >= _GROUP or small == large):
                scored.append((score, False, other))
        return scored[0][2] if len(scored) == 1 else None

    def regrouped(self, member: Node, container: Node, *, new_only: bool) -> bool:
        """Return whether a member that left ``container`` stands in another one of the target.

        Args:
            member: The member in the base.
            container: Where it is missing.
            new_only: Count only containers that the base does not have.
        """
        label = key(member)
        if label is None:
            return False
        known = {node.qualname for node in _containers(self.base.root) if _holds(node, label)}
        names = {node.qualname for node in _containers(self.base.root)}
        for other in _containers(container.source.root):
            if other is container or other.qualname in known:
                continue
            if new_only and other.qualname in names:
                continue
            if _holds(other, label):
                return True
        return False


def is_class(node: Node) -> bool:
    """Return whether the node is the definition of a class."""
    inner = node.raw.child_by_field_name("definition") or node.raw
    return inner.type == "class_definition"


def definitions(body: Node) -> Iterator[Node]:
    """Yield the definitions in a body: those of the module and, in classes, of each class."""
    for child in body.children:
        if child.role is Role.DEFINITION:
            yield child
            if is_class(child):
                yield from definitions(child.named("body"))


def _containers(body: Node) -> Iterator[Node]:
    for child in body.children:
        if child.kind == "assignment" and child.name:
            yield from _sequences(child)
        elif child.role is Role.DEFINITION and is_class(child):
            yield from _containers(child.named("body"))


def _sequences(node: Node) -> Iterator[Node]:
    if node.role is Role.SEQUENCE:
        yield node
    elif node.role is Role.FIXED:
        for child in node.children:
            yield from _sequences(child)


def _holds(container: Node, label: tuple[str, bytes]) -> bool:
    return any(key(child) == label for child in container.children)


def _members(node: Node) -> set[tuple[str, bytes]]:
    return {
        label
        for sequence in _sequences(node)
        for child in sequence.children
        if (label := key(child)) is not None
    }


def _bag(node: Node) -> Counter[bytes]:
    """The statements of a definition, without its name."""
    body = node.named("body")
    if is_class(node):
        return Counter(
            statement
            for child in body.children
            for statement in (
                _bag(child).elements() if child.role is Role.DEFINITION else [child.code]
            )
        )
    return Counter(child.code for child in _flat(body))


def _flat(body: Node) -> Iterator[Node]:
    for child in body.children:
        if child.role is Role.COMPOUND:
            for branch in child.children:
                for part in branch.children:
                    if part.role is Role.BODY:
                        yield from _flat(part)
                    else:
                        yield part
        elif child.role is not Role.COMMENT:
            yield child


def _share(a: Counter[bytes], b: Counter[bytes]) -> float:
    total = a.total() + b.total()
    return 2 * (a & b).total() / total if total else 0.0


def _clear_best(scored: list[tuple[float, bool, Node]]) -> Node | None:
    """Return the best candidate unless the runner-up is nearly as good; its own name wins."""
    named = [entry for entry in scored if entry[1]]
    pool = sorted(named or scored, key=lambda entry: -entry[0])
    if not pool or (len(pool) > 1 and pool[0][0] - pool[1][0] < _MARGIN):
        return None
    return pool[0][2]


def _only(scored: list[tuple[float, bool, Node]], node: Node) -> bool:
    return [entry[2] for entry in scored] == [node]
