"""The state of a machine as a table."""

from rich.markup import escape
from rich.table import Table

from tools.maintain.doctor import Finding


def doctor_table(findings: tuple[Finding, ...]) -> Table:
    """Return what a machine has of what the tools need."""
    table = Table(show_header=False)
    table.add_column("what", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in findings:
        state = "[bold red]lacking[/]" if finding.lacking else "[green]ok[/]"
        advice = f"; {finding.advice}" if finding.lacking else ""
        table.add_row(finding.name, state, escape(finding.found + advice))
    return table
