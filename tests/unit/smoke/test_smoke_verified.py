import datetime
import zipfile
from pathlib import Path

import pytest

from tools.errors import BadInput, EnvironmentLacks
from tools.settings import Settings
from tools.smoke import verified
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.run_sets import run_set
from tools.smoke.verified import CellName, CellState, Facts, Standing, Verified, content_of
from tools.smoke.verify import FIRST

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


RECORD = Verified({}).record(NAME, report(), "content", "c0ffee", NOW)


def test_a_recorded_cell_is_current_for_the_same_content() -> None:
    assert RECORD.standing(NAME, "content") == Standing(CellState.CURRENT)
    assert RECORD.cells[NAME].date == "2026-05-04T03:02:01Z"


def test_another_wheel_makes_a_cell_stale_and_says_so() -> None:
    assert RECORD.standing(NAME, "other") == Standing(CellState.STALE, "the wheel changed")


def test_another_fixture_makes_a_cell_stale_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "fixture_of", lambda _name: "other")
    assert RECORD.standing(NAME, "content") == Standing(CellState.STALE, "the fixture changed")


def test_every_fact_changes_the_key() -> None:
    facts = Facts("a", "b", "c")
    others = [Facts("x", "b", "c"), Facts("a", "x", "c"), Facts("a", "b", "x")]
    assert len({facts.key, *(other.key for other in others)}) == 4
    assert [bool(facts.changed(other)) for other in (facts, *others)] == [False, True, True, True]


def test_an_unknown_cell_is_missing() -> None:
    other = CellName("v0.31.0", "cpu", "carried", "release")
    assert RECORD.standing(other, "content") == Standing(CellState.MISSING)
    mutants = CellName("v0.32.0", "cpu", "carried", "release", "mutants")
    assert RECORD.standing(mutants, "content") == Standing(CellState.MISSING)


def test_a_cell_that_could_not_run_proves_nothing() -> None:
    record = RECORD.record_error(NAME, EnvironmentLacks("no disk"), "content", "c0ffee", NOW)
    standing = record.standing(NAME, "content")
    assert (standing.state, standing.reason) == (CellState.STALE, "it could not run: no disk")
    assert not record.cells[NAME].passed


def test_each_set_of_runs_has_a_fixture_of_its_own() -> None:
    names = [CellName("v0.32.0", "cpu", "carried", "release", runs) for runs in ("usual", "modes")]
    assert len({verified.fixture_of(name) for name in names}) == len(names)


def test_a_run_that_a_release_cannot_make_is_no_part_of_its_fixture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [CellName(release, "cpu", "stock", "release") for release in ("v0.19.1", "v0.20.0")]
    before = [verified.fixture_of(name) for name in names]
    digests = list(verified.run_digests("usual"))
    (last,) = [place for place, run in enumerate(run_set("usual")) if run.name == "mtp one token"]
    digests[last] = "other"
    monkeypatch.setattr(verified, "run_digests", lambda _runs: tuple(digests))
    after = [verified.fixture_of(name) for name in names]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False]


def wheel(path: Path, *, number: int = 1, text: str = "x = 1", needs: str = "torch==2") -> Path:
    info = f"vllm_cpu-0.32.0+exaone.{number}.dist-info"
    metadata = f"Name: vllm-cpu\nVersion: 0.32.0+exaone.{number}\nRequires-Dist: {needs}\n\n"
    rows = [f"vllm/a.py,sha256={text},5", f"{info}/METADATA,sha256={number},7", f"{info}/RECORD,,"]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vllm/a.py", text)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/RECORD", "\n".join(rows) + "\n")
    return path


def test_another_build_number_is_the_same_content(tmp_path: Path) -> None:
    first, second = wheel(tmp_path / "1.whl"), wheel(tmp_path / "2.whl", number=2)
    assert content_of(first) == content_of(second)


@pytest.mark.parametrize("change", [{"text": "x = 2"}, {"needs": "torch==2,<3"}])
def test_another_file_or_requirement_is_another_content(
    tmp_path: Path, change: dict[str, str]
) -> None:
    assert content_of(wheel(tmp_path / "1.whl")) != content_of(wheel(tmp_path / "2.whl", **change))


def test_a_file_without_a_record_is_no_wheel(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"PK")
    with pytest.raises(BadInput, match=r"a\.whl"):
        content_of(tmp_path / "a.whl")


def test_recording_one_cell_keeps_the_others() -> None:
    stock = CellName("v0.32.0", "cpu", "stock", "release")
    both = RECORD.record(stock, report(stock=True), "stock", "", NOW)
    assert both.cells[NAME] == RECORD.cells[NAME]
    assert set(both.cells) == {NAME, stock}


def test_of_two_records_the_younger_cell_counts() -> None:
    other = CellName("v0.14.0", "cpu", "carried", "release")
    later = Verified({}).record(NAME, report(), "newer", "beef", NOW + datetime.timedelta(days=1))
    both = RECORD.joined(later.record(other, report(), "old", "beef", NOW))
    assert [both.cells[name].commit for name in (NAME, other)] == ["beef", "beef"]
    assert later.joined(RECORD) == later


def test_a_saved_record_is_read_back_and_sorted(tmp_path: Path) -> None:
    file = tmp_path / "verified.json"
    older = CellName("v0.14.0", "cpu", "carried", "release")
    record = RECORD.record(older, report(release="v0.14.0"), "old", "beef", NOW)
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


def test_the_subset_for_every_change_has_the_oldest_engine_and_the_newest() -> None:
    settings = Settings.load(Path(__file__).parent)
    assert settings.verify_on_change[0] == f"v{FIRST}"
    assert settings.verify_on_change[-1] == settings.default_ref
    assert len(set(settings.verify_on_change)) == len(settings.verify_on_change)
