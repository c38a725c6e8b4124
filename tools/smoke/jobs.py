"""Child processes in other environments: a JSON job in, a JSON result and a log out."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOG_TAIL = 40


@dataclass(frozen=True)
class Outcome:
    """How a child process ended.

    Attributes:
        status: Its exit status; negative for a signal, None when its time was up.
        result: The JSON result it wrote last, or None when it wrote none.
        log: Its standard output and error together.
    """

    status: int | None
    result: dict[str, Any] | None
    log: str

    @property
    def last_error(self) -> str:
        """The last line of the log that looks like an exception, else its last line."""
        lines = [line.strip() for line in self.log.splitlines() if line.strip()]
        errors = [line for line in lines if _is_error(line)]
        return (errors or lines or ["no output"])[-1]


def _is_error(line: str) -> bool:
    head, separator, _ = line.partition(":")
    name = head.rsplit(" ", 1)[-1].rsplit(".", 1)[-1]
    return bool(separator) and name.isidentifier() and name.endswith(("Error", "Exception"))


def run_job(
    python: Path, script: Path, job: Mapping[str, Any], *, env: Mapping[str, str], timeout: float
) -> Outcome:
    """Run ``python script JOB`` and return its outcome.

    The child gets ``job`` with a ``result`` path added. It runs in a process group of its own,
    which is killed when the time is up or the caller is interrupted, so that no engine stays
    behind.

    Args:
        python: The environment's interpreter.
        script: A script that needs nothing but that environment.
        job: What to do, as JSON types.
        env: Variables to set besides the caller's own.
        timeout: Seconds until the child is killed.
    """
    with tempfile.TemporaryDirectory(prefix="exaone-job-") as scratch:
        work = Path(scratch)
        result, log, job_file = work / "result.json", work / "log", work / "job.json"
        job_file.write_text(json.dumps({**job, "result": str(result)}), encoding="utf-8")
        with log.open("wb") as output:
            # -P keeps the script's own directory out of the import path.
            child = subprocess.Popen(
                [python, "-P", script, job_file],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=work,
                env=_environment(env),
                start_new_session=True,
            )
            status: int | None
            try:
                status = child.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _kill_group(child)
        text = log.read_text(encoding="utf-8", errors="replace")
        answer = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None
    return Outcome(status, answer, text)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's variables without those that lead Python or vLLM astray."""
    astray = ("PYTHON", "VLLM_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(astray)}
    return {**kept, **extra}


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the child's process group and reap the child."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
