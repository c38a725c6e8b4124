"""The proof that a merge did what the patch says, where it says it, and nothing twice."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from tools.merge.align import align, hint, key, telling
from tools.merge.follow import is_class
from tools.merge.model import Conflict, Edit, Site
from tools.merge.syntax import Node, Role, Source, parse
from tools.merge.tokens import tokens

Delta = dict[str, Counter[bytes]]
_Label = tuple[str, bytes]
_NO_STRUCTURE = bytes.maketrans(b"\x01\x02\x03", b"   ")


def parses(data: bytes) -> bool:
    """Return whether the bytes are Python that this interpreter reads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "<merged>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def check_parses(
    path: str, base: bytes, patched: bytes, target: bytes, merged: bytes
) -> list[Conflict]:
    """Check that the merged file parses, as far as what it was made of does.

    tree-sitter reads newer and older syntax than this interpreter, and forgives more; the
    interpreter is asked too wherever it can read the sides.
    """
    if merged in (target, patched, base):
        return []
    source, before = parse(merged, target), parse(target)
    bad = not source.parses and before.parses
    if not bad and not parses(_changed_statements(before, source)):
        bad = all(parses(side) for side in (base, patched, target)) and not parses(merged)
    if not bad:
        return []
    site = Site(path, "", 1)
    return [Conflict("the merged file does not parse", site, site)]


def _changed_statements(old: Source, new: Source) -> bytes:
    """Return the module's statements that ``new`` has and ``old`` has not.

    A module parses when each of its statements does, and most of them are the target's own.
    """
    known = {node.text for node in old.root.children}
    return b"\n".join(node.text for node in new.root.children if node.text not in known)


# --- each edit in its own qualified name --------------------------------------------------------


@lru_cache(maxsize=16)
def delta(old: Source, new: Source) -> Delta:
    """Return, by qualified name, how many of each token ``new`` has more (or fewer) than ``old``.

    Commas are left out: how many there are depends on the layout of a list.
    """
    found: Delta = {}
    _count(old.root.children, new.root.children, found)
    return {name: counts for name, counts in found.items() if counts}


def _count(old: Sequence[Node], new: Sequence[Node], found: Delta) -> None:
    mine = Counter((node.qualname, node.text, node.tail) for node in old)
    theirs = Counter((node.qualname, node.text, node.tail) for node in new)
    olds = list(_left_over(old, mine - theirs))
    news = list(_left_over(new, theirs - mine))
    pairs = _twins(olds, news)
    for a, b in pairs:
        if a.role is not Role.DEFINITION:
            _count_pieces(list(_pieces(a)), list(_pieces(b)), a.qualname, found)
            continue
        for kind in ("decorators", "header"):
            for node, sign in ((a, -1), (b, 1)):
                part = next((p for p in node.children if p.kind == kind), None)
                if part is not None:
                    _add(found, node.qualname, part.code, sign)
        _count(a.named("body").children, b.named("body").children, found)
    paired = {id(node) for pair in pairs for node in pair}
    for nodes, sign in ((olds, -1), (news, 1)):
        for node in nodes:
            if id(node) not in paired:
                _add_node(found, node, sign)


def _left_over(nodes: Sequence[Node], extra: Counter[tuple[str, bytes, bytes]]) -> Iterator[Node]:
    extra = extra.copy()
    for node in nodes:
        label = (node.qualname, node.text, node.tail)
        if extra[label] > 0:
            extra[label] -= 1
            yield node


def _twins(olds: Sequence[Node], news: Sequence[Node]) -> list[tuple[Node, Node]]:
    def once(nodes: Sequence[Node]) -> dict[tuple[Role, str], Node]:
        counts = Counter((n.role, n.name) for n in nodes if n.name)
        return {(n.role, n.name): n for n in nodes if counts[n.role, n.name] == 1}

    left, right = once(olds), once(news)
    return [(node, right[name]) for name, node in left.items() if name in right]


def _pieces(node: Node) -> Iterator[Node]:
    """Yield what an assignment consists of, with the members of its lists one by one."""
    if node.role is Role.SEQUENCE:
        yield from node.children
    elif node.role is Role.FIXED:
        for child in node.children:
            yield from _pieces(child)
    else:
        yield node


def _count_pieces(old: list[Node], new: list[Node], name: str, found: Delta) -> None:
    counts = Counter((node.text, node.tail) for node in new)
    counts.subtract((node.text, node.tail) for node in old)
    for (text, tail), count in counts.items():
        if count:
            _add(found, name, tokens(text + b" " + tail), count)


def _add_node(found: Delta, node: Node, sign: int) -> None:
    if node.role is Role.DEFINITION and is_class(node):
        for part in node.children:
            if part.kind == "body":
                for child in part.children:
                    _add_node(found, child, sign)
            else:
                _add(found, node.qualname, part.code, sign)
    else:
        _add(found, node.qualname, node.norm, sign)


def _add(found: Delta, name: str, code: bytes, sign: int) -> None:
    counts = found.setdefault(name, Counter())
    for token in code.translate(_NO_STRUCTURE).split(b" "):
        if token not in (b",", b""):
            counts[token] += sign
            if not counts[token]:
                del counts[token]


def misplaced(path: str, written: Delta, landed: Delta, edits: Sequence[Edit]) -> list[Conflict]:
    """Name each qualified name that got, or lost, what the patch did not write there.

    Args:
        path: The file.
        written: What the patch changed.
        landed: What the merge changed.
        edits: The edits; those that followed a rename say which name stands for which.
    """
    renamed = {e.landed.qualname: e.written.qualname for e in edits if e.landed.path == path}
    conflicts = []
    for name, counts in landed.items():
        want = written.get(_renamed(name, renamed), Counter())
        for token, count in counts.items():
            if count * want[token] <= 0 or abs(count) > abs(want[token]):
                reason = (
                    f"{token.decode(errors='replace')[:40]!r} landed where the patch did not"
                    " write it"
                )
                there = next((e.landed for e in edits if e.landed.qualname == name), None)
                site = next((e.written for e in edits if e.written.qualname != name), None)
                conflicts.append(
                    Conflict(reason, site or Site(path, name, 1), there or Site(path, name, 1))
                )
                break
    return conflicts


def _renamed(name: str, renamed: dict[str, str]) -> str:
    best = max(
        (new for new in renamed if name == new or name.startswith(new + ".")),
        key=len,
        default=None,
    )
    return name if best is None else renamed[best] + name[len(best) :]


# --- nothing twice ------------------------------------------------------------------------------


def doubled(
    path: str, base: Source, patched: Source, target: Source, merged: Source
) -> list[Conflict]:
    """Name each thing that the merge introduced though the target has it already.

    Dictionary keys, list entries, parameters, keywords, imports, definitions and whole statements
    are compared within their container. What the patch itself doubles is its own affair.
    """
    allowed = _own_doubles(base, patched)
    conflicts = []
    for container, label, before, now, node in _growth(target.root, merged.root):
        if before and now > max(1, allowed.get((container.qualname, label), 1)):
            site = Site(path, container.qualname, node.line)
            name = label[1].decode(errors="replace")[:60]
            conflicts.append(Conflict(f"{name!r} would stand there twice", site, site))
    return conflicts


@lru_cache(maxsize=16)
def _own_doubles(base: Source, patched: Source) -> dict[tuple[str, _Label], int]:
    """Return how often the patched file has what the patch brings."""
    counts: dict[tuple[str, _Label], int] = {}
    for container, label, _, now, _ in _growth(base.root, patched.root):
        place = container.qualname, label
        counts[place] = max(now, counts.get(place, 0))
    return counts


def _growth(old: Node, new: Node) -> Iterator[tuple[Node, _Label, int, int, Node]]:
    """Yield what a sequence of ``new`` has more of: its labels with both counts."""
    if old.text == new.text:
        return
    if old.role is not new.role or not old.children:
        return
    sequence = old.role in (Role.BODY, Role.SEQUENCE, Role.COMPOUND, Role.DECORATORS)
    if not sequence:
        for a in old.children:
            b = next((c for c in new.children if c.kind == a.kind and c.role is a.role), None)
            at = old.children.index(a)
            if old.role is Role.FIXED and at < len(new.children):
                b = new.children[at]
            if b is not None:
                yield from _growth(a, b)
        return
    counts = Counter(node.text for node in old.children)
    counts.subtract(node.text for node in new.children)
    olds = [node for node in old.children if counts[node.text]]
    news = [node for node in new.children if counts[node.text]]
    before = Counter(label for node in olds for label in _labels(node))
    now = Counter(label for node in news for label in _labels(node))
    grown = {label for label in now if now[label] > before[label]}
    common = _common(new.children, counts, {label[0] for label in grown})
    for node in news:
        for label in _labels(node):
            if label in grown:
                kept = common[label]
                yield new, label, before[label] + kept, now[label] + kept, node
    matched = align(olds, news, moves=False)
    for i, j in matched.pairs.items():
        yield from _growth(olds[i], news[j])


def _common(members: list[Node], counts: Counter[bytes], kinds: set[str]) -> Counter[_Label]:
    """Count the labels of the members that both versions have."""
    if not kinds:
        return Counter()
    return Counter(
        label
        for node in members
        if not counts[node.text]
        for label in _labels(node)
        if label[0] in kinds
    )


def _labels(node: Node) -> Iterator[_Label]:
    if node.role is Role.COMMENT:
        return
    own = key(node)
    if own is not None:
        yield own
        return
    if node.kind in ("import_from_statement", "future_import_statement"):
        module = node.children[1].code
        for name in node.children[-1].children:
            yield "import", module + b"." + name.squeezed
        return
    if node.parent is None or node.parent.role is Role.SEQUENCE:
        return
    if telling(node):
        yield "statement", node.squeezed
        clue = hint(node)
        if clue is not None and node.role in (Role.COMPOUND, Role.BRANCH):
            yield clue
