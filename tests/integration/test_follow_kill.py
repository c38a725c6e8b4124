"""A watch over upstream's real releases, killed again and again, ends as one that was not.

``WATCH_KILLS=50`` kills it fifty times on its way from v0.17.0 to the newest release (half an hour
on a busy machine); without, three times on the way over three releases.
"""

import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rehearsal import Rehearsal
from tools.cli.common import Project
from tools.maintain.watched import read_state

pytestmark = [pytest.mark.network, pytest.mark.timeout(10_800)]

LOG = logging.getLogger(__name__)
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("WATCH_KILLS", "3"))
START, END = ("v0.17.0", "") if KILLS > 10 else ("v0.19.0", "v0.20.0")


@pytest.fixture
def project_root(tmp_path: Path, real_releases: Path) -> Path:
    """A project whose series was written on v0.17.0, so that later releases ask for a person."""
    root = tmp_path / "project"
    Rehearsal(Project(), "v0.17.0", tmp_path).write_to(root)
    return root


def command(state: Path, *more: str) -> list[str]:
    words = [sys.executable, "-m", "tools", "watch", "--since", START, "--until", "contract"]
    words += ["--to", END] if END else []
    return [*words, "--state", str(state), *more]


def run(root: Path, state: Path, *more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command(state, *more),
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def killed(root: Path, state: Path, seconds: float) -> bool:
    """Start a watch and kill it after a time; return whether it was still at work."""
    process = subprocess.Popen(
        command(state),
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def test_kills_at_random_moments_change_nothing(
    project_root: Path, real_releases: Path, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    # What goes on is to go on by the state, and not by reports that the killed watch kept.
    reports = real_releases / "contract/reports"
    shutil.rmtree(reports, ignore_errors=True)
    began = time.monotonic()
    first = run(project_root, whole)
    walk = time.monotonic() - began
    assert first.returncode == 1, first.stderr  # releases that ask for a backport
    expected = whole.read_bytes()
    seen = len(read_state(whole).records)
    assert seen >= (20 if not END else 3)
    began = time.monotonic()
    assert run(project_root, tmp_path / "none.json", "--dry-run").returncode == 0
    startup = time.monotonic() - began
    draw = random.Random(KILLS)
    kills, places = 0, set()
    while kills < KILLS:
        shutil.rmtree(reports, ignore_errors=True)
        if killed(project_root, cut, startup + draw.uniform(0, 2 * walk / KILLS)):
            kills += 1
            records = read_state(cut).records
            places.add((len(records), len(records[-1].stages) if records else 0))
        else:  # it was done before its time: from the start again
            assert cut.read_bytes() == expected
            cut.unlink()
    last = run(project_root, cut)
    assert last.returncode == 1, last.stderr
    assert cut.read_bytes() == expected
    assert len(places) >= min(KILLS, 10) // 3, "the kills were spread over the walk"
    left = [path.name for path in tmp_path.glob(".cut.json*")]
    assert left == []
    LOG.info("%d kills over %d releases, in %d places", kills, seen, len(places))


def test_a_second_watch_at_the_same_time_ends_with_5(project_root: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = subprocess.Popen(
        command(state),
        cwd=project_root,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stderr is not None
    line = first.stderr.readline()  # "v0.19.0: carry": it holds the state now
    assert "carry" in line
    first.send_signal(signal.SIGSTOP)  # with everything cached it would be done before the second
    second = run(project_root, state)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 5, second.stderr
    assert "another run holds the watch" in second.stderr
    _, rest = first.communicate()
    assert first.returncode == 1, rest
    assert read_state(state).records
