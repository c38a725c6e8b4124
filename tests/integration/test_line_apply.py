"""The command line on a real release: what a user, a hostile machine and a kill make of it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
REF = "v0.19.1"


def tools(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m tools`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tools", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def applied(real_releases: Path, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """REF carried and checked out once: the output directory, and what ``--json`` said."""
    out = tmp_path / "build"
    done = tools("apply", REF, "--output", str(out), "--json")
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_applying_again_changes_nothing_and_says_so(
    applied: tuple[Path, dict[str, str]], user_git: Callable[..., str]
) -> None:
    out, first = applied
    again = json.loads(tools("apply", REF, "--output", str(out), "--json").stdout)
    assert (first["state"], again["state"]) == ("created", "unchanged")
    assert again["commit"] == first["commit"]
    source = out / REF / "src"
    assert user_git(source, "status", "--porcelain") == ""
    assert user_git(source, "rev-parse", "HEAD").strip() == first["commit"]


def test_git_am_of_the_export_gives_the_same_tree(
    applied: tuple[Path, dict[str, str]], user_git: Callable[..., str], tmp_path: Path
) -> None:
    out, first = applied
    listed = tools("export", REF, "--output", str(out))
    assert listed.returncode == 0, listed.stderr
    work = tmp_path / "am"
    user_git(tmp_path, "clone", "-q", "--shared", str(out / REF / "src"), str(work))
    user_git(work, "reset", "-q", "--hard", first["upstream"])
    user_git(work, "am", "-q", "--keep-cr", *listed.stdout.split())
    assert user_git(work, "rev-parse", "HEAD^{tree}").strip() == first["tree"]


HOSTILE = """
[core]
    attributesFile = {home}/attributes
    autocrlf = true
[merge]
    renameLimit = 1
[diff]
    renameLimit = 1
    noprefix = true
[i18n]
    commitEncoding = EUC-KR
"""


def test_hostile_user_settings_give_the_same_commit(
    applied: tuple[Path, dict[str, str]], hermetic: Path, tmp_path: Path
) -> None:
    (hermetic / ".gitconfig").write_text(HOSTILE.format(home=hermetic))
    (hermetic / "attributes").write_text("* merge=union\n")
    (hermetic / ".config/git").mkdir(parents=True)
    shutil.copy(hermetic / "attributes", hermetic / ".config/git/attributes")
    done = tools(
        "apply", REF, "--json", "--output", str(tmp_path / "other"),
        LC_ALL="tr_TR.UTF-8", TZ="Asia/Kathmandu", GIT_CONFIG_PARAMETERS="'merge.renames=false'",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["commit"] == applied[1]["commit"]
    again = tools("apply", REF, "--json", "--output", str(tmp_path / "other"))
    assert json.loads(again.stdout)["state"] == "unchanged"


@pytest.fixture
def cold_cache(real_releases: Path, tmp_path: Path) -> dict[str, str]:
    """A cache that holds the downloads of the shared one and no store."""
    assert tools("apply", "--dry-run", REF).returncode == 0
    cold = tmp_path / "cold"
    for name in ("downloads", "index"):
        shutil.copytree(real_releases / name, cold / name, copy_function=os.link)
    return {"VLLM_EXAONE_CACHE": str(cold)}


def test_apply_killed_at_any_moment_runs_again_to_the_same_result(
    applied: tuple[Path, dict[str, str]], cold_cache: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "tools", "apply", REF, "--json", "--output", str(out)]
    moments = random.Random(7)
    for _ in range(8):
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **cold_cache},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        time.sleep(moments.uniform(0.2, 4.0))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = tools("apply", REF, "--json", "--output", str(out), **cold_cache)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["commit"] == applied[1]["commit"]
    assert sorted(path.name for path in (out / REF).iterdir() if path.name != ".src.lock") == [
        "src"
    ]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interruption_has_its_exit_code_and_leaves_nothing_half_written(
    cold_cache: dict[str, str], tmp_path: Path, number: int, code: int
) -> None:
    out = tmp_path / "interrupted"
    process = subprocess.Popen(
        [sys.executable, "-m", "tools", "apply", REF, "--output", str(out)],
        cwd=ROOT, env={**os.environ, **cold_cache}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    assert any("importing" in line for line in process.stderr)  # it is at work now
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in told
    assert not (out / REF / "src").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)],
        capture_output=True, check=False,
    )  # fmt: skip
    if mounted.returncode != 0:
        pytest.skip("lacks the right to mount a small tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_full_disk_is_one_clear_line_and_leaves_nothing(
    real_releases: Path, small_disk: Path
) -> None:
    done = tools("apply", REF, "--output", str(small_disk))
    assert done.returncode == 4
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in (small_disk / REF).iterdir() if path.name != ".src.lock"]


def test_read_only_output_is_one_clear_line(real_releases: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = tools("apply", REF, "--output", str(small_disk))
    assert done.returncode == 4
    assert "Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("ref", "code", "said"),
    [
        ("v9.9.9", 3, "nearest"),
        ("--upload-pack=x", 2, "not a ref"),
        ("v0.19.1/../x", 2, "not a ref"),
        ("v0.19..1", 2, "not a ref"),
    ],
)
def test_bad_refs(real_releases: Path, ref: str, code: int, said: str) -> None:
    done = tools("apply", "--", ref)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 3
