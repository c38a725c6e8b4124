"""bisect, survival and watch from the command line: exit codes, output, and the state on disk."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.small_project import NEW, OLD, SmallProject
from tests.unit.upstream.conftest import FakeIndex, index, sdist_of  # noqa: F401  (the fixture)
from tools.cli import following
from tools.errors import ToolError
from tools.maintain.watch import Watched, Worked
from tools.maintain.watched import Need, Record, Result, Stage, StageRecord, State

RELEASES = {"1.0.0": OLD, "1.1.0": b"import os\n" + OLD, "2.0.0": NEW}
SETTINGS = """
default-ref = "v1.1.0"
git-url = "/nowhere.git"
build-number = 1
"""


@pytest.fixture
def line(
    tmp_path: Path,
    user_git: Callable[..., str],
    index: FakeIndex,  # noqa: F811
) -> SmallProject:
    """A project, and an index with three releases, of which the last breaks the patch."""
    for version, content in RELEASES.items():
        index.files[f"vllm-{version}.tar.gz"] = sdist_of(version, {"vllm/run.py": content})
    return SmallProject(tmp_path / "project", SETTINGS, user_git, "Forwarded: no\n")


def test_a_watch_starts_at_the_default_ref_and_says_what_a_person_has_to_do(
    line: SmallProject,
) -> None:
    due = line.run("watch", "--dry-run", "--json")
    assert json.loads(due.stdout) == ["v1.1.0", "v2.0.0"], due.stderr
    assert not (line.root / "build").exists()
    first = line.run("watch", "--until", "carry", "--json")
    assert first.returncode == 1, first.stderr
    data = json.loads(first.stdout)
    assert [(row["ref"], row["done"]) for row in data["worked"]] == [
        ("v1.1.0", ["carry"]), ("v2.0.0", ["carry"]),
    ]  # fmt: skip
    assert data["blocked"] == ["v2.0.0"]
    assert "python -m tools resolve v2.0.0" in first.stderr
    second = line.run("watch", "--until", "carry", "--json")
    assert (second.returncode, json.loads(second.stdout)["worked"]) == (1, [])
    state = json.loads((line.root / "build/watch.json").read_bytes())
    assert [row["ref"] for row in state["refs"]] == ["v1.1.0", "v2.0.0"]


def test_a_watch_that_asks_nobody_ends_with_0_and_a_new_release_is_taken_up(
    line: SmallProject,
    index: FakeIndex,  # noqa: F811
) -> None:
    held = index.files.pop("vllm-2.0.0.tar.gz")
    state = str(line.root / "state.json")
    words = ("watch", "--since", "v1.0.0", "--until", "contract", "--state", state)
    first = line.run(*words)
    assert first.returncode == 0, first.stderr
    assert "v1.0.0" in first.stdout
    assert "nothing new upstream" in line.run(*words).stdout
    index.files["vllm-2.0.0.tar.gz"] = held
    for page in (line.root.parent / "cache/index").rglob("*.json"):
        page.unlink()  # ten minutes have passed
    third = line.run(*words)
    assert third.returncode == 1
    assert "v2.0.0" in third.stdout
    assert "v1.0.0" not in third.stdout


def test_a_machine_that_lacks_something_does_not_end_a_watch_with_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A runner without uv was green for ever."""
    lacking = StageRecord(Result.LACKING, "uv is not installed", remedy="install uv")
    waiting = StageRecord(Result.LACKING, "no wheel of 1.1.0")
    need = Need(Stage.CARRY, "0001-one", "in conflict", "resolve it")
    blocked = StageRecord(Result.FAILED, "1 conflict", needs=(need,))

    def ends(stages: dict[Stage, StageRecord]) -> tuple[int, str, str]:
        record = Record("v1.1.0", "a" * 40, "index", "0" * 64, stages, told=True)
        done = Watched((Worked(record, tuple(stages), 1.0),), State((record,)))
        with monkeypatch.context() as patch:
            patch.setattr(following, "Project", lambda _source: project)
            patch.setattr(following, "wanted_refs", lambda *_a, **_k: ())
            patch.setattr(following, "inputs_digest", lambda *_a: "")
            patch.setattr(following, "project_line", lambda *_a: None)
            patch.setattr(following, "watch", lambda *_a, **_k: done)
            out = io.StringIO()
            patch.setattr(sys, "stdout", out)
            code, said = 0, ""
            try:
                following.watch_command(as_json=True)
            except ToolError as error:
                code, said = error.exit_code, f"{error.message}: {error.hint}"
        return code, said, out.getvalue()

    settings = SimpleNamespace(root=tmp_path)
    project = SimpleNamespace(
        settings=settings, store=None, carrier=None, refs=lambda _refs: ["v1.1.0"]
    )
    assert ends({Stage.SMOKE: waiting})[0] == 0, "upstream has no wheel yet"
    code, said, printed = ends({Stage.SMOKE: lacking})
    assert code == 4
    assert "v1.1.0 smoke first: uv is not installed: install uv" in said
    assert json.loads(printed)["lacking"] == [
        {"ref": "v1.1.0", "stage": "smoke", "text": "uv is not installed", "advice": "install uv"}
    ]
    assert ends({Stage.CARRY: blocked, Stage.SMOKE: lacking})[0] == 1, "a person comes first"


def test_bisect_names_the_release(line: SmallProject) -> None:
    done = line.run("bisect", "0001-one", "--good", "v1.0.0", "--bad", "v2.0.0", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["release"], data["releases"]["last_good"]) == ("v2.0.0", "v1.1.0")
    assert data["releases"]["complete"]
    for words, code, message in (
        (("0001-one", "--good", "v1.0.0", "--bad", "v1.1.0"), 2, "v1.0.0 is bad already"),
        (("--good", "v1.0.0", "--bad", "v2.0.0"), 2, "nothing to ask for"),
        (("0001-one", "--good", "v1.0.0", "--bad", "main"), 3, "/nowhere.git cannot be read"),
    ):
        wrong = line.run("bisect", *words)
        assert wrong.returncode == code
        assert message in wrong.stderr
        assert "Traceback" not in wrong.stderr


def test_survival_writes_a_page_and_fails_on_a_field_that_is_not_true(line: SmallProject) -> None:
    page = line.root / "page.html"
    done = line.run("survival", "--since", "v1.0.0", "--html", str(page), "--json")
    assert done.returncode == 0, done.stderr
    (life,) = json.loads(done.stdout)["lives"]
    assert (life["whole"]["releases"], life["end"], life["ended"]) == (2, "conflict", "v2.0.0")
    assert "conflict at v2.0.0" in page.read_text()
    patch = line.root / "patches/0001-one.patch"
    patch.write_bytes(patch.read_bytes().replace(b"Forwarded: no", b"Applied-Upstream: v1.1.0"))
    wrong = line.run("survival", "--since", "v1.0.0")
    assert wrong.returncode == 1
    assert "Applied-Upstream says v1.1.0, but v1.1.0 still needs it" in " ".join(
        wrong.stdout.split()
    )
    assert "patches/0001-one.patch" in wrong.stderr
