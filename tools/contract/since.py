"""Since which release a finding is there, by halving over an ordered list of releases."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tools.contract.check import check
from tools.contract.findings import ContractReport, Finding
from tools.errors import BadInput
from tools.tree import Tree

Provider = tuple[str, Callable[[], Tree]]


def bisect_since(
    report: ContractReport,
    releases: Sequence[Provider],
    *,
    modules: Sequence[str],
) -> ContractReport:
    """Date the findings of a report.

    A release in which the client's modules do not exist has no finding. The search supposes that a
    finding, once there, stayed until the release of the report; one that came, went and came back
    may be dated to an earlier run. Findings are matched without their lines.

    Args:
        report: What the check found at the newest release.
        releases: Pairs of a ref and a function that gives its tree, oldest first, the release of
            the report last.
        modules: The patterns that the report was made with.

    Returns:
        The report with ``since`` filled for the findings that rules on one tree alone gave;
        comparisons with a baseline and look-ups in dependencies are not repeated and stay undated.
    """
    seen: dict[int, frozenset[tuple[str, str, str]]] = {
        len(releases) - 1: frozenset(finding.key for finding in report.findings)
    }

    def keys(position: int) -> frozenset[tuple[str, str, str]]:
        if position not in seen:
            tree = releases[position][1]()
            try:
                found = check(tree, modules=modules).findings
            except BadInput:  # The release has none of the modules.
                found = ()
            seen[position] = frozenset(finding.key for finding in found)
        return seen[position]

    def first(finding: Finding) -> str | None:
        low, high = 0, len(releases) - 1
        while low < high:
            middle = (low + high) // 2
            if finding.key in keys(middle):
                high = middle
            else:
                low = middle + 1
        return releases[high][0]

    dated = tuple(
        replace(finding, since=first(finding)) if _repeatable(finding) else finding
        for finding in report.findings
    )
    return replace(report, findings=dated)


def _repeatable(finding: Finding) -> bool:
    return not finding.code.code.startswith("CT3") and finding.code.code not in {"CT103", "CT231"}
