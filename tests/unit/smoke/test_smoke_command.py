"""How ``python -m tools smoke`` ends; the engine's answers are made up."""

from typing import Any

import pytest
from typer.testing import CliRunner

from tools.cli import make_app, proving
from tools.errors import CheckFailed, EnvironmentLacks, ToolError
from tools.smoke.results import Check, SmokeReport, Verdict

P, F, S = Verdict.PASSED, Verdict.FAILED, Verdict.SKIPPED


@pytest.mark.parametrize(
    ("verdicts", "kind"),
    [
        ([P, S], None),
        ([P, F], CheckFailed),
        ([S, F], CheckFailed),
        # Real weights that do not fit, two workers and one GPU: nothing is wrong, nothing proved.
        ([S, S], EnvironmentLacks),
    ],
)
def test_what_only_skips_is_neither_right_nor_wrong(
    verdicts: list[Verdict], kind: type[ToolError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def smoke(release: str, **_given: Any) -> SmokeReport:
        checks = tuple(Check("model", "text", v, "needs 70.0 GiB", 0.0) for v in verdicts)
        return SmokeReport(release, "cuda", True, "x.whl", "", {}, checks, 1.0)

    monkeypatch.setattr(proving, "smoke", smoke)
    words = ["smoke", "v0.32.0", "--stock", "--device", "cuda", "--model", "/w/model"]
    done = CliRunner().invoke(make_app("smoke"), words)
    assert (type(done.exception) if done.exception else None) is kind
    assert "needs 70.0 GiB" in done.stdout
