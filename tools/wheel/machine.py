"""What this machine has, asked without changing anything."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import requests
from packaging.version import InvalidVersion, Version
from uv import find_uv_bin

SECONDS = 10.0
RESOLVE_SECONDS = 120.0


class Machine(Protocol):
    """The questions that a preflight asks."""

    def version_of(self, program: str, option: str) -> Version | None:
        """Return the version that a program on PATH prints, or None where it is not there."""
        ...

    def has_header(self, name: str, *, cuda: bool = False) -> bool:
        """Tell whether the C++ or CUDA compiler finds a header."""
        ...

    def is_directory(self, path: str) -> bool:
        """Tell whether a path is a directory; "" is none."""
        ...

    def processors(self) -> int:
        """Return how many processors this process may use."""
        ...

    def free_memory(self) -> int:
        """Return how many bytes may still be used, the control group's limit included."""
        ...

    def unresolvable(self, requirements: Sequence[str]) -> str | None:
        """Return why the package index does not give these requirements, or None."""
        ...

    def unreachable(self, urls: Iterable[str]) -> frozenset[str]:
        """Return those repositories that git could not clone from here."""
        ...


@dataclass(frozen=True)
class LocalMachine:
    """The machine that this runs on.

    Attributes:
        seconds: How long a program or a server may take to answer.
        root: Where ``proc`` and ``sys`` are.
    """

    seconds: float = SECONDS
    root: Path = Path("/")

    def version_of(self, program: str, option: str) -> Version | None:
        """See :meth:`Machine.version_of`; ``CXX`` is asked in place of ``g++``."""
        command = os.environ.get("CXX", program) if program == "g++" else program
        answer = self._output([command, option])
        if answer is None:
            return None
        numbers = re.findall(r"\d+(?:\.\d+)+", answer) or re.findall(r"\d+", answer)
        try:
            # nvcc prints its release last, the others print it first.
            return Version(numbers[-1 if program == "nvcc" else 0])
        except (IndexError, InvalidVersion):
            return Version("0")

    def has_header(self, name: str, *, cuda: bool = False) -> bool:
        """See :meth:`Machine.has_header`."""
        command = ["nvcc", "-x", "cu"] if cuda else [os.environ.get("CXX", "g++"), "-x", "c++"]
        return self._output([*command, "-E", "-"], f"#include <{name}>\n") is not None

    def is_directory(self, path: str) -> bool:
        """See :meth:`Machine.is_directory`."""
        return bool(path) and Path(path).is_dir()

    def processors(self) -> int:
        """See :meth:`Machine.processors`."""
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def free_memory(self) -> int:
        """See :meth:`Machine.free_memory`."""
        meminfo = (self.root / "proc/meminfo").read_text("ascii", "replace")
        available = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
        free = int(available[1]) * 1024 if available else 0
        group = self.root / "sys/fs/cgroup"
        try:
            limit = (group / "memory.max").read_text("ascii").strip()
            used = int((group / "memory.current").read_text("ascii"))
        except (OSError, ValueError):
            return free
        return free if not limit.isdigit() else min(free, max(0, int(limit) - used))

    def unresolvable(self, requirements: Sequence[str]) -> str | None:
        """See :meth:`Machine.unresolvable`; nothing is downloaded but metadata."""
        command = [find_uv_bin(), "pip", "compile", "--quiet", "--no-deps", "-"]
        try:
            done = subprocess.run(
                command,
                input="\n".join(requirements),
                capture_output=True,
                text=True,
                timeout=RESOLVE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "the package index does not answer"
        if done.returncode == 0:
            return None
        # uv draws a tree in front of its sentences.
        lines = [re.sub(r"^\W+", "", line) for line in done.stderr.splitlines()]
        return " ".join(" ".join(filter(None, lines)).split()) or "uv cannot resolve them"

    def unreachable(self, urls: Iterable[str]) -> frozenset[str]:
        """See :meth:`Machine.unreachable`."""
        listed = list(dict.fromkeys(urls))
        with ThreadPoolExecutor(max_workers=8) as pool:
            answers = list(pool.map(self._answers, listed))
        return frozenset(url for url, fine in zip(listed, answers, strict=True) if not fine)

    def _answers(self, url: str) -> bool:
        # The request that git itself begins a clone with.
        address = f"{url.rstrip('/')}/info/refs"
        try:
            with requests.get(
                address,
                params={"service": "git-upload-pack"},
                timeout=self.seconds,
                stream=True,
            ) as answer:
                return answer.status_code == requests.codes.ok
        except requests.RequestException:
            return False

    def _output(self, command: list[str], text: str = "") -> str | None:
        if shutil.which(command[0]) is None:
            return None
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                timeout=self.seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None
