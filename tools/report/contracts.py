"""Contract findings as a table, a line and counts."""

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tools.contract import ContractReport, Finding, Severity

SEVERITY_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def contract_table(ref: str, report: ContractReport) -> Table | Text:
    """Return the findings of one tree, and what could not be checked; a line where none is."""
    title = f"{ref}: {len(report.findings)} findings in {len(report.modules)} modules"
    if not report.findings and not report.unchecked:
        return Text(title)
    table = Table(title=title)
    for name in ("code", "severity", "where"):
        table.add_column(name, no_wrap=name != "where", overflow="fold")
    table.add_column("what", overflow="fold", ratio=1)
    table.add_column("since", no_wrap=True)
    for finding in report.findings:
        style = SEVERITY_STYLES[finding.severity]
        table.add_row(
            finding.code.code,
            f"[{style}]{finding.severity.value}[/]",
            escape(f"{finding.path}:{finding.line}"),
            escape(finding.message),
            finding.since or "-",
        )
    for line in report.unchecked:
        table.add_row("-", "[yellow]unchecked[/]", "", escape(line), "-")
    return table


def finding_line(finding: Finding) -> str:
    """Return a finding as one line: its code, severity, place and message."""
    place = f"{finding.path}:{finding.line}"
    return f"{finding.code.code} {finding.severity.value} {place} {finding.message}"


def contract_counts(report: ContractReport | None) -> str:
    """Return how many findings a report has: ``ok``, or such as ``1e 2w`` by severity.

    ``-`` stands for a tree that was not checked, or has nothing to check.
    """
    if report is None or not report.modules:
        return "-"
    found = [finding.severity for finding in report.findings]
    counts = [f"{found.count(s)}{s.value[0]}" for s in Severity if s in found]
    return " ".join(counts + ["?"] * bool(report.unchecked)) or "ok"
