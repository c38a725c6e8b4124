import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tools.cli import comparing, make_app
from tools.errors import CheckFailed
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.upstream_tests import Comparison, Ran
from tools.tree import MappingTree

STOCK = {"tests/a.py::test_a": "passed", "tests/a.py::test_b[x]": "failed"}
OURS = {**STOCK, "tests/a.py::test_c[Exaone4_5_MTP]": "passed"}


@pytest.fixture(autouse=True)
def carried(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = (MappingTree({"which": b"stock"}), MappingTree({"which": b"carried"}))
    found = (*trees, Path("/w/x.whl"))
    monkeypatch.setattr(comparing, "_carried", lambda _project, _ref: found)


def compared(monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, str]) -> None:
    def upstream_tests(release: str, **given: Any) -> Comparison:
        assert given["stock"].read("which") == b"stock"
        assert given["carried"].read("which") == b"carried"
        return Comparison(release, Ran(STOCK, {}), Ran(outcomes, {}))

    monkeypatch.setattr(comparing, "upstream_tests", upstream_tests)


def run(*words: str) -> tuple[BaseException | None, str]:
    done = CliRunner().invoke(make_app(words[0]), list(words))
    return done.exception, done.stdout


def test_counts_and_what_is_ours_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    compared(monkeypatch, OURS)
    error, text = run("upstream-tests", "v0.19.1")
    assert error is None
    assert "v0.19.1: upstream's own tests" in text
    assert "+ tests/a.py::test_c[Exaone4_5_MTP]: passed" in text.replace("\n", "")


def test_the_outcome_of_every_test_is_data(monkeypatch: pytest.MonkeyPatch) -> None:
    compared(monkeypatch, OURS)
    error, text = run("upstream-tests", "v0.19.1", "--json")
    assert error is None
    document = json.loads(text)
    assert (document["stock"], document["carried"]) == (STOCK, OURS)
    assert document["differences"] == []


def test_a_test_that_differs_fails_the_command_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared(monkeypatch, {**OURS, "tests/a.py::test_a": "failed"})
    error, text = run("upstream-tests", "v0.19.1")
    assert isinstance(error, CheckFailed)
    assert "tests/a.py::test_a first: another outcome" in error.message
    said = "".join(re.findall(r"[\w():;]", text))  # a narrow terminal breaks a cell anywhere
    assert "test_a:anotheroutcome(stockpassed;carriedfailed)" in said


@pytest.mark.parametrize("verdict", [Verdict.PASSED, Verdict.FAILED])
def test_examples_run_on_the_carried_tree(
    monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> None:
    def run_examples(release: str, **given: Any) -> SmokeReport:
        assert given["tree"].read("which") == b"carried"
        checks = (Check("examples", "one image", verdict, "12 tokens"),)
        return SmokeReport(release, "cpu", False, "x.whl", "ab", {}, checks, 1.0)

    monkeypatch.setattr(comparing, "run_examples", run_examples)
    error, text = run("examples", "v0.32.0")
    assert "one image" in text
    assert (error is None) == (verdict is Verdict.PASSED)
    if error is not None:
        assert isinstance(error, CheckFailed)
        assert "v0.32.0 cpu: 0 passed, 1 failed" in error.message
