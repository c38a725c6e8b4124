"""Hermetic tests: each has its own HOME, git configuration, cache and dates."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A host that starts us in the background has SIGINT ignored, and so would have what tests start.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says how busy the machine is; benchmarks are for speed.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

_CLEARED = ("GIT_", "XDG_", "VLLM_", "HF_", "NOX_", "SOURCE_DATE_EPOCH")
_SHARED_CACHE = Path(
    os.environ.get("VLLM_EXAONE_TEST_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-exaone-tests"
)


@pytest.fixture(autouse=True)
def hermetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cut the test off from the user's settings; return its own HOME."""
    home = tmp_path / "home"
    home.mkdir()
    for name in list(os.environ):
        if name.startswith(_CLEARED):
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A Tester",
        "GIT_AUTHOR_EMAIL": "tester@invalid",
        "GIT_AUTHOR_DATE": "1700000000 +0000",
        "GIT_COMMITTER_NAME": "A Tester",
        "GIT_COMMITTER_EMAIL": "tester@invalid",
        "GIT_COMMITTER_DATE": "1700000000 +0000",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "VLLM_EXAONE_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    return home


@pytest.fixture(scope="session")
def shared_cache() -> Path:
    """A cache that tests marked ``network`` share, so that a release is fetched once."""
    _SHARED_CACHE.mkdir(parents=True, exist_ok=True)
    return _SHARED_CACHE


@pytest.fixture
def real_releases(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the test use the shared cache in place of its own; return it."""
    monkeypatch.setenv("VLLM_EXAONE_CACHE", str(shared_cache))
    return shared_cache


@pytest.fixture
def user_git(tmp_path: Path) -> Callable[..., str]:
    """A person's own git, run in a directory: ``user_git(cwd, "log", "-1")`` returns stdout."""

    def run(cwd: Path, *arguments: str, stdin: bytes = b"", ok: bool = True) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd, input=stdin, capture_output=True, check=False
        )
        assert not ok or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape")

    return run
