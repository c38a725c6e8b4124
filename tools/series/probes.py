"""Probes: questions about an upstream tree that decide whether a patch or overlay file is needed.

Content decides and never a version table, so that a probe also works on commits and nightlies:

* ``exists PATH``: the tree has the file or directory,
* ``defines FILE::Class.method(param)``: the file defines that name (and the function takes the
  parameter); also module and class level assignments,
* ``imports FILE::module.name``: the file imports the name (or, as ``module``, the module); a
  relative import counts as what it stands for,
* ``refers FILE::Class.method -> name``: the definition's source holds that name, attribute,
  keyword or (in quotes) that string; an empty definition, ``FILE:: -> name``, is the whole file,
* ``admits NAME<VERSION``: some version that upstream's requirement files admit of a distribution
  is such a one (any specifier).

A probe may be negated with a leading ``not``. A file that is absent defines and holds nothing, and
so does one in which the names do not occur. Any other file that does not parse as Python is an
error, since neither answer would be right.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tools.errors import BadInput
from tools.imports import imported_module
from tools.series.requirements import admitted
from tools.tree import Tree


class Kind(StrEnum):
    """What a probe asks."""

    EXISTS = "exists"
    DEFINES = "defines"
    IMPORTS = "imports"
    REFERS = "refers"
    ADMITS = "admits"


@dataclass(frozen=True)
class Probe:
    """One question; ``text`` is how it was written."""

    text: str
    negated: bool
    kind: Kind
    path: str = ""
    name: str = ""
    detail: str = ""

    def holds(self, tree: Tree) -> bool:
        """Return the answer for ``tree``.

        Raises:
            BadInput: The file asked about is not valid Python.
        """
        return self._asks(tree) != self.negated

    def _asks(self, tree: Tree) -> bool:
        if self.kind is Kind.EXISTS:
            return tree.read(self.path) is not None or any(
                True for _ in tree.paths(self.path.rstrip("/") + "/")
            )
        if self.kind is Kind.ADMITS:
            asked_for = admitted(tree, self.name).get(self.name, SpecifierSet())
            return not (asked_for & SpecifierSet(self.detail)).is_unsatisfiable()
        source = tree.read(self.path)
        if source is None or not self._may_hold(source):
            return False
        asked = (hashlib.sha256(source).digest(), self)
        if asked not in _answers:
            if len(_answers) >= _MOST_ANSWERS:
                _answers.clear()
            _answers[asked] = self._asks_module(_parse(source, self.path))
        return _answers[asked]

    def _may_hold(self, source: bytes) -> bool:
        """Whether every name asked for occurs at all; parsing a file takes far longer.

        A quoted string does not count: it may be written in parts or with escapes. Neither does a
        name in a file with relative imports, which do not write the packages that they are from.
        """
        if self.kind is Kind.IMPORTS and _RELATIVE.search(source):
            return True
        detail = "" if self.detail.startswith('"') else self.detail
        words = f"{self.name}.{detail}".rstrip(".").split(".")
        return all(word.encode() in source for word in words)

    def _asks_module(self, module: "_Module") -> bool:
        if self.kind is Kind.IMPORTS:
            return self.name in module.imports
        found = module.definitions.get(self.name, ())
        if self.kind is Kind.DEFINES:
            return bool(found) and (
                not self.detail or any(self.detail in _parameters(node) for node in found)
            )
        nodes: tuple[ast.AST, ...] = found if self.name else (module.tree,)
        return any(self.detail in _names(node) for node in nodes)


_RELATIVE = re.compile(rb"\bfrom[\s\\]*\.")
_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_PATH = r"[^\s:]+"
_FORMS: dict[Kind, re.Pattern[str]] = {
    Kind.EXISTS: re.compile(rf"(?P<path>{_PATH})"),
    Kind.DEFINES: re.compile(rf"(?P<path>{_PATH})::(?P<name>{_NAME})(?:\((?P<detail>\w+)\))?"),
    Kind.IMPORTS: re.compile(rf"(?P<path>{_PATH})::(?P<name>{_NAME})"),
    Kind.REFERS: re.compile(
        rf"(?P<path>{_PATH})::(?P<name>(?:{_NAME})?)\s*->\s*(?P<detail>{_NAME}|\"[^\"]+\")"
    ),
    Kind.ADMITS: re.compile(r"(?P<name>[a-z][a-z0-9-]*)(?P<detail>[<>=!~][<>=!~.,*\w+]*)"),
}


def parse_probe(text: str) -> Probe:
    """Read one probe.

    Raises:
        BadInput: The text is not a probe; the message shows the form that was expected.
    """
    words = text.strip()
    negated = words.startswith("not ")
    kind_name, _, rest = words.removeprefix("not ").strip().partition(" ")
    try:
        kind = Kind(kind_name)
    except ValueError:
        raise BadInput(
            f"unknown probe {text.strip()!r}", f"a probe starts with {', '.join(Kind)}"
        ) from None
    match = _FORMS[kind].fullmatch(rest.strip())
    groups = {key: value or "" for key, value in match.groupdict().items()} if match else {}
    path = groups.get("path", "")
    valid = match and ".." not in path.split("/") and not path.startswith("/")
    if not valid or (kind is Kind.ADMITS and not _is_specifier(groups["detail"])):
        raise BadInput(
            f"cannot read the probe {text.strip()!r}",
            "see tools/series/probes.py for the five forms",
        )
    return Probe(text.strip(), negated, kind, **groups)


def _is_specifier(text: str) -> bool:
    try:
        return bool(SpecifierSet(text))
    except InvalidSpecifier:
        return False


# Most files are the same in many releases: answers are kept, and few parsed files, since one of
# these takes a hundred times its size.
_MOST_ANSWERS = 1 << 16
_answers: dict[tuple[bytes, Probe], bool] = {}


@dataclass(frozen=True)
class _Module:
    tree: ast.Module
    path: str

    @cached_property
    def definitions(self) -> dict[str, tuple[ast.AST, ...]]:
        found: dict[str, list[ast.AST]] = {}
        for name, node in _definitions(self.tree, ""):
            found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def imports(self) -> frozenset[str]:
        return frozenset(_imports(self.tree, self.path))


@lru_cache(maxsize=8)
def _parse(source: bytes, path: str) -> _Module:
    try:
        return _Module(ast.parse(source), path)
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"{path} is not valid Python: {error}", "check the upstream ref") from error


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _definitions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield prefix + target.id, child
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            # Conditions and try blocks do not change what a definition is called.
            yield from _definitions(child, prefix)


def _imports(tree: ast.Module, path: str) -> Iterator[str]:
    package = ".".join(path.split("/")[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = imported_module(node, package)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _parameters(node: ast.AST) -> frozenset[str]:
    if isinstance(node, ast.ClassDef):
        inits = [n for name, n in _definitions(node, "") if name == "__init__"]
        return frozenset().union(*map(_parameters, inits)) if inits else frozenset()
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return frozenset()
    args = node.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return frozenset(arg.arg for arg in every if arg)


def _names(node: ast.AST) -> frozenset[str]:
    found: set[str] = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            found.add(child.id)
        elif isinstance(child, ast.Attribute):
            found.add(child.attr)
            with_value = ast.unparse(child)
            if re.fullmatch(_NAME, with_value):
                found.add(with_value)
        elif isinstance(child, ast.keyword | ast.arg) and child.arg:
            found.add(child.arg)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            found.add(f'"{child.value}"')
        elif isinstance(child, ast.alias):
            found.add(child.name)
    return frozenset(found)
