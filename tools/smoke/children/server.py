"""A web server for as long as a block runs: started on a free port, awaited, always ended.

Nothing but the standard library, and no vLLM: any command that takes ``--host`` and ``--port`` and
answers ``/health`` will do. The server stays in the caller's process group, so who kills the group
kills it too.
"""

import contextlib
import http.client
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence

HOST = "127.0.0.1"
POLL_SECONDS = 0.5
STOP_SECONDS = 30.0


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def healthy(port: int) -> bool:
    """Say whether the server answers that it is well."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def await_health(process: "subprocess.Popen[bytes]", port: int, seconds: float) -> None:
    """Wait until the server is well.

    Raises:
        RuntimeError: It ended, or is not well in time.
    """
    deadline = time.monotonic() + seconds
    while not healthy(port):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode} while starting")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the server was not ready after {seconds:.0f} s")
        time.sleep(POLL_SECONDS)


def stop(process: "subprocess.Popen[bytes]") -> int:
    """End the server as a person would, by force where that does not help; return its status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(STOP_SECONDS)
    process.kill()
    return process.wait()


@contextlib.contextmanager
def served(command: Sequence[str], seconds: float) -> Iterator[str]:
    """Run the block with the server up; yield its address.

    Args:
        command: What to run, without host and port. Its output joins the caller's.
        seconds: How long it may take to start.

    Raises:
        RuntimeError: It does not come up.
    """
    port = free_port()
    process = subprocess.Popen(
        [*command, "--host", HOST, "--port", str(port)], stdin=subprocess.DEVNULL
    )
    try:
        await_health(process, port, seconds)
        yield f"http://{HOST}:{port}"
    finally:
        stop(process)
