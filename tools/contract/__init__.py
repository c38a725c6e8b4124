"""Static contracts between a client's modules and the upstream tree they stand in."""

from tools.contract.check import check
from tools.contract.findings import Code, ContractReport, Finding, Severity, Site

__all__ = ["Code", "ContractReport", "Finding", "Severity", "Site", "check"]
