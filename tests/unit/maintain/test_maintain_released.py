"""The record in a release tag: what is written is read back, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.maintain.released import (
    Proof,
    Record,
    Step,
    is_signed,
    latest,
    next_number,
    parse_record,
    render_changelog,
    render_record,
)

SHA = st.text("0123456789abcdef", min_size=64, max_size=64)
OID = st.text("0123456789abcdef", min_size=40, max_size=40)
NAME = st.from_regex(r"[0-9]{4}-[a-z][a-z0-9-]{0,20}", fullmatch=True)
LINE = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30)
PATH = st.from_regex(r"vllm/[a-z0-9_/]{1,20}\.py", fullmatch=True)
FILE = st.from_regex(r"[A-Za-z0-9_.+-]{1,30}", fullmatch=True)
OUTCOME = st.sampled_from(["clean", "structural", "upstreamed", "not-needed"])
STEPS = st.lists(
    st.builds(
        lambda name, sha, outcome, subject: Step(name, f"{name}.patch", sha, outcome, subject),
        NAME, SHA, OUTCOME, LINE,
    ),
    max_size=4,
    unique_by=lambda step: step.name,
)  # fmt: skip
RECORDS = st.builds(
    Record,
    tag=st.builds("v{}.{}.0+exaone.{}".format, *[st.integers(1, 99)] * 3),
    upstream=OID,
    carried=OID,
    steps=STEPS.map(tuple),
    overlay=st.dictionaries(PATH, SHA, max_size=3),
    files=st.dictionaries(FILE, SHA, max_size=3),
    proofs=st.lists(
        st.builds(Proof, st.sampled_from(["cpu", "cuda"]), st.booleans(), LINE), max_size=2
    ).map(tuple),
)
EMPTY = Record("v1.0.0+exaone.1", "a" * 40, "b" * 40, (), {}, {}, ())


@given(RECORDS, st.one_of(st.none(), RECORDS))
def test_record_is_read_back_from_the_message(record: Record, before: Record | None) -> None:
    changelog = render_changelog(record, before, {})
    message = render_record(record, changelog, {"Source": "index sdist", "Rebuild-cpu": "build"})
    assert parse_record(record.tag, message) == record
    assert not is_signed(message)


@given(st.binary(max_size=300), st.text(max_size=20))
def test_anything_else_is_no_record(message: bytes, tag: str) -> None:
    assert parse_record(tag, message) is None
    assert parse_record("v1.0.0+exaone.1", message) is None


def test_signature_is_no_part_of_the_record() -> None:
    message = render_record(EMPTY, "title\n", {})
    signed = message + b"-----BEGIN PGP SIGNATURE-----\n\nCarried-Commit: x\n"
    assert is_signed(signed)
    assert parse_record(EMPTY.tag, signed) == EMPTY


def test_only_the_last_paragraph_counts() -> None:
    message = render_record(EMPTY, "title\n\nCarried-Commit: " + "c" * 40 + "\n", {})
    assert parse_record(EMPTY.tag, message) == EMPTY
    twice = message + b"Carried-Commit: " + b"d" * 40 + b"\n"
    assert parse_record(EMPTY.tag, twice) is None


@pytest.mark.parametrize(
    ("tags", "number"),
    [
        ([], 1),
        (["v1.0.0", "v1.0.0+other.4", "v2.0.0+exaone.9", "v1.0.0+exaone.x"], 1),
        (["v1.0.0+exaone.2", "v1.0.0+exaone.10", "v1.0.0+exaone.011", "v1.0.0+exaone.0"], 11),
        (["v1.0.0rc1+exaone.3", "xv1.0.0+exaone.5", "v1.0.0+exaone.6x"], 1),
    ],
)
def test_next_number_is_above_all_there_are(tags: list[str], number: int) -> None:
    assert next_number(tags, "v1.0.0") == number


def test_a_release_follows_its_own_last_or_the_nearest_earlier() -> None:
    tags = ["v0.9.0+exaone.5", "v0.10.0+exaone.1", "v0.10.0+exaone.2", "v0.11.0+exaone.1"]
    records = [Record(tag, "", "", (), {}, {}, ()) for tag in tags]

    def found(ref: str) -> str:
        record = latest(records, ref)
        return record.tag if record else ""

    assert found("v0.10.0") == "v0.10.0+exaone.2"
    assert found("v0.10.1") == "v0.10.0+exaone.2"
    assert found("v0.9.1") == "v0.9.0+exaone.5"
    assert found("v0.8.0") == ""


def test_unproved_devices_are_in_the_title() -> None:
    proofs = (Proof("cpu", proved=True, detail="x"), Proof("cuda", proved=False, detail="no GPU"))
    record = Record("v1.0.0+exaone.1", "", "", (), {}, {}, proofs)
    text = render_changelog(record, None, {})
    assert text.splitlines()[0] == "vLLM v1.0.0 with EXAONE-4.5, build 1, unproved on cuda"
    assert "- cuda: UNPROVED, no GPU" in text
