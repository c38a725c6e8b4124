"""Runs in an engine environment with pytest: upstream's tests, and the outcome of each.

``python pytest_child.py JOB`` reads a JSON job and writes the JSON result that it names, again
every few tests, so that a crash keeps what was done.
"""

import gc
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
child = importlib.import_module("child")

EVERY = 25
# An outcome replaces those before it: a test can pass and fail in its teardown.
RANKS = ("passed", "skipped", "failed")


class Outcomes:
    """A pytest plugin that keeps the outcome of each test, and of modules that are no tests.

    Args:
        target: Where the result is written.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.running = ""

    def note(self, name: str, outcome: str, reason: str) -> None:
        """Keep an outcome where it is worse than the one before."""
        before = self.outcomes.get(name, RANKS[0])
        self.outcomes[name] = max(before, outcome, key=RANKS.index)
        if outcome == "failed":
            self.reasons.setdefault(name, reason)

    def write(self) -> None:
        """Write what is known so far."""
        found = {name: [what, self.reasons.get(name, "")] for name, what in self.outcomes.items()}
        child.write_result({"outcomes": found, "running": self.running}, self.target)

    def pytest_collectreport(self, report: Any) -> None:
        """Keep modules that cannot be imported."""
        if report.outcome != "passed":
            self.note(report.nodeid, report.outcome, last_line(report))

    def pytest_collection_finish(self) -> None:
        """Take what was imported out of the garbage collection that upstream does after a test.

        It takes back into it what was taken out, which would cost a second or more a test.
        """
        gc.collect()
        gc.freeze()
        vars(gc)["unfreeze"] = lambda: None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember what runs, for a crash."""
        self.running = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the outcome of a test's setup, call or teardown."""
        self.note(report.nodeid, report.outcome, last_line(report))
        if report.when == "teardown" and len(self.outcomes) % EVERY == 0:
            self.write()

    def pytest_sessionfinish(self) -> None:
        """Write everything."""
        self.running = ""
        self.write()


def last_line(report: Any) -> str:
    """Return the line of a report that says what went wrong, or ""."""
    crash = getattr(getattr(report, "longrepr", None), "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr or "").strip().splitlines()
    return lines[0 if crash else -1] if lines else ""


def main(job_file: str) -> int:
    """Run the tests of a job; return 0 where pytest ran them, whatever came out."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    os.chdir(job["root"])
    # As `python -m pytest` does: the tests import each other from there.
    sys.path.insert(0, job["root"])
    pytest = importlib.import_module("pytest")
    status = pytest.main(job["arguments"], plugins=[Outcomes(Path(job["result"]))])
    return 0 if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
