"""Child processes in other environments: a JSON job in, a JSON result and a log out."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# How long a server may take to end what runs.
STOP_SECONDS = 10.0


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


class Server:
    """A child process that does one job after another, each in a fork of itself.

    The script's side is ``children/serving.py``. A server that died is started again by the next
    job. What its forks started dies with each job, and all of it when the server is closed or the
    process that holds it dies.

    Args:
        python: The environment's interpreter.
        script: The script, which gets the answers' descriptor and ``preload`` as arguments.
        preload: Modules to import before the first fork.
        env: Variables to set besides the caller's own.
    """

    def __init__(
        self, python: Path, script: Path, *, preload: Sequence[str], env: Mapping[str, str]
    ) -> None:
        self._command = [str(python), "-P", str(script)]
        self._preload = list(preload)
        self._env = _environment(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: IO[str] | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="exaone-jobs-")

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._scratch.cleanup()

    def run(
        self, job: Mapping[str, Any], *, env: Mapping[str, str] | None = None, timeout: float
    ) -> Outcome:
        """Do one job and return its outcome.

        Args:
            job: What to do, as JSON types; it gets a ``result`` path added.
            env: Variables of this job alone.
            timeout: Seconds until the job is killed.
        """
        work = Path(tempfile.mkdtemp(dir=self._scratch.name))
        result, log, file = work / "result.json", work / "log", work / "job.json"
        paths = {"result": str(result), "log": str(log)}
        ends = {"variables": dict(env or {}), "timeout": timeout}
        file.write_text(json.dumps({**job, **paths, **ends}), encoding="utf-8")
        status = self._status(file)
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        answer = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None
        return Outcome(status, answer, text or self._log.read_text("utf-8", "replace"))

    @property
    def _log(self) -> Path:
        return Path(self._scratch.name) / "server.log"

    def _status(self, file: Path) -> int | None:
        if self._process is None:
            self._process = self._start()
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(os.fsencode(file) + b"\n")
                process.stdin.flush()
        line = self._answer()
        if line:
            status: int | None = json.loads(line)
            return status
        # No answer: the server itself died.
        code = process.wait()
        self._stop()
        return code

    def _answer(self) -> str:
        return "" if self._answers is None else self._answers.readline()

    def _start(self) -> subprocess.Popen[bytes]:
        reading, writing = os.pipe()
        with self._log.open("wb") as output:
            process = subprocess.Popen(
                [*self._command, str(writing), *self._preload],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._scratch.name,
                env=self._env,
                pass_fds=(writing,),
                start_new_session=True,
            )
        os.close(writing)
        self._answers = os.fdopen(reading, "r")
        return process

    def _stop(self) -> None:
        """End the server: it kills what its fork started when its orders end."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        _kill_group(process)
        if self._answers is not None:
            self._answers.close()
        self._answers = None


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
