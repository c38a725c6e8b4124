import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.smoke import engine, jobs

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


CHILDREN = engine.CHILD.parent
# A server's child whose jobs do what their steps say; ``imported`` counts its own starts.
FAKE = f"""
import json, os, sys, time
sys.path.insert(0, {str(CHILDREN)!r})
import serving

def work(job):
    if job["engine"].get("kill"):
        os.kill(os.getppid(), 9)
        time.sleep(60)
    state = job["engine"]["state"]
    open(state, "a").write(f"{{os.getpid()}} {{os.getppid()}} {{os.environ.get('SEEN', '')}}\\n")
    result = {{"versions": {{"vllm": "1"}}, "start": {{"seconds": 2.0}}, "steps": {{}}}}
    def write(): json.dump(result, open(job["result"], "w"))
    if job["needs"]:
        result["start"] = {{"skipped": "needs more"}}
        write()
        return 4
    if job["engine"].get("broken"):
        result["start"] = {{"error": "OSError: no start"}}
        write()
        return 4
    write()
    for step in job["steps"]:
        if step["do"] == "die":
            os.kill(os.getpid(), 9)
        if step["do"] == "linger":
            child = os.fork()
            if child == 0:
                time.sleep(60)
            open(state + ".child", "w").write(str(child))
            time.sleep(0 if job["engine"].get("quick") else 60)
        result["steps"][step["name"]] = {{"seconds": 1.0}}
        if step["do"] == "raise":
            result["steps"][step["name"]]["error"] = "TypeError: " + step["name"]
        write()
        if step["do"] == "raise":
            return 3
    return 0

if sys.argv[2:] == ["broken"]:
    raise ImportError("no such module")
serving.serve(work, int(sys.argv[1]))
"""


@dataclass
class Fake:
    """A server of fake engines, and what they noted of themselves."""

    server: jobs.Server
    state: Path

    @property
    def starts(self) -> list[list[str]]:
        """Own process, parent process and the variable SEEN of each engine start."""
        return [line.split(" ") for line in self.state.read_text().splitlines()]

    def ask(self, *actions: str, **extra: object) -> list[str]:
        steps = [{"name": f"{index}", "do": action} for index, action in enumerate(actions)]
        more = {key: extra.pop(key) for key in ("more", "timeout", "needs") if key in extra}
        found = engine.run_engine(self.server, {"state": str(self.state), **extra}, steps, **more)
        return [found.steps[step["name"]].error for step in steps]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    child = tmp_path / "child.py"
    child.write_text(FAKE)
    with jobs.Server(PYTHON, child, preload=(), env={}) as server:
        yield Fake(server, tmp_path / "state")


def test_all_steps_go_into_one_engine(fake: Fake) -> None:
    assert fake.ask("answer", "answer") == ["", ""]
    assert len(fake.starts) == 1


def test_steps_after_one_that_raised_get_a_new_engine(fake: Fake) -> None:
    assert fake.ask("answer", "raise", "answer", "answer") == ["", "TypeError: 1", "", ""]
    assert len(fake.starts) == 2


def test_a_death_counts_for_the_step_it_happened_in(fake: Fake) -> None:
    errors = fake.ask("answer", "die", "answer")
    assert errors[0] == errors[2] == ""
    assert errors[1].startswith("ended by signal 9")
    assert len(fake.starts) == 2


def test_an_engine_that_does_not_start_fails_every_step_once(fake: Fake) -> None:
    assert fake.ask("answer", "answer", broken=True) == ["OSError: no start"] * 2
    assert len(fake.starts) == 1


def test_an_engine_that_does_not_fit_skips_every_step(fake: Fake) -> None:
    steps = [{"name": name, "do": "answer"} for name in ("a", "b")]
    found = engine.run_engine(fake.server, {"state": str(fake.state)}, steps, needs=engine.Needs(1))
    assert {step.skipped for step in found.steps.values()} == {"needs more"}
    assert [*found.steps] == ["a", "b"]


def test_engines_are_forks_of_one_server_with_variables_of_their_own(fake: Fake) -> None:
    fake.ask("answer", more={"SEEN": "1"})
    fake.ask("answer")
    (first, parent, seen), (second, same, unseen) = fake.starts
    assert (first != second, parent == same) == (True, True)
    assert (seen, unseen) == ("1", "")


def test_a_server_that_died_is_started_again(fake: Fake) -> None:
    (error,) = fake.ask("answer", kill=True)
    assert error.startswith("ended by signal 9")
    assert fake.ask("answer") == [""]


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    child = tmp_path / "child.py"
    child.write_text(FAKE)
    with jobs.Server(PYTHON, child, preload=("broken",), env={}) as server:
        (error,) = Fake(server, tmp_path / "state").ask("answer")
    assert error == "exit status 1: ImportError: no such module"


def ended(file: Path) -> bool:
    deadline = time.monotonic() + 10
    while alive(int(file.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(int(file.read_text()))


def test_an_engine_that_takes_too_long_is_killed_with_its_children(fake: Fake) -> None:
    assert fake.ask("linger", timeout=1) == ["no result after 1 s"]
    assert ended(fake.state.with_name("state.child"))


def test_what_an_engine_started_does_not_outlive_it(fake: Fake) -> None:
    assert fake.ask("linger", quick=True) == [""]
    assert ended(fake.state.with_name("state.child"))


def test_an_interrupted_caller_leaves_no_engine_behind(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_arguments: object) -> None:
        while not (fake.state.with_name("state.child")).is_file():
            time.sleep(0.05)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs.Server, "_answer", interrupt)
        with pytest.raises(KeyboardInterrupt), fake.server:
            fake.ask("linger")
    assert ended(fake.state.with_name("state.child"))


def test_a_long_error_is_cut() -> None:
    assert len(engine.shorten("x" * 1000)) == engine.ERROR_LENGTH
