"""The store: made, published to, cleaned, and built anew when it is damaged."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import tools
from tools.errors import BadInput, Busy, EnvironmentLacks
from tools.git import QUARANTINE, REGULAR, Commit, Entry, Person
from tools.settings import Settings
from tools.upstream.archive import Snapshot, SourceFile
from tools.upstream.store import ANSWERS, FORMAT, INCOMING, Store

UserGit = Callable[..., str]
FACTS = {"Kind": "sdist", "File": "vllm-1.2.3.tar.gz", "Sha256": "0" * 64}
LONG_AGO = (time.time() - 10 * 86400,) * 2


def snapshot(*contents: bytes) -> Snapshot:
    files = [SourceFile(f"d/{n}.py", False, content) for n, content in enumerate(contents)]
    return Snapshot(tuple(files), 1_750_000_000, None)


@pytest.fixture
def store(settings: Settings) -> Store:
    return Store.open(settings, lock_seconds=0.2)


def test_a_commit_depends_on_nothing_but_what_is_imported(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The id itself is pinned: an import must give it on every machine and in every version."""
    commits = set()
    for number, zone in enumerate(("UTC", "Asia/Seoul")):
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"{1_600_000_000 + number} +0900")
        monkeypatch.setenv("USER", f"user{number}")
        with Store.open(replace(settings, cache=tmp_path / str(number))) as store:
            if number:
                store.add("index/v0", snapshot(b"b", b"other"), "other", {})
            commits.add(store.add("index/v1.2.3", snapshot(b"a\r\n", b"b"), "vLLM", FACTS))
    assert commits == {"25a10583021afaccdb2a589c4863d5033429e72c"}


def test_an_import_is_found_with_what_it_came_from(store: Store, user_git: UserGit) -> None:
    assert store.find("index/v1.2.3") is None
    commit = store.add("index/v1.2.3", snapshot(b"a", b""), "vLLM v1.2.3", FACTS)
    assert store.find("index/v1.2.3") == commit
    assert store.find("index/v1.2") is None
    assert store.facts(commit) == FACTS
    assert store.names() == {"index/v1.2.3": commit}
    assert [e.path for e in store.git.listing(commit)] == [b"d/0.py", b"d/1.py"]
    user_git(store.git.directory, "fsck", "--strict", "--no-dangling")


def test_opening_a_store_in_order_writes_nothing(store: Store, settings: Settings) -> None:
    before = {p: p.lstat().st_mtime_ns for p in settings.cache.rglob("*")}
    with Store.open(settings) as again:
        assert again.names() == {}
    assert {p: p.lstat().st_mtime_ns for p in settings.cache.rglob("*")} == before


def damage_format(directory: Path) -> None:
    (directory / "vllm-exaone-format").unlink()


def damage_old_format(directory: Path) -> None:
    (directory / "vllm-exaone-format").write_text(json.dumps({"format": 0}))


def damage_head(directory: Path) -> None:
    (directory / "HEAD").unlink()


def damage_config(directory: Path) -> None:
    (directory / "config").write_text("[core\n")


def damage_objects(directory: Path) -> None:
    (directory / "objects").rename(directory / "elsewhere")


def damage_pack(directory: Path) -> None:
    (pack,) = (directory / "objects" / "pack").glob("*.pack")
    pack.unlink()


def damage_cut_pack(directory: Path) -> None:
    (pack,) = (directory / "objects" / "pack").glob("*.pack")
    pack.chmod(0o644)
    os.truncate(pack, 40)


@pytest.mark.parametrize(
    "damage",
    [
        damage_format,
        damage_old_format,
        damage_head,
        damage_config,
        damage_objects,
        damage_pack,
        damage_cut_pack,
    ],
)
def test_a_damaged_store_is_built_anew(
    store: Store, settings: Settings, damage: Callable[[Path], None]
) -> None:
    commit = store.add("index/v1.2.3", snapshot(b"a", b"b"), "vLLM", FACTS)
    store.close()
    damage(store.git.directory)
    told: list[str] = []
    with Store.open(settings, notify=told.append) as again:
        assert again.find("index/v1.2.3", told.append) is None
        assert again.add("index/v1.2.3", snapshot(b"a", b"b"), "vLLM", FACTS) == commit
        assert again.find("index/v1.2.3", told.append) == commit
    assert len(told) == 1
    assert "building it anew" in told[0]
    assert [p.name for p in settings.cache.glob(".store*")] == []


def test_gc_finds_damage_that_reading_a_ref_does_not(store: Store) -> None:
    store.add("index/v1.2.3", snapshot(os.urandom(4000)), "vLLM", FACTS)
    (pack,) = (store.git.directory / "objects" / "pack").glob("*.pack")
    pack.chmod(0o644)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 0xFF
    pack.write_bytes(content)
    assert store.find("index/v1.2.3") is not None
    store.close()
    told: list[str] = []
    store.gc(told.append)
    assert any("building it anew" in line for line in told)
    assert store.names() == {}


def test_a_store_of_a_newer_version_is_left_alone(store: Store, settings: Settings) -> None:
    file = store.git.directory / "vllm-exaone-format"
    file.write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(BadInput, match="format") as caught:
        Store.open(settings)
    assert "update" in caught.value.hint
    assert store.git.directory.is_dir()


def test_a_second_writer_waits_and_is_told(store: Store) -> None:
    other = Store(store.settings, store.git, lock_seconds=0.05)
    with store.locked(), pytest.raises(Busy) as caught:
        other.add("index/v1", snapshot(b"a"), "vLLM", FACTS)
    assert caught.value.exit_code == 5
    assert other.add("index/v1", snapshot(b"a"), "vLLM", FACTS)


def test_the_lock_of_a_killed_run_holds_no_one_up(store: Store) -> None:
    code = (
        "import sys, time; from pathlib import Path; from tools.upstream.downloads import locked\n"
        "with locked(Path(sys.argv[1]), 1, 'x'): print('held', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(store.settings.cache / "store.lock")],
        stdout=subprocess.PIPE,
        cwd=Path(tools.__file__).parent.parent,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(Busy):
            store.add("index/v1", snapshot(b"a"), "vLLM", FACTS)
        process.kill()
    assert store.add("index/v1", snapshot(b"a"), "vLLM", FACTS)


def test_gc_keeps_what_is_referred_to_and_removes_what_killed_runs_left(
    store: Store, user_git: UserGit
) -> None:
    commits = [
        store.add(f"index/v1.2.{n}", snapshot(b"same", f"{n}".encode()), "vLLM", FACTS)
        for n in range(3)
    ]
    person = Person("a", "a@invalid", 0)
    carried = store.git.write_commit(
        Commit(store.git.tree_of(commits[0]), (commits[0],), person, person, b"carried\n")
    )
    store.git.update_ref("refs/carried/v1.2.0", carried)
    recent = store.git.write_blob(b"of a run under way")
    old = store.git.write_blob(b"left long ago")
    git, cache = store.git.directory, store.settings.cache
    os.utime(git / "objects" / old[:2] / old[2:], LONG_AGO)
    directories = [
        git / QUARANTINE / "tmpdead",
        cache / INCOMING / "tmpdead",
        cache / ".store.git.1.making",
        cache / "downloads" / "00",
    ]
    files = [
        git / "objects" / "pack" / "tmp_pack_x",
        cache / "downloads" / "00" / "vllm.tar.gz.part",
    ]
    for directory in directories:
        directory.mkdir(parents=True)
    for file in files:
        file.touch()
    left = [*directories[:3], *files]
    for path in left:
        os.utime(path, LONG_AGO)
    fresh = cache / "downloads" / "00" / "fresh.tar.gz.part"
    fresh.touch()
    done = store.gc()
    assert not [path for path in left if path.exists()]
    assert {"tmpdead", "tmp_pack_x", "vllm.tar.gz.part"} <= set(done.removed)
    assert fresh.exists()
    assert [store.find(f"index/v1.2.{n}") for n in range(3)] == commits
    assert store.git.resolve("refs/carried/v1.2.0") == carried
    assert store.git.resolve(recent) == recent
    assert store.git.resolve(old) is None
    assert len(list((git / "objects" / "pack").glob("*.pack"))) == 1
    assert done.after == sum(p.stat().st_size for p in cache.rglob("*") if p.is_file())
    user_git(git, "fsck", "--strict", "--no-dangling")


def test_gc_forgets_what_probes_said_of_commits_that_are_gone(store: Store) -> None:
    commit = store.add("index/v1.2.3", snapshot(b"a"), "vLLM", FACTS)
    answers = store.git.directory / ANSWERS
    answers.mkdir()
    for name in (commit, "0" * 40):
        (answers / f"{name}.json").write_text("{}")
    store.gc()
    assert [file.name for file in answers.iterdir()] == [f"{commit}.json"]


def test_objects_of_a_run_under_way_survive_gc(store: Store) -> None:
    base = store.add("index/v1.2.3", snapshot(b"a"), "vLLM", FACTS)
    with store.git.quarantined() as inner:
        entry = Entry(b"n", REGULAR, inner.write_blob(b"new"))
        tree = inner.edit_tree(base, {b"n": entry})
        store.gc()
        person = Person("a", "a@invalid", 0)
        commit = inner.write_commit(Commit(tree, (base,), person, person, b"m\n"))
        inner.keep(commit)
    store.git.update_ref("refs/carried/x", commit)
    assert store.is_whole(commit)


def test_a_cache_that_cannot_be_made_is_named(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentLacks) as caught:
        Store.open(replace(settings, cache=tmp_path / "file" / "cache"))
    assert caught.value.exit_code == 4
    assert "VLLM_EXAONE_CACHE" in caught.value.hint
