"""Edits of Python source for property tests: what patches and upstreams do to a file.

Positions come from the interpreter's own parser, so that the generator shares nothing with the
merge that it tests.
"""

import ast
from collections.abc import Callable, Iterator

# Draws a number from 0 to n - 1.
Pick = Callable[[int], int]
_Span = tuple[int, int]
_Change = tuple[_Span, str]


class _Text:
    """A parsed source with byte-exact positions (the sources are ASCII)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.starts = [0]
        for line in text.split("\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def span(self, node: ast.expr | ast.stmt | ast.keyword | ast.arg) -> _Span:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def first_line(self, node: ast.stmt) -> int:
        decorators = getattr(node, "decorator_list", [])
        return min([node.lineno, *(d.lineno for d in decorators)]) - 1

    def whole_lines(self, node: ast.stmt) -> _Span | None:
        """Return the span of the statement's lines, or None where it shares one."""
        assert node.end_lineno is not None
        start = self.starts[self.first_line(node)]
        end = min(self.starts[node.end_lineno], len(self.text))
        before = self.text[start : self.span(node)[0]]
        after = self.text[self.span(node)[1] : end].strip()
        if (before.strip() and not before.lstrip().startswith("@")) or after.startswith(";"):
            return None
        return start, end

    def indent(self, at: int) -> str:
        line = self.text[self.text.rfind("\n", 0, at) + 1 :]
        return line[: len(line) - len(line.lstrip(" "))]


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def _sequences(tree: ast.AST) -> Iterator[list[ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Set | ast.Tuple) and node.elts:
            yield node.elts
        elif isinstance(node, ast.Call) and node.args:
            yield node.args


def _statements(text: _Text) -> Iterator[tuple[list[ast.stmt], int, _Span]]:
    for body in _bodies(text.tree):
        for k, statement in enumerate(body):
            span = text.whole_lines(statement)
            if span is not None:
                yield body, k, span


def _insert_statement(text: _Text, pick: Pick, name: str) -> _Change | None:
    places = list(_statements(text))
    if not places:
        return None
    _, _, (start, end) = places[pick(len(places))]
    indent = text.indent(start)
    kinds = [
        f"{indent}{name} = call_{name}(1)\n",
        f"{indent}if {name}:\n{indent}    {name}()\n",
        f"{indent}def {name}(self):\n{indent}    return {name!r}\n",
        f"{indent}# {name}\n",
    ]
    new = kinds[pick(len(kinds))]
    if pick(2):
        return (start, start), new
    if not text.text[:end].endswith("\n"):
        new = "\n" + new
    return (end, end), new


def _delete_statement(text: _Text, pick: Pick, name: str) -> _Change | None:
    places = [(span) for body, _, span in _statements(text) if len(body) > 1]
    return (places[pick(len(places))], "") if places else None


def _wrap_statement(text: _Text, pick: Pick, name: str) -> _Change | None:
    places = [
        (body, k, span)
        for body, k, span in _statements(text)
        if not isinstance(body[k], ast.ImportFrom) and '"""' not in text.text[span[0] : span[1]]
    ]
    if not places:
        return None
    body, k, (start, end) = places[pick(len(places))]
    more = text.whole_lines(body[k + 1]) if k + 1 < len(body) and pick(2) else None
    if more is not None and '"""' not in text.text[more[0] : more[1]]:
        end = more[1]
    indent = text.indent(start)
    lines = text.text[start:end].split("\n")
    inner = "\n".join("    " + line if line.strip() else line for line in lines)
    return (start, end), f"{indent}if {name}:\n{inner}"


def _swap_statements(text: _Text, pick: Pick, name: str) -> _Change | None:
    pairs = []
    for body, k, first in _statements(text):
        second = text.whole_lines(body[k + 1]) if k + 1 < len(body) else None
        if second is not None and text.text[: second[1]].endswith("\n"):
            pairs.append((first, second))
    if not pairs:
        return None
    (a0, a1), (b0, b1) = pairs[pick(len(pairs))]
    source = text.text
    return (a0, b1), source[b0:b1] + source[a1:b0] + source[a0:a1]


def _insert_member(text: _Text, pick: Pick, name: str) -> _Change | None:
    places = list(_sequences(text.tree))
    if not places:
        return None
    members = places[pick(len(places))]
    start, _ = text.span(members[pick(len(members))])
    if isinstance(members[0], ast.Starred):
        return None
    if pick(2) and text.text[:start].rstrip(" ").endswith("\n"):
        return (start, start), f'"{name}",\n{text.indent(start)}'
    return (start, start), f'"{name}", '


def _delete_member(text: _Text, pick: Pick, name: str) -> _Change | None:
    places = [members for members in _sequences(text.tree) if len(members) > 2]
    if not places:
        return None
    members = places[pick(len(places))]
    k = pick(len(members) - 1)
    return (text.span(members[k])[0], text.span(members[k + 1])[0]), ""


def _insert_entry(text: _Text, pick: Pick, name: str) -> _Change | None:
    keys = [
        key
        for node in ast.walk(text.tree)
        if isinstance(node, ast.Dict)
        for key in node.keys
        if key is not None
    ]
    if not keys:
        return None
    start, _ = text.span(keys[pick(len(keys))])
    if text.text[:start].rstrip(" ").endswith("\n"):
        return (start, start), f'"{name}": ("{name}", 1),\n{text.indent(start)}'
    return (start, start), f'"{name}": 1, '


def _keyword(text: _Text, pick: Pick, name: str) -> _Change | None:
    calls = [node for node in ast.walk(text.tree) if isinstance(node, ast.Call) and node.keywords]
    if not calls:
        return None
    keywords = calls[pick(len(calls))].keywords
    start, _ = text.span(keywords[0])
    return (start, start), f"{name}=1, "


def _parameter(text: _Text, pick: Pick, name: str) -> _Change | None:
    functions = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.FunctionDef) and node.args.args and not node.args.posonlyargs
    ]
    if not functions:
        return None
    function = functions[pick(len(functions))]
    start, _ = text.span(function.args.args[0])
    if len(function.args.args) > 1 and not pick(2):
        start, _ = text.span(function.args.args[1])
    return (start, start), f"{name}, "


def _constant(text: _Text, pick: Pick, name: str) -> _Change | None:
    inside = {
        id(part)
        for node in ast.walk(text.tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
    }
    found = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | str)
        and node.lineno == node.end_lineno
        and id(node) not in inside
    ]
    if not found:
        return None
    node = found[pick(len(found))]
    return text.span(node), f'"{name}"'


def _rename(text: _Text, pick: Pick, name: str) -> _Change | None:
    found = [
        node for node in ast.walk(text.tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    if not found:
        return None
    node = found[pick(len(found))]
    start = text.text.index(" ", text.span(node)[0]) + 1
    return (start, start + len(node.name)), name.capitalize()


def _layout(text: _Text, pick: Pick, name: str) -> _Change | None:
    found = [
        node
        for node in ast.walk(text.tree)
        if isinstance(node, ast.List | ast.Dict) and ast.unparse(node) != "[]"
    ]
    found = [node for node in found if "#" not in text.text[slice(*text.span(node))]]
    if not found:
        return None
    node = found[pick(len(found))]
    start, end = text.span(node)
    if "\n" in text.text[start:end]:
        return (start, end), ast.unparse(node)
    inner = text.text[start + 1 : end - 1].strip().removesuffix(",")
    indent = text.indent(start)
    return (start, end), f"{text.text[start]}\n{indent}    {inner},\n{indent}{text.text[end - 1]}"


PATCH_EDITS = (
    _insert_statement,
    _insert_member,
    _insert_entry,
    _keyword,
    _parameter,
    _constant,
    _delete_statement,
    _delete_member,
)
UPSTREAM_EDITS = (*PATCH_EDITS, _wrap_statement, _swap_statements, _rename, _layout)


def edited(source: str, pick: Pick, *, count: int, prefix: str, upstream: bool) -> str:
    """Return ``source`` with up to ``count`` edits; every result parses.

    Args:
        source: Python, ASCII.
        pick: Draws the choices.
        count: How many edits to try.
        prefix: Starts each new name, so that two sides do not meet by chance.
        upstream: Whether to use also what upstreams do and patches hardly: moving, renaming,
            wrapping and laying out again.
    """
    kinds = UPSTREAM_EDITS if upstream else PATCH_EDITS
    for k in range(count):
        text = _Text(source)
        change = kinds[pick(len(kinds))](text, pick, f"{prefix}{k}")
        if change is None:
            continue
        (start, end), new = change
        result = text.text[:start] + new + text.text[end:]
        try:
            compile(result, "<edited>", "exec", dont_inherit=True)
        except SyntaxError:
            continue
        source = result
    return source


def fragments(source: str, limit: int = 60) -> list[str]:
    """Cut a module into runs of top-level statements of up to about ``limit`` lines."""
    if not source.isascii():
        return []
    lines = source.split("\n")
    found: list[str] = []
    start = 0
    for node in ast.parse(source).body:
        assert node.end_lineno is not None
        if node.end_lineno - start > limit and node.end_lineno - start < 3 * limit:
            found.append("\n".join(lines[start : node.end_lineno]) + "\n")
        if node.end_lineno - start > limit:
            start = node.end_lineno
    return [text for text in found if _compiles(text)]


def _compiles(text: str) -> bool:
    try:
        compile(text, "<fragment>", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
