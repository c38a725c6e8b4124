"""Whether a patched tree is right, judged on Python's own ast and on lines of Markdown.

The judge shares nothing with the merge that it judges beside others. It compares what the patch
adds, by qualified name, with what the tool added.
"""

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import lru_cache

Fact = tuple[str, str]


class Verdict(StrEnum):
    """What became of one patch at one release."""

    RIGHT = "right"
    REFUSED = "refused"
    WRONG_PLACE = "wrong place"
    DOUBLED = "doubled"
    BROKEN = "does not parse"
    INCOMPLETE = "incomplete"


Pair = tuple[str, bytes, bytes]  # path, before, after


def judge(written: Iterable[Pair], landed: Iterable[Pair]) -> Verdict:
    """Judge a tool's result.

    Args:
        written: The patch's files, without and with it.
        landed: The files that the tool changed, before and after.
    """
    landed = list(landed)
    for path, before, after in landed:
        if path.endswith(".py") and _compiles(before) and not _compiles(after):
            return Verdict.BROKEN
    if any(_doubled(path, before, after) for path, before, after in landed):
        return Verdict.DOUBLED
    wanted, _, homes = _added(written)
    got, held, known = _added(landed)
    left = got - wanted
    for (_name, token), count in left.items():
        # Fine only where the patch's own place is gone at the ref: it was renamed or moved.
        moved = [
            (other, t)
            for (other, t), n in wanted.items()
            if t == token and n >= count and other in homes and other not in known
        ]
        if not moved:
            return Verdict.WRONG_PLACE
    tokens: Counter[str] = Counter()
    for (_name, token), count in got.items():
        tokens[token] += count
    tokens.update(token for _name, token in held & wanted)
    missing = {token for (_name, token) in wanted if not tokens[token]}
    return Verdict.INCOMPLETE if missing else Verdict.RIGHT


def _added(pairs: Iterable[Pair]) -> tuple[Counter[Fact], Counter[Fact], set[str]]:
    """Return what came, what was there before, and the qualified names that were there."""
    added: Counter[Fact] = Counter()
    held: Counter[Fact] = Counter()
    names: set[str] = set()
    for path, before, after in pairs:
        old, new = (_counted(path.endswith(".py"), side) for side in (before, after))
        added += new - old
        held += old
        names |= {name for name, _token in old}
    return added, held, names


@lru_cache(maxsize=512)
def _counted(python: bool, content: bytes) -> Counter[Fact]:
    return Counter(_facts(python, content))


def _facts(python: bool, content: bytes) -> Iterator[Fact]:
    if python:
        tree = _parse(content)
        if tree is not None:
            yield from _python(tree, "")
        return
    heading = ""
    for line in content.decode("utf-8", "replace").splitlines():
        if line.startswith("#"):
            heading = line.strip("# ")
        elif line.strip():
            yield heading, line.strip()


def _python(node: ast.AST, name: str) -> Iterator[Fact]:
    """Yield each name, constant, attribute and keyword with the definition that it stands in."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}.{child.name}" if name else child.name
            yield name, f"def {child.name}"
        elif isinstance(child, ast.Assign | ast.AnnAssign) and isinstance(
            child.value, ast.Dict | ast.List | ast.Tuple | ast.Set | ast.Subscript
        ):
            target = child.targets[0] if isinstance(child, ast.Assign) else child.target
            inner = f"{name}.{ast.unparse(target)}" if name else ast.unparse(target)
        token = _token(child)
        if token:
            yield name, token
        yield from _python(child, inner)


def _token(node: ast.AST) -> str:
    for kind, attribute in (
        (ast.Name, "id"), (ast.Attribute, "attr"), (ast.keyword, "arg"), (ast.arg, "arg"),
        (ast.alias, "name"), (ast.Constant, "value"),
    ):  # fmt: skip
        if isinstance(node, kind):
            return repr(getattr(node, attribute))
    return ""


def _doubled(path: str, before: bytes, after: bytes) -> bool:
    if path.endswith(".py"):
        return bool(_twice(after) - _twice(before))
    rows = [
        Counter(line.split("|")[1].strip() for line in side.splitlines() if line.startswith("|"))
        for side in (before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
    ]
    return any(count > max(1, rows[0][row]) for row, count in rows[1].items() if row.strip("-: "))


@lru_cache(maxsize=512)
def _twice(content: bytes) -> Counter[str]:
    """Count what stands twice in one dictionary, sequence, import list or body."""
    found: Counter[str] = Counter()
    for node in ast.walk(_parse(content) or ast.Module([], [])):
        members: list[ast.AST | None] = []
        if isinstance(node, ast.Dict):
            members = list(node.keys)
        elif isinstance(node, ast.List | ast.Tuple | ast.Set):
            members = list(node.elts)
        elif isinstance(node, ast.ImportFrom):
            members = list(node.names)
        shown = Counter(_token(m) for m in members if m is not None)
        del shown[""]
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
            shown += Counter(
                f"def {m.name}" for m in node.body
                if isinstance(m, ast.ClassDef | ast.FunctionDef) and not m.decorator_list
            )  # fmt: skip
        found.update({text: count - 1 for text, count in shown.items() if count > 1})
    return found


def _parse(content: bytes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except (SyntaxError, ValueError):
        return None


@lru_cache(maxsize=512)
def _compiles(content: bytes) -> bool:
    """Whether the file is Python in full: ``ast.parse`` lets two parameters have one name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content, "judged", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
