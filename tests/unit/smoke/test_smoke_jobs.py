import os
import sys
import time
from pathlib import Path

import pytest

from tools.smoke import engine, jobs
from tools.smoke.environment import Environment

PYTHON = Path(sys.executable)
READ = "import json, sys; job = json.load(open(sys.argv[1]))\n"


def script(directory: Path, text: str) -> Path:
    file = directory / "child.py"
    file.write_text(READ + text)
    return file


def run(directory: Path, text: str, timeout: float = 30, **job: object) -> jobs.Outcome:
    return jobs.run_job(PYTHON, script(directory, text), job, env={"SEEN": "1"}, timeout=timeout)


def test_a_child_gets_its_job_and_variables_and_returns_a_result(tmp_path: Path) -> None:
    text = "import os; json.dump([job['a'], os.environ['SEEN']], open(job['result'], 'w'))"
    assert run(tmp_path, text, a=5).result == [5, "1"]


def test_a_child_without_a_result_leaves_its_last_error(tmp_path: Path) -> None:
    outcome = run(tmp_path, "raise ValueError('no \u00e9')")
    assert (outcome.status, outcome.result) == (1, None)
    assert outcome.last_error == "ValueError: no \u00e9"


def test_the_last_error_is_found_before_later_chatter(tmp_path: Path) -> None:
    text = "print('pkg.errors.OddError: it broke'); print('bye: now')"
    assert run(tmp_path, text).last_error == "pkg.errors.OddError: it broke"


def test_a_silent_child_says_so(tmp_path: Path) -> None:
    assert run(tmp_path, "").last_error == "no output"


def test_python_path_does_not_reach_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    text = "import os; json.dump('PYTHONPATH' in os.environ, open(job['result'], 'w'))"
    assert run(tmp_path, text).result is False


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie still has its number; it runs no longer.
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_a_child_that_takes_too_long_is_killed_with_its_own_children(tmp_path: Path) -> None:
    text = (
        "import subprocess, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "json.dump(child.pid, open(job['result'], 'w'))\n"
        "time.sleep(60)\n"
    )
    outcome = run(tmp_path, text, timeout=3)
    assert outcome.status is None
    assert isinstance(outcome.result, int)
    deadline = time.monotonic() + 10
    while alive(outcome.result) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(outcome.result)


FAKE = """
import os
state = job['engine']['state']
count = int(open(state).read()) if os.path.exists(state) else 0
open(state, 'w').write(str(count + 1))
result = {'versions': {'vllm': '1'}, 'start': {'seconds': 2.0}, 'steps': {}}
def write(): json.dump(result, open(job['result'], 'w'))
if job['needed_bytes']:
    result['start'] = {'skipped': 'needs more'}
    write(); sys.exit(4)
if job['engine'].get('broken'):
    result['start'] = {'error': 'OSError: no start'}
    write(); sys.exit(4)
write()
for step in job['steps']:
    if step['do'] == 'die':
        os.kill(os.getpid(), 9)
    result['steps'][step['name']] = {'seconds': 1.0}
    if step['do'] == 'raise':
        result['steps'][step['name']]['error'] = 'TypeError: ' + step['name']
    write()
    if step['do'] == 'raise':
        sys.exit(3)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Environment, Path]:
    monkeypatch.setattr(engine, "CHILD", script(tmp_path, FAKE))
    root = tmp_path / "env"
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "python").symlink_to(sys.executable)
    return Environment(root, ""), tmp_path / "state"


def ask(fake: tuple[Environment, Path], *actions: str, **extra: object) -> tuple[list[str], int]:
    place, state = fake
    steps = [{"name": f"{index}", "do": action} for index, action in enumerate(actions)]
    found = engine.run_engine(place, {"state": str(state), **extra}, steps)
    return [found.steps[step["name"]].error for step in steps], int(state.read_text())


def test_all_steps_go_into_one_engine(fake: tuple[Environment, Path]) -> None:
    assert ask(fake, "answer", "answer") == (["", ""], 1)


def test_steps_after_one_that_raised_get_a_new_engine(fake: tuple[Environment, Path]) -> None:
    errors, starts = ask(fake, "answer", "raise", "answer", "answer")
    assert errors == ["", "TypeError: 1", "", ""]
    assert starts == 2


def test_a_death_counts_for_the_step_it_happened_in(fake: tuple[Environment, Path]) -> None:
    errors, starts = ask(fake, "answer", "die", "answer")
    assert errors[0] == errors[2] == ""
    assert errors[1].startswith("ended by signal 9")
    assert starts == 2


def test_an_engine_that_does_not_start_fails_every_step_once(
    fake: tuple[Environment, Path],
) -> None:
    errors, starts = ask(fake, "answer", "answer", broken=True)
    assert errors == ["OSError: no start"] * 2
    assert starts == 1


def test_an_engine_that_does_not_fit_skips_every_step(fake: tuple[Environment, Path]) -> None:
    place, state = fake
    steps = [{"name": name, "do": "answer"} for name in ("a", "b")]
    found = engine.run_engine(place, {"state": str(state)}, steps, needed_bytes=1)
    assert {step.skipped for step in found.steps.values()} == {"needs more"}
    assert [*found.steps] == ["a", "b"]


def test_a_long_error_is_cut(fake: tuple[Environment, Path]) -> None:
    assert len(engine.shorten("x" * 1000)) == engine.ERROR_LENGTH
