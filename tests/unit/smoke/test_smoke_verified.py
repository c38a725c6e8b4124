import datetime
from pathlib import Path

import pytest

from tools.errors import BadInput
from tools.smoke import verified
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.verified import CellName, CellState, Verified

NOW = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
NAME = CellName("v0.32.0", "cpu", "carried", "release")


def report(**changes: object) -> SmokeReport:
    facts: dict[str, object] = {
        "release": "v0.32.0",
        "device": "cpu",
        "stock": False,
        "wheel": "vllm_cpu-0.32.0+exaone.1-cp38-abi3-linux_x86_64.whl",
        "wheel_sha256": "ab" * 32,
        "versions": {"transformers": "5.19.0"},
        "checks": (
            Check("published", "text", Verdict.PASSED, "", 0.5),
            Check("mtp", "text", Verdict.SKIPPED, "no “runner”", 0.0),
        ),
        "seconds": 1.0,
    }
    return SmokeReport(**{**facts, **changes})


RECORD = Verified({}).record(NAME, report(), "c0ffee", NOW)


def test_a_recorded_cell_is_current_for_the_same_wheel() -> None:
    assert RECORD.state(NAME, "ab" * 32) is CellState.CURRENT
    assert RECORD.cells[NAME].date == "2026-05-04T03:02:01Z"


def test_another_wheel_or_transformers_makes_a_cell_stale() -> None:
    assert RECORD.state(NAME, "cd" * 32) is CellState.STALE
    assert RECORD.state(NAME, "ab" * 32, transformers="5.20.0") is CellState.STALE


def test_another_fixture_makes_a_cell_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "fixture_digest", lambda: "other")
    assert RECORD.state(NAME, "ab" * 32) is CellState.STALE


def test_an_unknown_cell_is_missing() -> None:
    other = CellName("v0.31.0", "cpu", "carried", "release")
    assert RECORD.state(other, "ab" * 32) is CellState.MISSING


def test_recording_one_cell_keeps_the_others() -> None:
    stock = CellName("v0.32.0", "cpu", "stock", "release")
    both = RECORD.record(stock, report(stock=True), "", NOW)
    assert both.cells[NAME] == RECORD.cells[NAME]
    assert set(both.cells) == {NAME, stock}


def test_a_saved_record_is_read_back_and_sorted(tmp_path: Path) -> None:
    file = tmp_path / "verified.json"
    older = CellName("v0.14.0", "cpu", "carried", "release")
    record = RECORD.record(older, report(release="v0.14.0"), "beef", NOW)
    verified.save(record, file)
    assert verified.load(file) == record
    text = file.read_text()
    assert text.index("v0.14.0") < text.index("v0.32.0")
    verified.save(verified.load(file), file)
    assert file.read_text() == text


def test_a_missing_record_is_an_empty_one(tmp_path: Path) -> None:
    assert verified.load(tmp_path / "none.json") == Verified({})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"format": 1}',
        b'{"format": 9, "cells": []}',
        b'{"format": 1, "cells": [{}]}',
    ],
)
def test_a_file_that_is_no_record_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "verified.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=r"verified\.json"):
        verified.load(file)


def test_the_subset_for_every_change_has_the_oldest_and_the_newest() -> None:
    assert verified.EVERY_CHANGE[0] == "v0.13.0"
    assert len(set(verified.EVERY_CHANGE)) == len(verified.EVERY_CHANGE)
