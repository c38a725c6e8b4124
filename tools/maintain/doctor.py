"""What this machine has of what the tools need, each with how to get it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.errors import ToolError
from tools.upstream.index import Index
from tools.wheel.build import resolve_device

_GIT = (2, 38)  # the first with `merge-tree --write-tree`
_GIB = 1 << 30
_DISK = 15 * _GIB  # one engine environment (6 GB), uv's cache of it, the store and two wheels


@dataclass(frozen=True)
class Finding:
    """One thing that is needed: what was found, and how to get it where it is lacking."""

    name: str
    found: str
    lacking: bool
    advice: str


def examine(cache: Path) -> tuple[Finding, ...]:
    """Look at this machine.

    Args:
        cache: The cache directory, which need not exist.
    """
    return tuple(_examine(cache))


def _examine(cache: Path) -> Iterator[Finding]:
    version = sys.version_info
    yield Finding(
        "python", f"{version[0]}.{version[1]}.{version[2]}", version < (3, 11), "install 3.11+"
    )
    yield _git()
    yield _program("uv", ["uv", "--version"], "pip install uv")
    yield _program("nox", ["nox", "--version"], "pip install nox")
    yield _writable(cache)
    free = shutil.disk_usage(_existing(cache)).free
    advice = f"free {_DISK // _GIB} GiB at {cache}"
    yield Finding("disk", f"{free / _GIB:.0f} GiB free", free < _DISK, advice)
    yield _answer("package index", lambda: f"{len(Index.configured(cache).files('vllm'))} files")
    yield Finding("device", resolve_device("auto"), lacking=False, advice="")


def _git() -> Finding:
    wanted = ".".join(map(str, _GIT))
    found = _program("git", ["git", "--version"], f"install git {wanted} or newer")
    numbers = [part for part in found.found.split() if part[:1].isdigit()]
    if found.lacking or not numbers:
        return found
    held = tuple(int(part) for part in numbers[0].split(".")[:2])
    return Finding("git", found.found, held < _GIT, found.advice)


def _program(name: str, command: list[str], advice: str) -> Finding:
    if shutil.which(command[0]) is None:
        return Finding(name, "not on PATH", lacking=True, advice=advice)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines() or ["no answer"]
    return Finding(name, lines[0], done.returncode != 0, advice)


def _writable(cache: Path) -> Finding:
    place = _existing(cache)
    lacking = not os.access(place, os.W_OK | os.X_OK)
    return Finding("cache", str(cache), lacking, f"make {place} writable, or set VLLM_EXAONE_CACHE")


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _answer(name: str, ask: Callable[[], str]) -> Finding:
    try:
        return Finding(name, ask(), lacking=False, advice="")
    except ToolError as error:
        return Finding(name, error.message, lacking=True, advice=error.hint)
