"""The releases that broke what is known to have been broken, named within seconds."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
SECONDS = 10


def bisect(*words: str) -> tuple[dict[str, Any], float]:
    """Return what bisect says, and the CPU time that it and its git took."""

    def used() -> float:
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    before = used()
    done = subprocess.run(
        [sys.executable, "-m", "tools", "bisect", *words, "--json"],
        cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), used() - before


@pytest.mark.parametrize(
    ("patch", "good", "bad", "named"),
    [
        ("0022-vision-sequence-lengths", "v0.20.0", "v0.23.0", "v0.22.0"),
        ("0024-input-norm-of-model", "v0.23.0", "v0.29.0", "v0.28.0"),
        ("0006-proposer-image-token", "v0.16.0", "v0.23.0", "v0.20.0"),
    ],
)
def test_the_release_is_named_within_seconds(
    real_releases: Path, patch: str, good: str, bad: str, named: str
) -> None:
    words = (patch, "--good", good, "--bad", bad)
    bisect(*words)  # brings the releases and what the patches were written on into the store
    found, seconds = bisect(*words)
    assert found["release"] == named
    assert found["releases"]["complete"]
    assert found["releases"]["monotonic"]
    assert seconds < SECONDS


@pytest.mark.parametrize(
    ("code", "good", "bad", "named"),
    [
        ("CT201:sequence_lengths", "v0.20.0", "v0.23.0", "v0.22.0"),
        ("CT221", "v0.24.0", "v0.32.0", "v0.28.0"),
    ],
)
def test_upstreams_own_contract_says_the_same(
    real_releases: Path, code: str, good: str, bad: str, named: str
) -> None:
    found, _seconds = bisect("--stock", "--contract", code, "--good", good, "--bad", bad)
    assert found["release"] == named


def test_where_upstream_mended_it_can_be_asked_for(real_releases: Path) -> None:
    found, _seconds = bisect(
        "0022-vision-sequence-lengths", "--outcome", "not-needed",
        "--good", "v0.22.0", "--bad", "v0.25.0",
    )  # fmt: skip
    assert (found["release"], found["releases"]["monotonic"]) == ("v0.24.0", True)
