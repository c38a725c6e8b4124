"""A report as SARIF 2.1.0 (OASIS), for code hosts that show findings beside the code."""

import json
from typing import Any

from tools.contract.findings import Code, ContractReport, Finding, Site

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def to_sarif(report: ContractReport, version: str = "") -> str:
    """Return a report as SARIF text.

    Args:
        report: The report; suppressed findings are included, marked as suppressed in the source.
        version: The ref that was checked, put into the run's properties.
    """
    used = sorted({f.code for f in (*report.findings, *report.suppressed)}, key=lambda c: c.code)
    index = {code: number for number, code in enumerate(used)}
    results = [_result(finding, index) for finding in report.findings]
    results.extend(
        _result(finding, index) | {"suppressions": [{"kind": "inSource"}]}
        for finding in report.suppressed
    )
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "contract", "rules": [_rule(code) for code in used]}},
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    if version:
        run["properties"] = {"ref": version}
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _rule(code: Code) -> dict[str, Any]:
    return {
        "id": code.code,
        "name": code.name.title().replace("_", ""),
        "shortDescription": {"text": code.meaning},
        "defaultConfiguration": {"level": code.severity.value},
    }


def _result(finding: Finding, index: dict[Code, int]) -> dict[str, Any]:
    text = finding.message + (f"; since {finding.since}" if finding.since else "")
    result: dict[str, Any] = {
        "ruleId": finding.code.code,
        "ruleIndex": index[finding.code],
        "level": finding.severity.value,
        "message": {"text": f"{text}. {finding.hint}" if finding.hint else text},
        "locations": [_location(Site(finding.path, finding.line))],
        # A code host matches findings of two runs by this; lines are left out on purpose.
        "partialFingerprints": {"contract/v1": "|".join(finding.key)},
    }
    others = [
        _location(site) | {"id": number, "message": {"text": site.name or "the other side"}}
        for number, site in enumerate(finding.contract)
        if ":" not in site.path
    ]
    if others:
        result["relatedLocations"] = others
    return result


def _location(site: Site) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": site.path, "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": max(site.line, 1)},
        }
    }
