import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tools.errors import BadInput
from tools.report.upstream_tests import comparison_data
from tools.smoke import upstream_tests as module
from tools.smoke.jobs import Outcome, run_job
from tools.smoke.upstream_tests import Change, Comparison, Ran
from tools.tree import MappingTree

TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2
def test_skipped(): pytest.skip("no GPU")
@pytest.fixture
def leaves(): yield; raise ValueError("left")
def test_left(leaves): pass
@pytest.mark.parametrize("arch", ["Exaone4_5_MTP", "Other"])
def test_registry_imports(arch): pass
"""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("tested_pytest_child", module.CHILD)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def ask(root: Path, *more: str) -> Outcome:
    arguments = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=native",
        "--continue-on-collection-errors",
        *more,
    ]
    return run_job(
        Path(sys.executable),
        module.CHILD,
        {"root": str(root), "arguments": [*arguments, "tests"]},
        env={},
        timeout=60,
    )


def test_each_test_has_its_worst_outcome_and_its_reason(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TESTS)
    (tmp_path / "tests" / "test_b.py").write_text("import no_such_package\n")
    ran = module.parse(ask(tmp_path, "-k", module.KEYWORDS))
    assert {name.rpartition("/")[2]: what for name, what in ran.outcomes.items()} == {
        "test_a.py::test_good": "passed",
        "test_a.py::test_bad": "failed",
        "test_a.py::test_skipped": "skipped",
        "test_a.py::test_left": "failed",
        "test_a.py::test_registry_imports[Exaone4_5_MTP]": "passed",
        "test_b.py": "failed",
    }
    assert "assert 1 == 2" in ran.reasons["tests/test_a.py::test_bad"]
    assert "no_such_package" in ran.reasons["tests/test_b.py"]
    assert ran.died == ""


def test_a_run_that_dies_names_the_test_it_died_in(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    good = "".join(f"def test_{number}(): pass\n" for number in range(30))
    death = "def test_last():\n    import os\n    os._exit(9)\n"
    (tmp_path / "tests" / "test_a.py").write_text(good + death)
    ran = module.parse(ask(tmp_path))
    # What was written last is the start of a test near the one that died.
    assert ran.died.startswith("tests/test_a.py::test_")
    assert len(ran.outcomes) == 25


def test_a_run_without_a_result_died_at_its_start() -> None:
    assert module.parse(Outcome(1, None, "")).died == "its start"
    assert module.parse(Outcome(4, {"outcomes": {}, "running": ""}, "")).died == "its end"


def test_the_tests_and_their_configuration_are_written_and_what_is_there_is_selected(
    tmp_path: Path,
) -> None:
    files = {
        "pyproject.toml": b"[tool]",
        "tests/config/test_a.py": b"1",
        "tests/utils.py": b"2",
        "vllm/a.py": b"3",
    }
    assert module.write_tests(MappingTree(files), tmp_path) == ["tests/config"]
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert written == set(files) - {"vllm/a.py"} | {"pyproject.toml"}
    with pytest.raises(BadInput, match="holds no tests"):
        module.write_tests(MappingTree({"vllm/a.py": b""}), tmp_path / "other")


def comparison(stock: dict[str, str], carried: dict[str, str]) -> Comparison:
    return Comparison("v1", Ran(stock, {}), Ran(carried, {"b": "ValueError: x"}))


def test_equal_outcomes_and_passing_tests_of_ours_are_no_difference() -> None:
    same = {"a": "passed", "b": "failed"}
    found = comparison(same, {**same, "t[Exaone4_5_MTP]": "passed"})
    assert found.differences == ()
    assert found.ours == ("t[Exaone4_5_MTP]",)


@pytest.mark.parametrize(
    ("carried", "change"),
    [
        ({"a": "passed", "b": "failed"}, Change.OTHER_OUTCOME),
        ({"a": "passed"}, Change.MISSING),
        ({"a": "passed", "b": "passed", "c": "passed"}, Change.UNEXPECTED),
        ({"a": "passed", "b": "passed", "c[exaone4_5]": "failed"}, Change.FAILING),
        ({"a": "passed", "b": "passed", "c[exaone4_5]": "skipped"}, Change.FAILING),
    ],
)
def test_every_other_change_is_told(carried: dict[str, str], change: Change) -> None:
    found = comparison({"a": "passed", "b": "passed"}, carried)
    assert [difference.change for difference in found.differences] == [change]
    document: Any = json.loads(json.dumps(comparison_data(found)))
    assert document["differences"][0]["change"] == change.value


def test_a_difference_says_both_outcomes_and_why() -> None:
    (difference,) = comparison({"b": "passed"}, {"b": "failed"}).differences
    assert difference.detail == "stock passed; carried failed; ValueError: x"


def test_the_last_line_of_a_report_without_a_crash_counts(child: ModuleType) -> None:
    class Report:
        longrepr = "one\ntwo\n"

    assert child.last_line(Report()) == "two"
    Report.longrepr = ""
    assert child.last_line(Report()) == ""
