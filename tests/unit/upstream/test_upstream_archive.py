"""Archives: what is read from them, and which ones are refused."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tools.errors import BadInput
from tools.upstream import archive
from tools.upstream.archive import read_sdist, read_wheel

Maker = Callable[..., bytes]


@pytest.fixture
def sdist(tmp_path: Path, make_sdist: Maker) -> Callable[..., Path]:
    def write(*arguments: object, version: str = "1.2.3") -> Path:
        path = tmp_path / f"vllm-{version}.tar.gz"
        path.write_bytes(make_sdist(version, *arguments))
        return path

    return write


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def test_an_sdist_is_read_byte_for_byte(sdist: Callable[..., Path]) -> None:
    read = read_sdist(sdist({"b.sh": b"#!/bin/sh\r\n", "a/ü": b"\0\xff", "a.b": b""}))
    assert [(f.path, f.executable, f.content) for f in read.files] == [
        ("a.b", False, b""),
        ("a/ü", False, b"\0\xff"),
        ("b.sh", True, b"#!/bin/sh\r\n"),
    ]
    assert read.newest == 1_750_000_000
    assert read.version == Version("1.2.3")


def test_what_the_build_added_is_dropped(sdist: Callable[..., Path]) -> None:
    kept = {
        "vllm/__init__.py": b"",
        "vllm/a/_version.py": b"",
        "csrc/x.cu": b"",
        "docs/PKG-INFO": b"",
        "tests/setup.cfg": b"[egg_info]\ntag_build = \ntag_date = 0\n",
        "vllm/vllm_flash_attn/.gitkeep": b"",
        ".gitignore": b"*.so\nvllm/vllm_flash_attn/*\n",
    }
    dropped = {
        "vllm/_version.py": b"",
        "vllm.egg-info/SOURCES.txt": b"",
        "setup.cfg": b"[egg_info]\ntag_build = \ntag_date = 0\n\n",
        "csrc/quantization/machete/generated/a.cu": b"",
        "csrc/__pycache__/x.cpython-311.pyc": b"",
        "vllm/vllm_flash_attn/__init__.py": b"",
    }
    assert {f.path for f in read_sdist(sdist({**kept, **dropped})).files} == set(kept)


def test_files_that_upstream_wrote_itself_are_kept(sdist: Callable[..., Path]) -> None:
    kept = {
        "setup.cfg": b"[flake8]\n",
        "vllm/vllm_flash_attn/__init__.py": b"",
        ".gitignore": b"vllm/vllm_flash_attn/*\n!vllm/vllm_flash_attn/__init__.py\n",
    }
    assert {f.path for f in read_sdist(sdist(kept)).files} == set(kept)


@pytest.mark.parametrize(
    "info",
    [
        member("vllm-1.2.3/../x"),
        member("../x"),
        member("/etc/x"),
        member("vllm-1.2.3//x"),
        member("vllm-1.2.3/./x"),
        member("vllm-1.2.3/a\\..\\x"),
        member("vllm-1.2.3/a\nb"),
        member("vllm-1.2.3/.git/config"),
        member("vllm-1.2.3/a/.GIT/config"),
        member("vllm-1.2.3/a/.git /x"),
        member("vllm-1.2.3/git~1/x"),
        member("vllm-1.2.3/" + "a/" * 600 + "a"),
        member("vllm-1.2.3/f"),
        member("vllm-1.2.3/f/below"),
        member("vllm-1.2.3"),
        member("other/x"),
        member("x"),
        member("vllm-1.2.3/l", tarfile.SYMTYPE, "/etc/passwd"),
        member("vllm-1.2.3/l", tarfile.LNKTYPE, "vllm-1.2.3/f"),
        member("vllm-1.2.3/l", tarfile.FIFOTYPE),
        member("vllm-1.2.3/l", tarfile.CHRTYPE),
        member("vllm-1.2.3/l", tarfile.BLKTYPE),
        member("vllm-1.2.3/l", tarfile.GNUTYPE_SPARSE),
        member("vllm-1.2.3/../..", tarfile.DIRTYPE),
    ],
    ids=lambda info: f"{info.type!r}{info.name[:30]!a}",
)
def test_a_hostile_sdist_is_refused_whole(
    sdist: Callable[..., Path], info: tarfile.TarInfo
) -> None:
    with pytest.raises(BadInput) as caught:
        read_sdist(sdist({"f": b"x"}, (info, b"")))
    assert "vllm-1.2.3.tar.gz" in caught.value.message
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


def test_bombs_are_refused(sdist: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = sdist({"zeros": b"\0" * (1 << 20), "a": b"", "b": b""})
    read_sdist(path)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "LARGEST_FILE", (1 << 20) - 1)
        with pytest.raises(BadInput, match="too large"):
            read_sdist(path)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "LARGEST_TOTAL", 1 << 20)
        with pytest.raises(BadInput, match="1 MiB"):
            read_sdist(path)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "MOST_MEMBERS", 3)
        with pytest.raises(BadInput, match="more than 3"):
            read_sdist(path)


def test_a_damaged_sdist_is_one_clear_line(sdist: Callable[..., Path]) -> None:
    path = sdist({"f": bytes(range(256)) * 64})
    whole = path.read_bytes()
    for content in (b"", b"not gzip", whole[:100], whole[:-1], whole[:60] + b"XX" + whole[62:]):
        path.write_bytes(content)
        with pytest.raises(BadInput):
            read_sdist(path)


@given(st.binary(max_size=2000))
def test_no_bytes_raise_anything_else(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    import gzip  # noqa: PLC0415

    path = tmp_path_factory.getbasetemp() / "fuzz.tar.gz"
    for content in (raw, gzip.compress(raw), gzip.compress(raw.ljust(1536, b"\0"))):
        path.write_bytes(content)
        with pytest.raises(BadInput):
            read_sdist(path)
        with pytest.raises(BadInput):
            read_wheel(path)


def test_a_wheel_gives_its_sources(tmp_path: Path, make_wheel: Maker) -> None:
    path = tmp_path / "vllm-1.2.3-py3-none-any.whl"
    path.write_bytes(
        make_wheel(
            "1.2.3",
            {
                "vllm/__init__.py": b"x = 1\n",
                "vllm/_version.py": b"",
                "vllm/_C.abi3.so": b"\x7fELF",
                "vllm/configs/a.json": b"{}",
                "vllm-1.2.3.dist-info/RECORD": b"",
                "other/x.py": b"",
            },
        )
    )
    read = read_wheel(path)
    assert [f.path for f in read.files] == ["vllm/__init__.py", "vllm/configs/a.json"]
    assert read.version == Version("1.2.3")
    assert read.newest == 1_767_323_046


def test_hostile_and_foreign_wheels_are_refused(tmp_path: Path, make_wheel: Maker) -> None:
    path = tmp_path / "vllm-1.2.3-py3-none-any.whl"
    good = {"vllm/__init__.py": b""}
    for name in ("../x", "/etc/x", "vllm/../../x", "vllm/.git/x", "vllm/__init__.py/x"):
        path.write_bytes(make_wheel("1.2.3", {**good, name: b""}))
        with pytest.raises(BadInput):
            read_wheel(path)
    path.write_bytes(make_wheel("1.2.3", {"other/__init__.py": b""}))
    with pytest.raises(BadInput, match="not a wheel of vLLM"):
        read_wheel(path)
    path.write_bytes(make_wheel("1.2.3", good)[:-30])
    with pytest.raises(BadInput, match="not a readable wheel"):
        read_wheel(path)
    out = io.BytesIO(make_wheel("1.2.3", good))
    with zipfile.ZipFile(out, "a") as held:
        link = zipfile.ZipInfo("vllm/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        held.writestr(link, "/etc/passwd")
    path.write_bytes(out.getvalue())
    with pytest.raises(BadInput, match="a link"):
        read_wheel(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_wheel_with_two_members_of_one_name_is_refused(tmp_path: Path, make_wheel: Maker) -> None:
    out = io.BytesIO(make_wheel("1.2.3", {"vllm/__init__.py": b"a"}))
    with zipfile.ZipFile(out, "a") as held:
        held.writestr("vllm/__init__.py", b"b")
    path = tmp_path / "vllm-1.2.3-py3-none-any.whl"
    path.write_bytes(out.getvalue())
    with pytest.raises(BadInput, match="two members"):
        read_wheel(path)
