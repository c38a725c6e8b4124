"""What the record of smokes says of a wheel that is to be released."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.wheel.wheel_sample import make_wheel_in
from tools.errors import CheckFailed
from tools.maintain import proof as module
from tools.maintain.proof import constraints, parse_pins, prove
from tools.smoke.environment import Environment
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.verified import FILE, CellName, content_of, load, save

NAME = CellName("v1.2.3", "cpu", "carried", "release", "usual")
VERSIONS = {"vllm": "1.2.3+exaone.1", "transformers": "5.18.0", "torch": "2.13.0+cu130"}


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel_in(tmp_path / "dist")


def record(
    root: Path, wheel: Path, verdict: Verdict = Verdict.PASSED, name: CellName = NAME
) -> None:
    (root / FILE).parent.mkdir(exist_ok=True)
    checks = (Check("published", "text", verdict, "", 1.0),)
    report = SmokeReport("v1.2.3", "cpu", False, wheel.name, "0" * 64, VERSIONS, checks, 1.0)
    now = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)
    save(load(root / FILE).record(name, report, content_of(wheel), "c" * 40, now), root / FILE)


def test_nothing_recorded_is_told_without_building_a_wheel(tmp_path: Path) -> None:
    def never() -> Path:
        raise AssertionError

    found = prove(tmp_path, "v1.2.3", "cpu", never)
    assert (found.proved, found.detail) == (False, "its smoke is missing")


def test_only_a_smoke_that_passed_on_this_content_proves_it(tmp_path: Path, wheel: Path) -> None:
    record(tmp_path, wheel)
    found = prove(tmp_path, "v1.2.3", "cpu", lambda: wheel)
    assert found.proved
    assert found.detail.startswith("1 checks on 2026-11-30")
    assert "transformers 5.18.0" in found.detail
    assert not prove(tmp_path, "v1.2.3", "cuda", lambda: wheel).proved
    other = make_wheel_in(tmp_path / "other", replace={"vllm/models/a.py": b"other\n"})
    stale = prove(tmp_path, "v1.2.3", "cpu", lambda: other)
    assert (stale.proved, stale.detail) == (False, "its smoke is stale (the wheel changed)")
    record(tmp_path, wheel, Verdict.FAILED)
    failed = prove(tmp_path, "v1.2.3", "cpu", lambda: wheel)
    assert (failed.proved, failed.detail[:16]) == (False, "its smoke failed")


@pytest.mark.parametrize(
    "other", [replace(NAME, runs="modes"), replace(NAME, transformers="newest")]
)
def test_no_other_smoke_on_record_may_have_failed_or_be_stale(
    tmp_path: Path, wheel: Path, other: CellName
) -> None:
    record(tmp_path, wheel)
    record(tmp_path, wheel, name=other)
    # Another release's, and what stock upstream answers, are no matter of this one's.
    record(tmp_path, wheel, Verdict.FAILED, replace(NAME, release="v1.2.4"))
    record(tmp_path, wheel, Verdict.FAILED, replace(NAME, kind="stock"))
    assert prove(tmp_path, "v1.2.3", "cpu", lambda: wheel).proved
    record(tmp_path, wheel, Verdict.FAILED, other)
    failed = prove(tmp_path, "v1.2.3", "cpu", lambda: wheel)
    said = f"its smoke of {other.transformers} {other.runs}"
    assert (failed.proved, failed.detail.partition(",")[0]) == (False, f"{said} failed")
    record(
        tmp_path, make_wheel_in(tmp_path / "o", replace={"vllm/models/a.py": b"o\n"}), name=other
    )
    stale = prove(tmp_path, "v1.2.3", "cpu", lambda: wheel)
    assert (stale.proved, stale.detail) == (False, f"{said} is stale (the wheel changed)")


def test_pins_are_what_was_installed_by_name_and_version() -> None:
    text = "torch==2.13.0\nvllm-cpu @ file:///x/y.whl\n# note\n\nnumpy==2.4.1\n-e /work\n"
    assert parse_pins(text) == {"numpy": "2.4.1", "torch": "2.13.0"}


class _Held:
    """In place of an installed environment."""

    def __init__(self, root: Path) -> None:
        self.place = Environment(root, "")

    def __enter__(self) -> Environment:
        return self.place

    def __exit__(self, *_: object) -> None:
        pass


def test_constraints_are_those_of_the_environment_that_was_proved(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, wheel)
    listed = tmp_path / "freeze"
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$1 $2" = "pip freeze" ] && cat {listed}\n')
    uv.chmod(0o755)
    monkeypatch.setattr(module, "find_uv_bin", lambda: str(uv))
    monkeypatch.setattr(module, "engine_plan", lambda *_, **__: None)
    monkeypatch.setattr(module, "environment", lambda *_: _Held(tmp_path))
    listed.write_text("transformers==5.18.0\ntorch==2.13.0\nvllm-cpu @ file:///x.whl\n")
    made = constraints(tmp_path, "v1.2.3", "cpu", wheel, tmp_path, lambda _: None)
    lines = made.decode().splitlines()
    assert lines[2:] == ["torch==2.13.0", "transformers==5.18.0"]
    assert all(line.startswith("#") for line in lines[:2])
    listed.write_text("transformers==5.19.0\ntorch==2.13.0\n")
    with pytest.raises(CheckFailed, match=r"transformers 5\.19\.0 would be installed"):
        constraints(tmp_path, "v1.2.3", "cpu", wheel, tmp_path, lambda _: None)
