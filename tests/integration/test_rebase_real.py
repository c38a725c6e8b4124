"""rebase on real releases, in a clone of the project whose older releases are out of support."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import run_tools
from tools.series import read_series

ROOT = Path(__file__).parents[2]
OLDEST, NEWEST = "v0.31.0", "v0.33.0"

pytestmark = pytest.mark.network


@pytest.fixture
def clone(tmp_path: Path, user_git: Callable[..., str], real_releases: Path) -> Path:
    user_git(tmp_path, "clone", "-q", str(ROOT), "clone")
    clone = tmp_path / "clone"
    settings = clone / "pyproject.toml"
    line = re.compile(r"^oldest-ref = .*$", re.MULTILINE)
    settings.write_text(line.sub(f'oldest-ref = "{OLDEST}"', settings.read_text()))
    user_git(clone, "commit", "-qam", f"Support {OLDEST} and newer")
    return clone


def test_what_only_older_releases_needed_leaves_the_series(
    clone: Path, tmp_path: Path, user_git: Callable[..., str]
) -> None:
    before = json.loads(run_tools(clone, "matrix", "--since", OLDEST, "--json").stdout)
    status = user_git(clone, "status", "--porcelain=v2", "--branch")
    body = tmp_path / "body.md"
    done = run_tools(clone, "rebase", "--to", NEWEST, "--json", "--body", str(body))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    actions = {patch["patch"]: patch["action"] for patch in data["patches"]}
    # The hooks of the model itself: upstream has it since v0.20.0.
    for name in ("0001-register-model", "0002-register-drafter", "0005-speculative-config"):
        assert actions[name] == "dropped"
    # Needed on v0.31.0 and v0.32.0, and carried everywhere, respectively.
    assert actions["0026-input-norm-built"] == "kept"
    assert actions["0003-register-config"] == "kept"
    assert data["mergeable_unattended"] is False
    assert "0001-register-model leaves the series" in data["reasons"]
    assert data["contract"]["compared_with"] == "v0.32.0"
    assert [f for f in data["contract"]["findings"] if f["severity"] == "error"] == []
    assert "dropped" in body.read_text()
    assert user_git(clone, "status", "--porcelain=v2", "--branch") == status

    again = json.loads(run_tools(clone, "rebase", "--to", NEWEST, "--json").stdout)
    assert (again["state"], again["commit"]) == ("unchanged", data["commit"])

    user_git(clone, "switch", "-q", "bot/rebase")
    left = {step.name for step in read_series(clone / "patches").steps}
    assert left == {name for name, action in actions.items() if action != "dropped"}
    after = json.loads(run_tools(clone, "matrix", "--since", OLDEST, "--json").stdout)
    trees = [[row["tree"] for row in found["refs"]] for found in (before, after)]
    assert trees[0] == trees[1]
    assert len(trees[0]) == 3
