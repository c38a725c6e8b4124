"""What a smoke found: one verdict for each check of each run, ready for a table or for JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Verdict(Enum):
    """How one check came out."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        run: The engine run it belongs to, such as ``published`` or ``mtp``.
        case: What was asked.
        verdict: How it came out.
        detail: Why it failed or was skipped, or a figure worth showing; may be "".
        seconds: How long the step took.
    """

    run: str
    case: str
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class SmokeReport:
    """All checks of one wheel.

    Attributes:
        release: The release.
        device: ``cpu`` or ``cuda``.
        stock: True for upstream's wheel without our changes.
        wheel: The wheel's file name; a stock CPU wheel is a repackager's build and named so.
        wheel_sha256: Its digest.
        versions: Versions of vLLM, transformers and torch that ran.
        checks: In the order they ran.
        seconds: How long everything took, installing the environment included.
    """

    release: str
    device: str
    stock: bool
    wheel: str
    wheel_sha256: str
    versions: Mapping[str, str]
    checks: tuple[Check, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """True when something was checked and nothing failed."""
        verdicts = [check.verdict for check in self.checks]
        return Verdict.PASSED in verdicts and Verdict.FAILED not in verdicts

    @property
    def skipped(self) -> bool:
        """True when nothing could be checked here."""
        return all(check.verdict is Verdict.SKIPPED for check in self.checks)

    @property
    def summary(self) -> str:
        """One line: how many checks passed, failed and were skipped."""
        counts = [
            f"{sum(check.verdict is verdict for check in self.checks)} {verdict.value}"
            for verdict in Verdict
        ]
        return f"{self.release} {self.device}: {', '.join(counts)}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        document = asdict(self)
        for check in document["checks"]:
            check["verdict"] = check["verdict"].value
        return {**document, "passed": self.passed}


def compare_tokens(expected: tuple[int, ...], found: tuple[int, ...]) -> str:
    """Return "" for equal tokens, else where they first differ."""
    if expected == found:
        return ""
    for place, (want, have) in enumerate(zip(expected, found, strict=False)):
        if want != have:
            return f"wrong tokens at {place}: {have} != {want}"
    return f"{len(found)} tokens, not {len(expected)}"
