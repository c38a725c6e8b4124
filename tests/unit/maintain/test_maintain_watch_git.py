"""A watch of a git source: its releases, and a branch that moves."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.specifiers import SpecifierSet

from tests.unit.maintain.test_maintain_bisect import BASE, Following, following  # noqa: F401
from tests.unit.wheel.wheel_sample import make_wheel_in
from tools.cli.shipping import wheel_request
from tools.maintain.line import obtain_offered, project_line
from tools.maintain.ship import WheelRequest
from tools.maintain.watch import Plan, Watched, inputs_digest, wanted_refs, watch
from tools.maintain.watched import Result, Stage
from tools.settings import Narrowing
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.verified import WATCHED, CellName, load
from tools.upstream import obtain

UserGit = Callable[..., str]


@pytest.fixture
def see(following: Following, tmp_path: Path) -> Callable[[], Watched]:  # noqa: F811
    """Watch the source from v1.1.0 on, and its branch main."""

    def run() -> Watched:
        rows = wanted_refs(following.store, "git", "v1.1.0", branches=["main"])
        return watch(
            tmp_path / "watch.json",
            Plan(rows, Stage.BUILD, inputs_digest(following.carrier)),
            partial(obtain_offered, following.store, notify=lambda _line: None),
            project_line(following.carrier, following.store.settings, "cpu", lambda _line: None),
            tell={},
            notify=lambda _line: None,
        )

    return run


def test_a_tag_that_was_moved_is_taken_up_once(
    see: Callable[[], Watched],
    following: Following,  # noqa: F811
    user_git: UserGit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store went on giving the commit of before, so that the tag was due in every run."""
    monkeypatch.setattr("tools.maintain.line.built_wheel", lambda *_a: Path("held.whl"))
    see()
    (following.path / "vllm/m.py").write_bytes(b"import ast\n" + BASE)
    user_git(following.path, "commit", "-qam", "Release again (#9)")
    user_git(following.path, "tag", "-f", "v1.3.0")
    tip = user_git(following.path, "rev-parse", "HEAD").strip()
    moved = see()
    assert [(w.record.ref, w.record.commit) for w in moved.worked] == [
        ("v1.3.0", tip), ("main", tip),
    ]  # fmt: skip
    assert moved.worked[0].record.stages[Stage.BUILD].result is Result.DONE
    assert see().worked == ()
    before = moved.state.before("v1.4.0", "a" * 40)
    assert before is not None
    assert (before.ref, before.commit) == ("v1.3.0", tip)


def test_the_line_builds_the_wheel_that_build_ships(
    following: Following,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It left the narrowed requirements out: another wheel, under the name of the shipped one."""
    asked: list[WheelRequest] = []
    monkeypatch.setattr(
        "tools.maintain.line.built_wheel",
        lambda _carried, request: asked.append(request) or Path("held.whl"),
    )
    narrow = (Narrowing(SpecifierSet(">=1.1"), (("numpy", "<2.4"),)),)
    settings = replace(following.store.settings, narrow=narrow, root=tmp_path)
    line = project_line(following.carrier, settings, "cpu", lambda _line: None)
    for ref in ("v1.0.0", "v1.1.0"):
        line.build(following.carrier.carry(obtain(following.store, ref, "git")))
    project = SimpleNamespace(settings=settings, directory=lambda ref, _: tmp_path / "build" / ref)
    shipped = [
        wheel_request(project, ref, None, "cpu", None)  # type: ignore[arg-type]
        for ref in ("v1.0.0", "v1.1.0")
    ]
    assert asked == shipped
    assert [request.amendments.narrow for request in asked] == [(), (("numpy", "<2.4"),)]


def test_what_the_line_ran_is_there_for_a_proposal(
    following: Following,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A watch's smoke reached no pull request: the proposal read another record."""
    wheel = make_wheel_in(tmp_path / "dist")
    checks = (Check("published", "text", Verdict.PASSED, "", 1.0),)
    monkeypatch.setattr(
        "tools.maintain.line.smoke",
        lambda ref, **_k: SmokeReport(ref, "cpu", False, wheel.name, "", {}, checks, 1.0),
    )
    record = tmp_path / WATCHED
    line = project_line(
        following.carrier, following.store.settings, "cpu", lambda _line: None, record
    )
    carried = following.carrier.carry(obtain(following.store, "v1.1.0", "git"))
    assert line.smoke(carried, wheel).passed
    ((name, cell),) = load(record).cells.items()
    assert name == CellName("v1.1.0", "cpu", "carried", "release", "usual")
    assert (cell.commit, cell.passed) == (carried.commit, True)


def test_a_branch_is_taken_up_again_when_it_moved(
    see: Callable[[], Watched],
    following: Following,  # noqa: F811
    user_git: UserGit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tools.maintain.line.build_wheel", lambda *_a: pytest.fail("no wheels here")
    )
    monkeypatch.setattr("tools.maintain.line.built_wheel", lambda *_a: Path("held.whl"))
    first = see()
    assert [w.record.ref for w in first.worked] == ["v1.1.0", "v1.2.0", "v1.3.0", "main"]
    assert [record.ref for record in first.standing] == ["v1.2.0", "v1.3.0", "main"]
    released = first.worked[0].record
    assert (released.source, released.stages[Stage.BUILD].summary) == ("git", "held.whl")
    assert released.stages[Stage.CONTRACT].result is Result.DONE
    assert see().worked == ()
    (following.path / "vllm/m.py").write_bytes(BASE)
    user_git(following.path, "commit", "-qam", "Take it back (#8)")
    tip = user_git(following.path, "rev-parse", "HEAD").strip()
    (moved,) = see().worked
    assert (moved.record.ref, moved.record.commit) == ("main", tip)
    assert moved.record.stages[Stage.CARRY].facts["0001-add"] == "clean"
    assert moved.record.stages[Stage.BUILD].result is Result.SKIPPED
    assert moved.record.needs == ()
