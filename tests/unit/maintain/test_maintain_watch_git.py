"""A watch of a git source: its releases, and a branch that moves."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.unit.maintain.test_maintain_bisect import BASE, Following, following  # noqa: F401
from tools.maintain.line import obtain_offered, project_line
from tools.maintain.watch import Plan, Watched, inputs_digest, wanted_refs, watch
from tools.maintain.watched import Result, Stage

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
            tell=lambda _record: None,
            notify=lambda _line: None,
        )

    return run


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
