"""The matrix as a Rich table, as data, and as a self-contained HTML page."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tools.carry import Outcome
from tools.maintain import Cell, Matrix, Summary
from tools.report.console import STYLES
from tools.report.data import outcome_data

GLYPHS = {
    Outcome.CLEAN: "●",
    Outcome.STRUCTURAL: "◆",
    Outcome.UPSTREAMED: "↑",
    Outcome.NOT_NEEDED: "·",
    Outcome.CONFLICT: "✗",
}
_LEGEND = "  ".join(f"{glyph} {outcome}" for outcome, glyph in GLYPHS.items())


def matrix_table(matrix: Matrix) -> Group:
    """Return the matrix and the summary below it, for a terminal.

    The releases run downwards, since there are more of them than patches.
    """
    table = _narrow("patches by releases", caption=_LEGEND)
    table.add_column("ref", min_width=max(map(len, matrix.refs), default=0))
    for patch in matrix.patches:
        # 0001 as 01: twenty patches fit a terminal of 80 columns.
        table.add_column(patch[2:4], justify="center", min_width=2)
    for column, ref in enumerate(matrix.refs):
        cells = [matrix.cells[patch][column] for patch in matrix.patches]
        table.add_row(ref, *[_glyph(cell) for cell in cells])
    return Group(table, _summary_table(matrix.summaries()), *_failures(matrix))


def _narrow(title: str, caption: str | None = None) -> Table:
    return Table(
        title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )


def _glyph(cell: Cell) -> Text:
    outcome = cell.outcome.outcome
    style = "yellow" if cell.expected else STYLES[outcome]
    return Text(GLYPHS[outcome], style=style)


def _summary_table(summaries: tuple[Summary, ...]) -> Table:
    table = _narrow("where each patch is carried")
    table.add_column("patch", no_wrap=True)
    for name in ("first", "last"):
        table.add_column(name, min_width=8)
    for glyph in GLYPHS.values():
        table.add_column(glyph, justify="right", min_width=2)
    for s in summaries:
        counts = (s.text, s.syntax, s.upstreamed, s.not_needed, s.conflicts)
        table.add_row(s.patch, s.first or "-", s.last or "-", *map(str, counts))
    return table


def _failures(matrix: Matrix) -> list[Text]:
    lines = []
    for cell in matrix.failures:
        if cell.outcome.outcome is Outcome.CONFLICT:
            why = "; ".join(str(conflict) for conflict in cell.outcome.conflicts)
        else:
            why = f"is {cell.outcome.outcome}, but patches/expected.toml records a conflict"
        lines.append(Text(f"{cell.ref} {cell.outcome.name}: {why}", style="red"))
    return lines


def matrix_data(matrix: Matrix) -> dict[str, Any]:
    """Return the matrix for machines."""
    return {
        "refs": [
            {"ref": one.upstream.ref.name, "source": one.upstream.source, "commit": one.commit,
             "tree": one.tree}
            for one in matrix.carried
        ],
        "patches": {
            patch: [
                outcome_data(cell.outcome) | {"ref": cell.ref, "expected": cell.expected}
                for cell in matrix.cells[patch]
            ]
            for patch in matrix.patches
        },
        "summary": [vars(summary) for summary in matrix.summaries()],
        "failures": [f"{cell.ref} {cell.outcome.name}" for cell in matrix.failures],
    }  # fmt: skip


def matrix_page(matrix: Matrix) -> str:
    """Return the matrix as one HTML page that needs nothing beside it."""
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415 (only a page needs it)

    environment = Environment(
        loader=PackageLoader("tools.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("matrix.html").render(
        matrix=matrix, glyphs=GLYPHS, summaries=matrix.summaries()
    )
