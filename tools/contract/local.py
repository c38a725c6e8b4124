"""The names a function binds, and what it returns, by a walk over its own statements."""

import ast
from dataclasses import dataclass


@dataclass(frozen=True)
class Local:
    """One binding of a local name.

    Attributes:
        node: The expression the value is taken from.
        how: "value" for the value itself, "index" for a part of it, "item" for what a loop yields.
        index: Which part, -1 for all of it.
        annotation: What the source promises about it.
    """

    node: ast.expr
    how: str
    index: int = -1
    annotation: ast.expr | None = None


def bindings(body: list[ast.stmt]) -> dict[str, list[Local]]:
    """Return every binding of every local name, nested functions left out."""
    table: dict[str, list[Local]] = {}
    _collect(body, table)
    return table


def returns(body: list[ast.stmt]) -> list[ast.expr]:
    """Return the expressions that a function returns, those of nested functions left out."""
    found: list[ast.expr] = []
    for node in body:
        if isinstance(node, ast.Return) and node.value is not None:
            found.append(node.value)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                found += returns(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                found += returns(handler.body)
    return found


def targets(target: ast.expr, value: ast.expr, how: str) -> list[tuple[str, Local]]:
    """Return the names that an assignment or loop target binds."""
    if isinstance(target, ast.Name):
        return [(target.id, Local(value, how, -1))]
    found: list[tuple[str, Local]] = []
    if isinstance(target, ast.Tuple | ast.List):
        for index, part in enumerate(target.elts):
            if isinstance(part, ast.Name):
                whole = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
                if how == "value" and isinstance(value, ast.Tuple) and whole:
                    found.append((part.id, Local(value.elts[index], "value")))
                    continue
                kind = "item" if how == "item" else "index"
                found.append((part.id, Local(value, kind, index)))
            else:
                found += [
                    (name, Local(ast.Constant(None), "value"))
                    for name, _ in targets(part, value, how)
                ]
    elif isinstance(target, ast.Starred):
        found += [
            (name, Local(ast.Constant(None), "value"))
            for name, _ in targets(target.value, value, how)
        ]
    return found


def _collect(  # noqa: PLR0912 - one case for each kind of statement
    body: list[ast.stmt], table: dict[str, list[Local]]
) -> None:
    unknown = Local(ast.Constant(None), "value")

    def add(found: list[tuple[str, Local]]) -> None:
        for name, local in found:
            table.setdefault(name, []).append(local)

    for node in body:
        match node:
            case ast.Assign():
                for target in node.targets:
                    add(targets(target, node.value, "value"))
            case ast.AnnAssign() if isinstance(node.target, ast.Name):
                if node.value is not None:
                    local = Local(node.value, "value", annotation=node.annotation)
                    add([(node.target.id, local)])
            case ast.AugAssign() if isinstance(node.target, ast.Name):
                add([(node.target.id, unknown), (node.target.id, unknown)])
            case ast.For() | ast.AsyncFor():
                add(targets(node.target, node.iter, "item"))
                _collect(node.body + node.orelse, table)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    if item.optional_vars is not None:
                        add(
                            [
                                (name, unknown)
                                for name, _ in targets(
                                    item.optional_vars, item.context_expr, "value"
                                )
                            ]
                        )
                _collect(node.body, table)
            case ast.If() | ast.While():
                _collect(node.body + node.orelse, table)
            case ast.Try() | ast.TryStar():
                _collect(node.body + node.orelse + node.finalbody, table)
                for handler in node.handlers:
                    _collect(handler.body, table)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                add([(node.name, unknown)])
            case ast.Import() | ast.ImportFrom():
                pass
            case ast.Match():
                for case in node.cases:
                    _collect(case.body, table)
            case _:
                pass
