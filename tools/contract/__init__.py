"""Static contracts between a client's modules and the upstream tree they stand in.

``check`` reads one tree and reports, with a stable code, where the client's imports, calls, reads
and registry entries no longer fit upstream. Nothing of the tree is imported or run. README.md in
this directory lists the rules.
"""

from tools.contract.check import check, unused_everywhere
from tools.contract.dependencies import DependencyIndex, WheelIndex
from tools.contract.findings import CODES, Code, ContractReport, Finding, Severity, Site
from tools.contract.sarif import to_sarif
from tools.contract.since import bisect_since

__all__ = [
    "CODES",
    "Code",
    "ContractReport",
    "DependencyIndex",
    "Finding",
    "Severity",
    "Site",
    "WheelIndex",
    "bisect_since",
    "check",
    "to_sarif",
    "unused_everywhere",
]
