"""Static contracts between a client's modules and the upstream tree they stand in.

``check.check`` reads one tree and reports, with a stable code, where the client's imports, calls,
reads and registry entries no longer fit upstream. Nothing of the tree is imported or run. README.md
in this directory lists the rules.

The package itself offers what a report is made of. The checker is imported from its modules, by
what finds no kept report.
"""

from tools.contract.findings import (
    CODES,
    Code,
    ContractReport,
    Finding,
    Severity,
    Site,
    unused_everywhere,
)

__all__ = [
    "CODES",
    "Code",
    "ContractReport",
    "Finding",
    "Severity",
    "Site",
    "unused_everywhere",
]
