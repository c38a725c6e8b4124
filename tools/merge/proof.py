"""The proof that a merge did what the patch says, where it says it, and nothing twice."""

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence

from tools.merge.align import align, hint, key, telling
from tools.merge.follow import definition_kind
from tools.merge.model import Conflict, Edit, Site
from tools.merge.syntax import Node, Role, Source, parse

Delta = dict[str, Counter[bytes]]
_Label = tuple[str, bytes]
_NO_STRUCTURE = bytes.maketrans(b"\x01\x02\x03", b"   ")


def parses(data: bytes) -> bool:
    """Return whether the bytes are Python that this interpreter reads."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
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
    bad = not parse(merged).parses and parse(target).parses
    if not bad and not parses(merged):
        bad = all(parses(side) for side in (base, patched, target))
    if not bad:
        return []
    site = Site(path, "", 1)
    return [Conflict("the merged file does not parse", site, site)]


# --- each edit in its own qualified name --------------------------------------------------------


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
    def once(nodes: Sequence[Node]) -> dict[str, Node]:
        counts = Counter(n.name for n in nodes if n.role is Role.DEFINITION)
        return {n.name: n for n in nodes if n.role is Role.DEFINITION and counts[n.name] == 1}

    left, right = once(olds), once(news)
    return [(node, right[name]) for name, node in left.items() if name in right]


def _add_node(found: Delta, node: Node, sign: int) -> None:
    if node.role is Role.DEFINITION and definition_kind(node) == "class":
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
    allowed: dict[tuple[str, _Label], int] = {}
    for container, label, _, now, _ in _growth(base.root, patched.root):
        place = container.qualname, label
        allowed[place] = max(now, allowed.get(place, 0))
    conflicts = []
    for container, label, before, now, node in _growth(target.root, merged.root):
        if before and now > max(1, allowed.get((container.qualname, label), 1)):
            site = Site(path, container.qualname, node.line)
            name = label[1].decode(errors="replace")[:60]
            conflicts.append(Conflict(f"{name!r} would stand there twice", site, site))
    return conflicts


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
    before = Counter(label for node in old.children for label in _labels(node))
    now = Counter(label for node in new.children for label in _labels(node))
    for node in new.children:
        for label in _labels(node):
            if now[label] > before[label]:
                yield new, label, before[label], now[label], node
    matched = align(old.children, new.children, moves=False)
    for i, j in matched.pairs.items():
        yield from _growth(old.children[i], new.children[j])


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
            yield "import", module + b"." + name.code
        return
    if node.parent is None or node.parent.role is Role.SEQUENCE:
        return
    if telling(node):
        yield "statement", node.code
        clue = hint(node)
        if clue is not None and node.role in (Role.COMPOUND, Role.BRANCH):
            yield clue
