"""The stages that a watch takes a ref through: what each found, and what it asks of a person."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tools.carry import Carried, Outcome
from tools.contract import ContractReport, Finding, Severity
from tools.errors import BadInput, CheckFailed, EnvironmentLacks, ToolError, Unavailable
from tools.maintain.watched import Need, Record, Result, Stage, StageRecord
from tools.smoke.results import SmokeReport, Verdict
from tools.upstream import Upstream, parse_ref
from tools.upstream.page import IndexUnreachable

_BACKPORT = "write a backport, or mend the overlay"
_NO_HINT = "see the message"


@dataclass(frozen=True)
class Line:
    """How one ref is taken through the stages.

    Args:
        carry: Brings series and overlay to a ref, and keeps the result.
        contract: Checks a carried tree.
        build: Returns the wheel of a carried tree, the one of an earlier run where it is there.
        smoke: Runs a wheel.
    """

    carry: Callable[[Upstream], Carried]
    contract: Callable[[Carried], ContractReport]
    build: Callable[[Carried], Path]
    smoke: Callable[[Carried, Path], SmokeReport]


@dataclass
class Work:
    """One ref at work; what later stages need of earlier ones is made once, when it is needed.

    Args:
        line: How.
        upstream: The ref.
        before: What is known of the ref before it, to compare with.
        expected: The reason for each conflict that is recorded as expected, by (patch, ref).
        smoke_unchanged: Whether to run the engine where nothing changed since, in a minor release
            that it ran in.
    """

    line: Line
    upstream: Upstream
    before: Record | None
    expected: Mapping[tuple[str, str], str]
    smoke_unchanged: bool
    _carried: Carried | None = None
    _wheel: Path | None = None

    def do(self, stage: Stage, record: Record) -> StageRecord:
        """Do one stage.

        Args:
            stage: Which.
            record: What is known of the ref so far.

        Raises:
            IndexUnreachable: There is no network, which says nothing about the ref.
            BadInput: Series or overlay are not in order.
        """
        if stage is Stage.CARRY:
            return carry_record(self._carry(), self.expected)
        if stage is Stage.CONTRACT:
            known = self.before.stages.get(stage) if self.before else None
            return contract_record(self.line.contract(self._carry()), known)
        idle = self._idle(stage, record)
        if idle:
            return StageRecord(Result.SKIPPED, idle)
        try:
            return self._run(stage)
        except IndexUnreachable:
            raise
        except (Unavailable, EnvironmentLacks) as error:
            here = isinstance(error, EnvironmentLacks)
            remedy = (error.hint or _NO_HINT) if here else ""
            return StageRecord(Result.LACKING, error.message, remedy=remedy)
        except CheckFailed as error:
            need = Need(stage, stage.value, error.message, error.hint or _NO_HINT)
            return StageRecord(Result.FAILED, error.message, needs=(need,))

    def _idle(self, stage: Stage, record: Record) -> str:
        """Return why there is nothing to build or run, or ""."""
        if self.upstream.ref.version is None:
            return "upstream publishes no wheels of commits"
        if stage is Stage.SMOKE and self._is_alike(record) and not self.smoke_unchanged:
            return "no outcome and no finding changed since the release before"
        return ""

    def _is_alike(self, record: Record) -> bool:
        """Whether the ref before is of the same minor release, and nothing changed since.

        Between minor releases much changes that no contract sees, such as the CPU engine's own
        kernels: each of them is run once.
        """
        before, here = self.before, self.upstream.ref.version
        there = parse_ref(before.ref).version if before else None
        if before is None or here is None or there is None:
            return False
        return here.release[:2] == there.release[:2] and not record.changed_from(before)

    def _run(self, stage: Stage) -> StageRecord:
        if self._wheel is None:
            self._wheel = self.line.build(self._carry())
        if stage is Stage.BUILD:
            return StageRecord(Result.DONE, self._wheel.name)
        return smoke_record(self.line.smoke(self._carry(), self._wheel))

    def _carry(self) -> Carried:
        # A carry is no dearer than to look up what an earlier run kept.
        if self._carried is None:
            self._carried = self.line.carry(self.upstream)
        return self._carried


def missing_record(error: ToolError) -> StageRecord:
    """Return the carry of a ref that could not be brought into the store.

    Args:
        error: Why. What is malformed or hostile asks for a person; what is not there may come.
    """
    if not isinstance(error, BadInput):
        return StageRecord(Result.LACKING, error.message)
    need = Need(Stage.CARRY, "upstream", error.message, error.hint or _NO_HINT)
    return StageRecord(Result.FAILED, error.message, needs=(need,))


def carry_record(
    carried: Carried, expected: Mapping[tuple[str, str], str] = MappingProxyType({})
) -> StageRecord:
    """Return what a carry found: the outcome of each patch and of each overlay file.

    Args:
        carried: The carry.
        expected: The reason for each conflict that is recorded as expected, by (patch, ref). It
            asks for nobody, but half a series is not taken further either.
    """
    ref = carried.upstream.ref.name
    facts = {outcome.name: outcome.outcome.value for outcome in carried.outcomes}
    facts |= {
        f"overlay {row.file.target}": "laid" if row.laid else "not-needed"
        for row in carried.overlay
    }
    needs = tuple(
        Need(
            Stage.CARRY,
            found.name,
            f"{found.file} is in conflict: {found.rule}",
            f"python -m tools resolve {ref}",
        )
        for found in carried.conflicts
        if (found.name, ref) not in expected
    )
    counts = Counter(outcome.outcome for outcome in carried.outcomes)
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    if carried.conflicts and not needs:
        return StageRecord(Result.SKIPPED, f"{summary}, as expected", facts)
    return StageRecord(Result.FAILED if needs else Result.DONE, summary, facts, needs)


def contract_record(report: ContractReport, before: StageRecord | None) -> StageRecord:
    """Return what a contract check found.

    Each error asks for a person; a warning only where the ref before does not have it, since it
    may be one that was looked at and left.
    """
    facts = {_key(finding): finding.severity.value for finding in report.findings}
    known = before.facts if before else facts
    needs = tuple(
        _need(finding)
        for finding in report.findings
        if finding.severity is Severity.ERROR
        or (finding.severity is Severity.WARNING and _key(finding) not in known)
    )
    counts = Counter(finding.severity.value for finding in report.findings)
    summary = ", ".join(f"{count} {name}s" for name, count in sorted(counts.items())) or "kept"
    if report.unchecked:
        unchecked = f"{summary}; not checked: {'; '.join(report.unchecked)}"
        return StageRecord(Result.LACKING, unchecked, facts, needs)
    failed = any(need.blocking for need in needs)
    return StageRecord(Result.FAILED if failed else Result.DONE, summary, facts, needs)


def smoke_record(report: SmokeReport) -> StageRecord:
    """Return what a smoke found: one verdict a check."""
    facts = {f"{check.run} {check.case}": check.verdict.value for check in report.checks}
    needs = tuple(
        Need(
            Stage.SMOKE,
            f"{check.run} {check.case}",
            check.detail or "failed",
            f"python -m tools smoke {report.release}",
        )
        for check in report.checks
        if check.verdict is Verdict.FAILED
    )
    result = Result.DONE if report.passed else Result.FAILED
    return StageRecord(result, report.summary, facts, needs)


def _key(finding: Finding) -> str:
    return " ".join(finding.key)


def _need(finding: Finding) -> Need:
    return Need(
        Stage.CONTRACT,
        f"{finding.code.code} {finding.path}",
        f"{finding.path}:{finding.line} {finding.message}",
        finding.hint or _BACKPORT,
        blocking=finding.severity is Severity.ERROR,
    )
