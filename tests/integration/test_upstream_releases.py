"""Real releases, and what a killed run, a full disk or a cache without rights does to the store."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tools
from tools.errors import Unavailable
from tools.git import GitTree
from tools.settings import Settings
from tools.upstream import Store, list_releases, obtain

pytestmark = pytest.mark.network

ROOT = Path(tools.__file__).parent.parent
# The ids that every machine must get; they change only together with the store's FORMAT.
COMMITS = {
    "v0.10.0": "cb27ded902b494a400e387c172fcc0f02a77deea",
    "v0.19.1": "6165e307b49aab1867ee63d31bfc66a4bf3255fe",
    "v0.32.0": "21d3dc2c99cb748c45aaf043a962d56cd561366b",
}
SMALL = "v0.10.0"
OBTAIN = """
import sys
from tools.errors import ToolError
from tools.settings import Settings
from tools.upstream import Store, obtain
try:
    with Store.open(Settings.load()) as store:
        print("opened", flush=True)
        print(obtain(store, sys.argv[1]).commit)
except ToolError as error:
    print(f"{error.message} | {error.hint}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def start(cache: Path, ref: str, *prefix: str, **variables: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", OBTAIN, ref],
        cwd=ROOT,
        env={**os.environ, "VLLM_EXAONE_CACHE": str(cache), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out.splitlines()[-1] if out else "", err.strip()


@pytest.fixture
def settings(real_releases: Path) -> Settings:
    return Settings.load(ROOT)


@pytest.fixture
def downloaded(settings: Settings, tmp_path: Path) -> Path:
    """A cache with SMALL downloaded and its page kept, and no store."""
    with Store.open(settings) as store:
        obtain(store, SMALL)
    cache = tmp_path / "downloaded"
    cache.mkdir()
    for name in ("downloads", "index"):
        shutil.copytree(settings.cache / name, cache / name, copy_function=os.link)
    return cache


@pytest.mark.parametrize("tag", COMMITS)
def test_a_release_has_the_same_id_everywhere(settings: Settings, tag: str) -> None:
    with Store.open(settings) as store:
        found = obtain(store, tag)
        paths = set(GitTree(store.git, found.tree).paths())
    assert found.commit == COMMITS[tag]
    assert {"pyproject.toml", "setup.py", "vllm/__init__.py", ".gitignore"} <= paths
    generated = ("PKG-INFO", "setup.cfg", "vllm/_version.py", "vllm.egg-info/SOURCES.txt")
    assert not paths & set(generated)
    assert not [p for p in paths if p.endswith((".pyc", ".so")) or "/generated/" in p]


def test_a_release_without_an_sdist_comes_from_its_wheel(settings: Settings) -> None:
    with Store.open(settings) as store:
        found = obtain(store, "v0.15.1")
        tree = GitTree(store.git, found.tree)
        assert found.kind == "wheel"
        assert tree.read("vllm/model_executor/models/registry.py") is not None
        assert not [p for p in tree.paths() if not p.startswith("vllm/") or p.endswith(".so")]


def test_the_releases_that_this_project_is_for_are_listed(settings: Settings) -> None:
    with Store.open(settings) as store:
        rows = {row.tag: row for row in list_releases(store)}
    assert rows["v0.19.1"].sdist
    assert rows["v0.15.1"].wheel
    assert not rows["v0.15.1"].sdist
    assert list(rows).index("v0.9.2") < list(rows).index("v0.10.0")


def test_unknown_releases_are_told_apart(settings: Settings) -> None:
    with Store.open(replace(settings, git_url="/nonexistent.git")) as store:
        with pytest.raises(Unavailable) as caught:
            obtain(store, "v0.19.2")
        assert "v0.19.1" in caught.value.hint


def test_a_warm_cache_needs_no_network(downloaded: Path) -> None:
    away = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "NO_PROXY": "127.0.0.1"}
    for key in list((downloaded / "index").iterdir()):
        shutil.rmtree(key)
    status, _out, said = finish(start(downloaded, SMALL, **away))
    assert (status, "no connection" in said) == (3, True)
    shutil.rmtree(downloaded / "store.git")
    status, out, said = finish(start(downloaded, SMALL))
    assert (status, out) == (0, COMMITS[SMALL]), said
    status, out, said = finish(start(downloaded, SMALL, **away))
    assert (status, out) == (0, COMMITS[SMALL]), said


def test_runs_side_by_side_agree(downloaded: Path) -> None:
    running = [start(downloaded, SMALL) for _ in range(3)]
    for status, out, said in map(finish, running):
        assert (status, out) == (0, COMMITS[SMALL]), said


def test_a_killed_import_leaves_nothing_to_clean(
    downloaded: Path, user_git: Callable[..., str]
) -> None:
    """Killed at many moments of one import, and the next run succeeds each time."""
    began = time.monotonic()
    assert finish(start(downloaded, SMALL))[0] == 0
    whole = time.monotonic() - began
    moments = 4
    for number in range(moments):
        shutil.rmtree(downloaded / "store.git")
        process = start(downloaded, SMALL)
        time.sleep(whole * (number + 1) / (moments + 1))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        status, out, said = finish(start(downloaded, SMALL))
        assert (status, out) == (0, COMMITS[SMALL]), said
    user_git(downloaded / "store.git", "fsck", "--connectivity-only", "--no-dangling")


@pytest.fixture
def mounting(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the words that run a command with ``tmp_path/disk`` mounted in its own way."""
    (tmp_path / "disk").mkdir()

    def words(script: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", f'{script} && exec "$@"', "sh"]

    disk = tmp_path / "disk"
    tried = subprocess.run(
        [*words(f"mount -t tmpfs tmpfs {disk}"), "true"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip("needs the right to mount in a namespace of its own (root, or CAP_SYS_ADMIN)")
    return words


@pytest.mark.parametrize("mib", [1, 5, 12, 17])
def test_a_full_disk_is_one_line(
    downloaded: Path, tmp_path: Path, mounting: Callable[[str], list[str]], mib: int
) -> None:
    """Full while downloading (the sdist has 9 MiB), and full while importing.

    The index pages come on top: how many there are depends on what other tests asked for.
    """
    disk = tmp_path / "disk"
    pages = subprocess.run(
        ["du", "-sk", downloaded / "index"], capture_output=True, text=True, check=True
    )
    size = int(pages.stdout.split()[0]) + mib * 1024
    prefix = mounting(
        f"mount -t tmpfs -o size={size}k tmpfs {disk} && cp -r {downloaded}/index {disk}"
    )
    status, _out, said = finish(start(disk, SMALL, *prefix))
    assert status == 4, said
    assert "No space left" in said or "Out of diskspace" in said
    assert "free some disk space" in said
    assert len(said.splitlines()) == 1


def test_a_read_only_cache_serves_what_it_has(
    downloaded: Path, tmp_path: Path, mounting: Callable[[str], list[str]]
) -> None:
    disk = tmp_path / "disk"
    read_only = f"mount --bind {downloaded} {disk} && mount -o remount,bind,ro {disk}"
    status, _out, said = finish(start(disk, SMALL, *mounting(read_only)))
    assert (status, len(said.splitlines())) == (4, 1), said
    assert "Read-only file system" in said
    assert finish(start(downloaded, SMALL))[0] == 0
    status, out, said = finish(start(disk, SMALL, *mounting(read_only)))
    assert (status, out) == (0, COMMITS[SMALL]), said
    status, _out, said = finish(start(disk, "v0.19.1", *mounting(read_only)))
    assert (status, "cannot write" in said) == (4, True), said
