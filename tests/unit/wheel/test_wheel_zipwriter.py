"""What the writer writes is what zipfile reads, whatever the source looked like."""

import hashlib
import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.wheel.wheel_sample import write_zip
from tools.wheel.archive import open_archive
from tools.wheel.zipwriter import ZipWriter

DATE = (2026, 10, 17, 21, 27, 52)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


@given(
    old=st.dictionaries(NAMES, st.binary(max_size=300), min_size=1, max_size=6),
    new=st.dictionaries(NAMES, st.binary(max_size=300), max_size=4),
    zip64_from=st.sampled_from([0, 100, 0xFFFFFFFF]),
    renamed=st.booleans(),
)
def test_copied_and_added_members_read_back(tmp_path_factory, old, new, zip64_from, renamed):
    source = write_zip(tmp_path_factory.getbasetemp() / "source.zip", old)
    out = io.BytesIO()
    expected = {}
    with open_archive(source) as archive:
        writer = ZipWriter(out, zip64_from=zip64_from)
        for name, member in archive.members.items():
            target = f"renamed/{name}" if renamed else name
            writer.copy(archive.stream, member, target)
            expected[target] = old[name]
        for name, data in new.items():
            writer.add(f"new/{name}", data, mode=0o755, date_time=DATE)
            expected[f"new/{name}"] = data
        digest = writer.finish()
    assert digest == hashlib.sha256(out.getvalue()).hexdigest()
    assert writer.size == len(out.getvalue())
    with zipfile.ZipFile(out) as result:
        assert result.testzip() is None
        assert {name: result.read(name) for name in result.namelist()} == expected
        assert {info.date_time for info in result.infolist()} == {DATE}
        assert all(
            info.external_attr >> 16 == (0o100755 if info.filename.startswith("new/") else 0o100644)
            for info in result.infolist()
        )


def test_member_with_a_data_descriptor_is_copied_with_a_full_header(tmp_path):
    """A streamed archive has sizes behind the data; copied as they stand they would be lost."""

    class Unseekable(io.RawIOBase):
        def __init__(self, path):
            self.file = path.open("wb")

        def writable(self):
            return True

        def write(self, data):
            return self.file.write(data)

    path = tmp_path / "streamed.zip"
    sink = Unseekable(path)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.py", b"a" * 1000)
        archive.writestr("b.py", b"b" * 1000)
    sink.file.close()
    out = io.BytesIO()
    with open_archive(path) as archive:
        assert not archive.members["a.py"].plain
        writer = ZipWriter(out)
        for member in archive.members.values():
            writer.copy(archive.stream, member)
        writer.finish()
    with zipfile.ZipFile(out) as result:
        assert result.testzip() is None
        assert result.read("b.py") == b"b" * 1000
        assert all(info.flag_bits & 8 == 0 for info in result.infolist())


def test_gap_between_members_is_not_copied(tmp_path):
    first, second = io.BytesIO(), io.BytesIO()
    for buffer, prefix in ((first, b""), (second, b"#" * 5000)):
        buffer.write(prefix)
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr(zipfile.ZipInfo("a.py", DATE), b"a" * 100)
    results = []
    for buffer in (first, second):
        path = tmp_path / "x.zip"
        path.write_bytes(buffer.getvalue())
        out = io.BytesIO()
        with open_archive(path) as archive:
            writer = ZipWriter(out)
            writer.copy(archive.stream, archive.members["a.py"])
            writer.finish()
        results.append(out.getvalue())
    assert results[0] == results[1]


def test_more_members_than_an_old_zip_can_count():
    out = io.BytesIO()
    writer = ZipWriter(out)
    for number in range(0x10000 + 3):
        writer.add(str(number), b"", mode=0o644, date_time=DATE)
    writer.finish()
    with zipfile.ZipFile(out) as result:
        assert len(result.namelist()) == 0x10000 + 3


def test_source_that_shrinks_is_noticed(make_wheel):
    wheel = make_wheel()
    with open_archive(wheel) as archive:
        writer = ZipWriter(io.BytesIO())
        for member in archive.members.values():
            writer.copy(archive.stream, member)
        with wheel.open("r+b") as stream:
            stream.truncate(100)
        with pytest.raises(EOFError):
            writer.finish()
