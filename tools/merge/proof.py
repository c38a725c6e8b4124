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
    """Return the statements that ``new`` has and ``old`` has not, as a module.

    A module parses when each of its statements does, and most of them are the target's own. Of a
    class that both have only the changed members are taken.
    """
    known = {node.text for node in old.root.children}
    classes = {node.name: node for node in old.root.children if _is_class(node)}
    out: list[bytes] = []
    for node in new.root.children:
        if node.text in known:
            continue
        before = classes.get(node.name) if _is_class(node) else None
        if before is None:
            out.append(node.text)
            continue
        members = {child.text for child in before.named("body").children}
        out += [part.text for part in node.children if part.kind == "decorators"]
        out.append(node.named("header").text + b" pass")
        for child in node.named("body").children:
            if child.text not in members and new.starts_line(child.start):
                out.append(b"class _:\n" + new.indent(child.start) + child.text)
            elif child.text not in members:
                return new.data
    return b"\n".join(out) + b"\n"


def _is_class(node: Node) -> bool:
    return node.role is Role.DEFINITION and is_class(node)


# --- each edit in its own qualified name --------------------------------------------------------


@lru_cache(maxsize=16)
def delta(old: Source, new: Source) -> Delta:
    """Return, by place, how many of each token ``new`` has more (or fewer) than ``old``.

    A place is a qualified name and the headers of the blocks in it, each behind a NUL. Commas are
    left out: how many there are depends on the layout of a list.
    """
    found: Delta = {}
    _count(old.root.children, new.root.children, found)
    return {name: counts for name, counts in found.items() if counts}


def coarse(fine: Delta) -> Delta:
    """Return the same by qualified name alone."""
    found: Delta = {}
    for place, counts in fine.items():
        total = found.setdefault(place.partition("\0")[0], Counter())
        for token, count in counts.items():
            total[token] += count
    return {
        name: kept
        for name, counts in found.items()
        if (kept := Counter({token: count for token, count in counts.items() if count}))
    }


def _count(old: Sequence[Node], new: Sequence[Node], found: Delta) -> None:
    mine = Counter((node.text, node.tail) for node in old)
    theirs = Counter((node.text, node.tail) for node in new)
    olds = list(_left_over(old, mine - theirs))
    news = list(_left_over(new, theirs - mine))
    pairs = _twins(olds, news)
    for a, b in pairs:
        if a.role is not Role.DEFINITION:
            _count_pieces(list(_pieces(a)), list(_pieces(b)), a.qualname, found)
            continue
        for node, sign in ((a, -1), (b, 1)):
            for part in node.children:
                if part.kind != "body":
                    _add(found, node.qualname, part.norm, sign)
        _count(a.named("body").children, b.named("body").children, found)
    paired = {id(node) for pair in pairs for node in pair}
    for nodes, sign in ((olds, -1), (news, 1)):
        for node in nodes:
            if id(node) not in paired:
                _add_node(found, node, "", sign)


def _left_over(nodes: Sequence[Node], extra: Counter[tuple[bytes, bytes]]) -> Iterator[Node]:
    extra = extra.copy()
    for node in nodes:
        if extra[node.text, node.tail] > 0:
            extra[node.text, node.tail] -= 1
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


def _add_node(found: Delta, node: Node, block: str, sign: int) -> None:
    match node.role:
        case Role.COMPOUND:
            for branch in node.children:
                _add_node(found, branch, block, sign)
        case Role.DEFINITION | Role.BRANCH:
            inner = ""
            for part in node.children:
                if part.role is not Role.BODY:
                    _add(found, node.qualname + block, part.norm, sign)
                    inner = f"{block}\0{part.squeezed.decode(errors='replace')}"
                    continue
                for child in part.children:
                    _add_node(found, child, inner if node.role is Role.BRANCH else "", sign)
        case _:
            _add(found, node.qualname + block, node.norm, sign)


def _add(found: Delta, name: str, code: bytes, sign: int) -> None:
    counts = found.setdefault(name, Counter())
    for token in code.translate(_NO_STRUCTURE).split(b" "):
        if token not in (b",", b""):
            counts[token] += sign
            if not counts[token]:
                del counts[token]


def other_block(path: str, base: Source, written: Delta, landed: Delta) -> list[Conflict]:
    """Name a block that got what the patch wrote in another one of the same function.

    A block with a header that the base does not have is the written one, changed by upstream.
    """
    known = base.root.squeezed.decode(errors="replace")
    for place in landed:
        name, _, block = place.partition("\0")
        if block and place not in written and block.rpartition("\0")[2] in known:
            site = Site(path, name, 1)
            return [Conflict("landed in another block than it was written in", site, site)]
    return []


def misplaced(path: str, written: Delta, landed: Delta, edits: Sequence[Edit]) -> list[Conflict]:
    """Name each qualified name that got, or lost, what the patch did not write there.

    Args:
        path: The file.
        written: What the patch changed, by qualified name.
        landed: What the merge changed, by qualified name.
        edits: The edits; those that followed a rename say which name stands for which.
    """
    renamed = {
        e.landed.qualname: e.written.qualname
        for e in edits
        if e.landed.path == path and not e.present
    }
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
        for label in _labels(node, kinds)
        if label[0] in kinds
    )


def _labels(node: Node, kinds: set[str] | None = None) -> Iterator[_Label]:
    """Yield what must not stand twice beside itself, all or only of some kinds."""
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
    if node.parent is None or node.parent.role is Role.SEQUENCE or not telling(node):
        return
    yield "statement", node.squeezed
    if node.role in (Role.COMPOUND, Role.BRANCH) and (kinds is None or node.kind in kinds):
        clue = hint(node)
        if clue is not None:
            yield clue
