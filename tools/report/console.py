"""Outcomes as Rich tables for a terminal."""

from rich.markup import escape
from rich.table import Table

from tools.carry import Carried, Outcome, PatchOutcome
from tools.merge import Edit
from tools.upstream import ReleaseRow

STYLES = {
    Outcome.CLEAN: "green",
    Outcome.STRUCTURAL: "cyan",
    Outcome.UPSTREAMED: "blue",
    Outcome.NOT_NEEDED: "dim",
    Outcome.CONFLICT: "bold red",
}


def carry_table(carried: Carried) -> Table:
    """Return the table of one carry: patch, outcome, and where it landed or why it did not."""
    upstream = carried.upstream
    table = Table(title=f"{upstream.ref.name} ({upstream.source}, {upstream.kind})")
    table.add_column("patch", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("where", overflow="fold")
    for outcome in carried.outcomes:
        style = STYLES[outcome.outcome]
        table.add_row(
            escape(outcome.file.removesuffix(".patch")),
            f"[{style}]{outcome.outcome}[/]",
            escape(_where(outcome)),
        )
    for row in carried.overlay:
        state = "[green]laid[/]" if row.laid else "[dim]not-needed[/]"
        table.add_row("overlay", state, escape(row.file.target if row.laid else row.why))
    return table


def _where(outcome: PatchOutcome) -> str:
    if outcome.outcome is Outcome.CONFLICT:
        return "\n".join(
            f"{c.written.path}:{c.written.line}: {c.reason}" for c in outcome.conflicts
        )
    if outcome.outcome in (Outcome.NOT_NEEDED, Outcome.UPSTREAMED):
        return outcome.rule
    return "\n".join(dict.fromkeys(_landed(edit) for edit in outcome.edits if not edit.present))


def _landed(edit: Edit) -> str:
    place = (
        f"{edit.landed.path}::{edit.landed.qualname}" if edit.landed.qualname else edit.landed.path
    )
    written = (edit.written.path, edit.written.qualname)
    if written == (edit.landed.path, edit.landed.qualname):
        return place
    return f"{place} (written in {edit.written.path}::{edit.written.qualname})"


def tags_table(rows: tuple[ReleaseRow, ...]) -> Table:
    """Return upstream's releases, newest last, and what the store and the index have of each."""
    table = Table(title="upstream releases", pad_edge=False)
    for name in ("release", "uploaded", "sdist", "wheel", "in the store"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        uploaded = row.uploaded.date().isoformat() if row.uploaded else "-"
        marks = ("yes" if held else "-" for held in (row.sdist, row.wheel, row.in_store))
        table.add_row(row.tag, uploaded, *marks)
    return table
