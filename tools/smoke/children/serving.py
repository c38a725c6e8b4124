"""The child's end of :class:`tools.smoke.jobs.Server`: one job after another, each in a fork.

What takes long to import is imported once, before the first fork. Each job still has a process of
its own: whatever it does to modules, threads or the device is gone with it.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Job = dict[str, Any]
# PR_SET_PDEATHSIG of Linux: the signal that a process gets when its parent dies.
_DIE_WITH_PARENT = 1


def serve(work: Callable[[Job], int], answers: int) -> None:
    """Do the jobs whose files are named on standard input, a line each.

    Args:
        work: Does one job and returns the exit status; it runs in a fork.
        answers: A descriptor that gets the status of each job as one line of JSON: negative for a
            signal, null when its time was up.
    """
    with os.fdopen(answers, "w") as out, os.fdopen(os.dup(0), "rb", buffering=0) as orders:
        while line := orders.readline():
            job = json.loads(Path(os.fsdecode(line.rstrip(b"\n"))).read_text(encoding="utf-8"))
            pid = os.fork()
            if pid == 0:
                # An open end would hide the server's death from who waits for its answer.
                out.close()
                _become(work, job)
            status = _status(pid, float(job["timeout"]), orders.fileno())
            out.write(json.dumps(status) + "\n")
            out.flush()


def _become(work: Callable[[Job], int], job: Job) -> None:
    """Be the fork: a process group of its own, its log, its variables, its end."""
    status = 1
    try:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.update(job["variables"])
        status = work(job)
    except BaseException:  # a fork must never go on as its parent
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _status(pid: int, timeout: float, orders: int) -> int | None:
    """Wait for a fork and end all that it started; return its status, None when time was up.

    Nothing is ordered while a job runs, so a readable ``orders`` means that who ordered is gone.
    """
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle, orders], [], [], timeout)
    finally:
        os.close(handle)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _, raw = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(raw) if handle in ready else None
