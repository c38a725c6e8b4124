"""Carried wheels: served, on other kinds of checkpoints, and with upstream's examples."""

from pathlib import Path

import pytest
from packaging.version import Version

from tests.carried_wheel import carried_wheel
from tools.smoke.examples import run_examples
from tools.smoke.results import Check, Verdict
from tools.smoke.run_sets import CHECKPOINT_RUNS, SERVED_RUNS
from tools.smoke.runs import Run
from tools.smoke.smoke import smoke
from tools.smoke.upstream_tests import upstream_tests

pytestmark = [pytest.mark.network, pytest.mark.engine, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]
# One release with the overlay's model, one with upstream's own.
RELEASES = ("v0.19.1", "v0.32.0")


def bad(checks: tuple[Check, ...], *skipped: str) -> list[Check]:
    """Return failed checks, and skipped ones of runs that have to run."""
    return [
        check
        for check in checks
        if check.verdict is Verdict.FAILED
        or (check.verdict is Verdict.SKIPPED and check.run not in skipped)
    ]


@pytest.mark.parametrize("runs", [SERVED_RUNS, CHECKPOINT_RUNS], ids=["served", "checkpoints"])
@pytest.mark.parametrize("release", RELEASES)
def test_a_carried_wheel_serves_and_takes_other_checkpoints(
    real_releases: Path, tmp_path: Path, release: str, runs: tuple[Run, ...]
) -> None:
    built = carried_wheel(release, tmp_path, real_releases)
    report = smoke(
        release, wheel=built.wheel, device="cpu", root=ROOT, cache=real_releases, runs=runs
    )
    version = Version(release.removeprefix("v"))
    # What the CPU engine of a release cannot do at all.
    unable = [run.name for run in runs if run.unable(version, "cpu")]
    assert len(unable) < len(runs)
    assert bad(report.checks, *unable) == []


@pytest.mark.parametrize("release", RELEASES)
def test_the_examples_of_a_carried_tree_run(
    real_releases: Path, tmp_path: Path, release: str
) -> None:
    built = carried_wheel(release, tmp_path, real_releases)
    report = run_examples(release, tree=built.carried, wheel=built.wheel, cache=real_releases)
    assert bad(report.checks) == []


@pytest.mark.parametrize(
    ("release", "ours"),
    [("v0.19.1", {"Exaone4_5_ForConditionalGeneration", "Exaone4_5_MTP"}), ("v0.32.0", set())],
)
def test_upstreams_own_tests_give_what_they_give_on_stock(
    real_releases: Path, tmp_path: Path, release: str, ours: set[str]
) -> None:
    built = carried_wheel(release, tmp_path, real_releases)
    found = upstream_tests(
        release,
        stock=built.stock,
        carried=built.carried,
        wheel=built.wheel,
        cache=real_releases,
    )
    assert found.differences == ()
    assert {test.partition("[")[2].removesuffix("]") for test in found.ours} == ours
    assert found.stock.count("passed") > 200
