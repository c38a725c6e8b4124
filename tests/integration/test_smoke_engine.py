"""The smoke on upstream's own wheels: it passes where they are right, and only there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.runs import MUTANT_RUNS, RUNS, Run
from tools.smoke.smoke import smoke

pytestmark = [pytest.mark.network, pytest.mark.engine]
ROOT = Path(__file__).parents[2]
# Upstream's own model is right on this release, when `layer_types` has the right length.
RIGHT = "v0.27.1"
PUBLISHED = RUNS[0]

Stock = Callable[..., SmokeReport]


@pytest.fixture
def stock(real_releases: Path) -> Stock:
    def run(release: str, *runs: Run) -> SmokeReport:
        return smoke(release, wheel=None, device="cpu", root=ROOT, cache=real_releases, runs=runs)

    return run


def failures(report: SmokeReport) -> dict[str, str]:
    return {c.case: c.detail for c in report.checks if c.verdict is Verdict.FAILED}


def test_a_right_release_gives_every_golden_token(stock: Stock) -> None:
    report = stock(RIGHT, *RUNS)
    failed = {check.run for check in report.checks if check.verdict is Verdict.FAILED}
    # What transformers 5 refuses is the one thing that upstream leaves to the carried config.
    assert failed == {"extra layer type"}


def test_each_mutant_changes_a_token_and_the_plain_model_does_not(stock: Stock) -> None:
    report = stock(RIGHT, *MUTANT_RUNS)
    assert failures(report) == {}
    assert len(report.checks) == 9


def test_a_release_without_the_model_fails_with_its_error(stock: Stock) -> None:
    report = stock("v0.19.1", PUBLISHED)
    assert all("does not recognize this architecture" in d for d in failures(report).values())
    assert len(failures(report)) == len(report.checks)


def test_a_release_that_stops_on_images_fails_with_its_error(stock: Stock) -> None:
    report = stock("v0.23.0", PUBLISHED)
    assert {"sequence_lengths" in detail for detail in failures(report).values()} == {True}


def test_silently_wrong_image_answers_are_caught_and_right_text_is_not(stock: Stock) -> None:
    report = stock("v0.32.0", PUBLISHED)
    wrong = failures(report)
    assert {"image", "images", "video", "mixed", "numbers"} <= wrong.keys()
    assert all("wrong tokens" in wrong[case] for case in ("image", "images", "video", "mixed"))
    text = [check for check in report.checks if check.case == "text"]
    assert [type(check) for check in text] == [Check]
    assert text[0].verdict is Verdict.PASSED
