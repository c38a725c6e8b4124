"""What the checker reports: codes, severities, findings and the report that holds them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Severity(Enum):
    """How sure a finding is to break something, in the words that SARIF uses."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(Enum):
    """Every rule, with its stable code, usual severity and one-line meaning."""

    SYNTAX = ("CT001", Severity.ERROR, "a file that is part of the contract does not parse")
    MODULE_MISSING = ("CT101", Severity.ERROR, "an imported module does not exist")
    NAME_MISSING = ("CT102", Severity.ERROR, "an imported name does not exist in its module")
    DEPENDENCY_MISSING = (
        "CT103",
        Severity.ERROR,
        "a name is missing in a version of a dependency that the release admits",
    )
    MODULE_ATTRIBUTE = ("CT104", Severity.ERROR, "an attribute read from a module does not exist")
    TYPE_ONLY_IMPORT = ("CT105", Severity.NOTE, "an import for type checkers does not resolve")
    UNKNOWN_KEYWORD = ("CT201", Severity.ERROR, "a call passes a keyword that is not taken")
    MISSING_ARGUMENT = ("CT202", Severity.ERROR, "a call leaves out a required argument")
    TOO_MANY_POSITIONALS = ("CT203", Severity.ERROR, "a call passes too many positionals")
    DUPLICATE_ARGUMENT = ("CT204", Severity.ERROR, "a call passes one argument twice")
    DIMENSION_UNKNOWN = ("CT206", Severity.ERROR, "a dimension table names no parameter")
    DIMENSION_LACKS = ("CT207", Severity.NOTE, "a dimension table lacks a tensor parameter")
    CONSTRUCTOR_DROPS = (
        "CT208",
        Severity.WARNING,
        "a parent passes an argument to its own part that the override does not pass",
    )
    UNSET_ATTRIBUTE = ("CT211", Severity.ERROR, "a live method reads an attribute nothing sets")
    UNKNOWN_ATTRIBUTE = ("CT212", Severity.ERROR, "an attribute does not exist on a known class")
    SWITCH_UNSERVED = (
        "CT221",
        Severity.ERROR,
        "an inherited switch is on, but what serves it in the parent's constructor is not run",
    )
    CONFIG_UNDECLARED = (
        "CT231",
        Severity.WARNING,
        "a config attribute is read that the config class does not declare",
    )
    BASE_SIGNATURE = ("CT301", Severity.WARNING, "the signature of an overridden method changed")
    BASE_BODY = ("CT302", Severity.NOTE, "the body of an overridden method changed")
    BASE_ATTRIBUTE = ("CT303", Severity.WARNING, "an attribute that is relied on changed")
    SWITCH_CHANGED = ("CT304", Severity.WARNING, "a class-level switch appeared or flipped")
    USED_CHANGED = ("CT305", Severity.WARNING, "the signature of something that is used changed")
    USED_GONE = ("CT306", Severity.ERROR, "something that is relied on is gone")
    ENTRY_BROKEN = ("CT401", Severity.ERROR, "a registry entry leads to nothing")
    ENTRY_LACKS = ("CT402", Severity.WARNING, "a class is in no registry that should hold it")
    REGISTRY_SHAPE = ("CT403", Severity.ERROR, "a registry is gone or has another shape")
    REGISTRIES_DISAGREE = ("CT404", Severity.WARNING, "two registries contradict each other")
    UNUSED_IGNORE = ("CT901", Severity.WARNING, "an ignore comment suppresses nothing")
    BAD_IGNORE = ("CT902", Severity.WARNING, "an ignore comment has no code or no reason")

    def __init__(self, code: str, severity: Severity, meaning: str) -> None:
        self.code = code
        self.severity = severity
        self.meaning = meaning


CODES: Mapping[str, Code] = {code.code: code for code in Code}


@dataclass(frozen=True, order=True)
class Site:
    """A place in a tree.

    Attributes:
        path: Repository-relative POSIX path; for a dependency, ``distribution:member``.
        line: 1-based line.
        name: Qualified name of what stands there, or "".
    """

    path: str
    line: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" + (f" ({self.name})" if self.name else "")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Site":
        """Return the site that stands in a finding's data."""
        return cls(str(data["path"]), int(data["line"]), str(data["name"]))


@dataclass(frozen=True)
class Finding:
    """One broken, or possibly broken, assumption.

    Attributes:
        code: The rule.
        path: File that carries the finding: the side that a maintainer of the client can edit.
        line: 1-based line in ``path``.
        message: One line that names both sides.
        contract: Both sites: who demands, then who provides (the second is absent where the
            point is that nothing provides).
        hint: One line that says what to do, or "".
        severity: The rule's usual severity, unless the case is clearer or weaker than usual.
        since: The first release of the run of releases that has the finding, once bisected.
        diff: Unified diff of the one method concerned, for rules that compare two trees.
        subject: What the finding is about, where the message has details that vary by release.
    """

    code: Code
    path: str
    line: int
    message: str
    contract: tuple[Site, ...] = ()
    hint: str = ""
    severity: Severity = field(default=None)  # type: ignore[assignment]  # filled below
    since: str | None = None
    diff: str = ""
    subject: str = ""

    def __post_init__(self) -> None:
        if self.severity is None:
            object.__setattr__(self, "severity", self.code.severity)

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity that survives line shifts, for comparing the findings of two releases."""
        return (self.code.code, self.path, self.subject or self.message)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "code": self.code.code,
            "severity": self.severity.value,
            "path": self.path,
            "line": self.line,
            "message": self.message,
            "contract": [
                {"path": site.path, "line": site.line, "name": site.name} for site in self.contract
            ],
            "since": self.since,
            "hint": self.hint,
            "diff": self.diff,
            "subject": self.subject,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Finding":
        """Return the finding that :meth:`to_dict` made ``data`` of.

        Raises:
            LookupError, TypeError, ValueError: It is no such data.
        """
        return cls(
            CODES[data["code"]],
            str(data["path"]),
            int(data["line"]),
            str(data["message"]),
            tuple(Site.from_dict(site) for site in data["contract"]),
            str(data["hint"]),
            Severity(data["severity"]),
            None if data["since"] is None else str(data["since"]),
            str(data["diff"]),
            str(data["subject"]),
        )


@dataclass(frozen=True)
class ContractReport:
    """The outcome of one check of one tree.

    Attributes:
        findings: Sorted by path, line and code.
        modules: The client files that were checked.
        suppressed: Findings that an ignore comment with a reason covers.
        unchecked: Distributions whose names could not be looked up, with the reason.
        idle_ignores: The ignore comments that covered nothing, whether findings hold them or not.
    """

    findings: tuple[Finding, ...]
    modules: tuple[str, ...]
    suppressed: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()
    idle_ignores: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings of severity error."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "modules": list(self.modules),
            "findings": [finding.to_dict() for finding in self.findings],
            "suppressed": [finding.to_dict() for finding in self.suppressed],
            "unchecked": list(self.unchecked),
            "idle_ignores": [finding.to_dict() for finding in self.idle_ignores],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ContractReport":
        """Return the report that :meth:`to_dict` made ``data`` of.

        Raises:
            LookupError, TypeError, ValueError: It is no such data.
        """
        return cls(
            tuple(map(Finding.from_dict, data["findings"])),
            tuple(map(str, data["modules"])),
            tuple(map(Finding.from_dict, data["suppressed"])),
            tuple(map(str, data["unchecked"])),
            tuple(map(Finding.from_dict, data["idle_ignores"])),
        )

    def to_json(self) -> str:
        """Return :meth:`to_dict` as stable, indented JSON."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings and drop repetitions of the same rule, place and message."""
    unique = {(f.code.code, f.path, f.line, f.message): f for f in findings}
    return tuple(
        unique[key] for key in sorted(unique, key=lambda key: (key[1], key[2], key[0], key[3]))
    )


def unused_everywhere(reports: Iterable[ContractReport]) -> tuple[Finding, ...]:
    """Return the ignore comments that covered nothing in any of several reports."""
    found = list(reports)
    idle: dict[Finding, int] = {}
    for report in found:
        for finding in report.idle_ignores:
            idle[finding] = idle.get(finding, 0) + 1
    seen_in = {
        path: sum(path in report.modules for report in found)
        for path in {finding.path for finding in idle}
    }
    return ordered(finding for finding, count in idle.items() if count == seen_in[finding.path])
