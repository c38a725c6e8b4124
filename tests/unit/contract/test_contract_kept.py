"""Reports that are kept: what names them, what makes them stale, and what a killed run leaves."""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tools.contract import Code, ContractReport, Finding, Severity, Site, kept
from tools.contract.dependencies import Name, RecordingIndex, answered_alike
from tools.contract.kept import Answer, Kept, KeptReports, key_of
from tools.errors import Unavailable
from tools.tree import MappingTree, Tree

FINDING = Finding(
    Code.SWITCH_UNSERVED,
    "vllm/a.py",
    7,
    "ein Schalter außerhalb von ASCII",
    (Site("vllm/a.py", 7, "A.run"), Site("vllm/b.py", 1)),
    "set it",
    Severity.WARNING,
    "v1.2.0",
    "-a\n+b\n",
    "A.switch",
)
REPORT = ContractReport((FINDING,), ("vllm/a.py",), (FINDING,), ("torch: no page",), (FINDING,))
ANSWER = Answer("torch", ">=2", "2.0,2.1")


class Versions:
    """An index of one distribution."""

    def __init__(self, *versions: str, reachable: bool = True) -> None:
        self.known = [Version(version) for version in versions]
        self.reachable = reachable

    def versions(self, _distribution: str, specifier: SpecifierSet) -> Sequence[Version]:
        if not self.reachable:
            raise Unavailable("there is no network")
        return list(specifier.filter(self.known))

    def present(
        self, _distribution: str, _version: Version, names: Iterable[Name]
    ) -> Mapping[Name, bool]:
        return dict.fromkeys(names, True)

    def tree(self, _distribution: str, _version: Version) -> Tree:
        return MappingTree({})


def test_a_kept_report_comes_back_whole(tmp_path: Path) -> None:
    reports = KeptReports(tmp_path / "deep" / "reports")
    held = Kept(REPORT, (ANSWER,), 5.0)
    reports.put("k", held)
    assert reports.get("k") == held
    assert reports.get("other") is None


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that is empty: the test's own also holds a home."""
    directory = tmp_path / "reports"
    directory.mkdir()
    return directory


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"format": 1}', b"\xff"])
def test_a_damaged_file_is_no_report(place: Path, content: bytes) -> None:
    (place / "k.json").write_bytes(content)
    assert KeptReports(place).get("k") is None


def test_a_report_of_another_format_is_no_report(place: Path) -> None:
    reports = KeptReports(place)
    reports.put("k", Kept(REPORT, (), 0.0))
    data = json.loads((place / "k.json").read_bytes())
    (place / "k.json").write_text(json.dumps(data | {"format": 0}))
    assert reports.get("k") is None


def test_tree_modules_baseline_and_checker_name_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {key_of("a", ["m"]), key_of("b", ["m"]), key_of("a", ["n"]), key_of("a", ["m"], "b")}
    monkeypatch.setattr(kept, "checker_digest", lambda: "another checker")
    assert len(names | {key_of("a", ["m"])}) == 5


def test_many_reports_leave_the_most_recently_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST", 3)
    reports = KeptReports(place)
    for number in range(3):
        reports.put(f"k{number}", Kept(REPORT, (), 0.0))
        os.utime(place / f"k{number}.json", (number, number))
    assert reports.get("k0")  # used just now: older by name alone
    reports.put("k3", Kept(REPORT, (), 0.0))
    assert sorted(file.stem for file in place.iterdir()) == ["k0", "k2", "k3"]


def test_what_a_killed_run_wrote_aside_goes_after_an_hour(place: Path) -> None:
    for name, age in ((".k.json.abandoned", 4_000), (".k.json.at-work", 10)):
        (place / name).write_bytes(b"half")
        os.utime(place / name, (time.time() - age,) * 2)
    KeptReports(place).put("k", Kept(REPORT, (), 0.0))
    assert sorted(file.name for file in place.iterdir()) == [".k.json.at-work", "k.json"]


def test_a_place_that_is_no_directory_keeps_nothing_and_breaks_nothing(place: Path) -> None:
    (place / "file").write_text("a file")
    reports = KeptReports(place / "file")
    reports.put("k", Kept(REPORT, (), 0.0))
    assert reports.get("k") is None


def test_answers_age_and_a_report_without_any_does_not() -> None:
    assert Kept(REPORT, (ANSWER,), 1_000.0).is_fresh(1_000.0 + 86_000)
    assert not Kept(REPORT, (ANSWER,), 1_000.0).is_fresh(1_000.0 + 87_000)
    assert not Kept(REPORT, (ANSWER,), 2_000.0).is_fresh(1_000.0)  # a clock that was set back
    assert Kept(REPORT, (), 0.0).is_fresh(1e12)


def test_an_index_with_a_new_version_answers_otherwise() -> None:
    recording = RecordingIndex(Versions("1.0", "2.0", "2.1"))
    recording.versions("torch", SpecifierSet(">=2"))
    assert recording.answers == {ANSWER}
    assert answered_alike(recording.answers, Versions("0.9", "2.0", "2.1"))
    assert not answered_alike(recording.answers, Versions("2.0", "2.1", "2.2"))
    assert answered_alike(recording.answers, Versions(reachable=False))
