"""The matrix as a Rich table, as data, and as a self-contained HTML page."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tools.carry import Outcome
from tools.contract import ContractReport
from tools.maintain import Cell, Matrix, Summary
from tools.maintain.matrix import Break
from tools.report.console import STYLES
from tools.report.contracts import SEVERITY_STYLES, contract_counts, finding_line
from tools.report.data import outcome_data

GLYPHS = {
    Outcome.CLEAN: "●",
    Outcome.STRUCTURAL: "◆",
    Outcome.UPSTREAMED: "↑",
    Outcome.NOT_NEEDED: "·",
    Outcome.CONFLICT: "✗",
}
_LEGEND = "  ".join(f"{glyph} {outcome}" for outcome, glyph in GLYPHS.items())
_CONTRACT_LEGEND = "contract: e errors  w warnings  n notes  ? not all checked"


def matrix_table(matrix: Matrix) -> Group:
    """Return the matrix and the summary below it, for a terminal.

    The releases run downwards, since there are more of them than patches.
    """
    table = _narrow("patches by releases", caption=f"{_LEGEND}\n{_CONTRACT_LEGEND}", gap=0)
    table.add_column("ref", min_width=max(map(len, matrix.refs), default=0))
    for patch in matrix.patches:
        # 0031 as 3 above 1: thirty patches fit a terminal of 80 columns.
        table.add_column("\n".join(patch[2:4]), min_width=1)
    table.add_column("contract", no_wrap=True)
    for column, ref in enumerate(matrix.refs):
        cells = [matrix.cells[patch][column] for patch in matrix.patches]
        table.add_row(ref, *map(_glyph, cells), _counts(matrix.contracts[column]))
    return Group(table, _summary_table(matrix.summaries()), *_failures(matrix), *_breaks(matrix))


def _narrow(title: str, caption: str | None = None, gap: int = 1) -> Table:
    return Table(
        title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0)
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


def _counts(report: ContractReport | None) -> Text:
    broken = report is not None and report.errors
    return Text(contract_counts(report), style="bold red" if broken else "")


def _breaks(matrix: Matrix) -> list[Text]:
    found = [(f"{_span(one)}: ", one.finding) for one in matrix.breaks]
    found += [("at no ref needed: ", finding) for finding in matrix.unused]
    return [Text(where + finding_line(f), style=SEVERITY_STYLES[f.severity]) for where, f in found]


def _span(one: Break) -> str:
    if len(one.refs) < 3:
        return " and ".join(one.refs)
    return f"{one.refs[0]} to {one.refs[-1]} ({len(one.refs)} refs)"


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
        "contracts": {
            ref: report.to_dict() if report else None
            for ref, report in zip(matrix.refs, matrix.contracts, strict=True)
        },
        "contract_errors": len(matrix.contract_errors),
        "unused_ignores": [finding.to_dict() for finding in matrix.unused],
    }  # fmt: skip


def matrix_page(matrix: Matrix) -> str:
    """Return the matrix as one HTML page that needs nothing beside it."""
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415 (only a page needs it)

    environment = Environment(
        loader=PackageLoader("tools.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("matrix.html").render(
        matrix=matrix,
        glyphs=GLYPHS,
        summaries=matrix.summaries(),
        counts=[contract_counts(report) for report in matrix.contracts],
        breaks=[(_span(one), one.finding) for one in matrix.breaks],
    )
