"""The merge of lines, its markers, and the alignment below it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.merge import Labels, Rule, conflict_markers, merge_file, merge_text, prove
from tools.merge.lines import hunks, match_pairs, split_lines

LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"x = 1", b"}"]), max_size=12)
TEXT = st.builds(
    lambda lines, newline, end: newline.join(lines) + end,
    LINES,
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\n", b"\r\n"]),
)


@given(TEXT, TEXT)
def test_unchanged_sides_give_the_other_side(base: bytes, other: bytes) -> None:
    assert merge_text(base, base, other) == other
    assert merge_text(base, other, base) == other
    assert merge_text(base, other, other) == other


@given(TEXT, TEXT, TEXT)
def test_outcome_is_symmetric(base: bytes, ours: bytes, theirs: bytes) -> None:
    assert merge_text(base, ours, theirs) == merge_text(base, theirs, ours)


@given(TEXT, TEXT, TEXT)
def test_markers_are_written_exactly_on_conflict(base: bytes, ours: bytes, theirs: bytes) -> None:
    clean = merge_text(base, ours, theirs)
    shown = conflict_markers(base, ours, theirs)
    assert (clean is None) == (b"<<<<<<< target" in shown)
    assert clean in (None, shown)


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_pairs_are_an_increasing_alignment_of_equals(a: list[int], b: list[int]) -> None:
    pairs = match_pairs(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(p[0] < q[0] and p[1] < q[1] for p, q in pairwise(pairs))


@given(TEXT, TEXT)
def test_hunks_rebuild_the_other_side(a: bytes, b: bytes) -> None:
    left, right = split_lines(a), split_lines(b)
    assert b"".join(left) == a
    out: list[bytes] = []
    at = 0
    for hunk in hunks(left, right):
        out += left[at : hunk.a0]
        out += right[hunk.b0 : hunk.b1]
        at = hunk.a1
    assert b"".join([*out, *left[at:]]) == b


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("patched_end", [b"", b"\n"])
def test_the_patch_decides_on_the_final_line_feed(end: bytes, patched_end: bytes) -> None:
    base = b"a\nb\nc\nd\ne" + end
    patched = b"a\nb\nc\nd\ne" + patched_end
    target = b"A\nb\nc\nd\ne" + end
    assert merge_text(base, patched, target) == b"A\nb\nc\nd\ne" + patched_end


def test_carriage_returns_are_content() -> None:
    assert merge_text(b"a\r\nb\r\nc\r\n", b"a\r\nb\r\nc\r\nd\r\n", b"A\r\nb\r\nc\r\n") == (
        b"A\r\nb\r\nc\r\nd\r\n"
    )
    assert merge_text(b"a\n", b"a\r\n", b"b\n") is None


def test_changes_of_adjoining_lines_conflict_as_for_git() -> None:
    assert merge_text(b"a\nb\n", b"A\nb\n", b"a\nB\n") is None


def test_markers_hold_all_three_sides() -> None:
    shown = conflict_markers(
        b"1\nold\n3", b"1\nours\n3", b"1\ntheirs\n3", Labels("v2", "v1", "patch")
    )
    assert shown == (b"1\n<<<<<<< v2\ntheirs\n||||||| v1\nold\n=======\nours\n>>>>>>> patch\n3")


def test_markers_stand_on_lines_of_their_own_without_a_final_line_feed() -> None:
    shown = conflict_markers(b"old", b"ours", b"theirs")
    assert [line[:7] for line in shown.split(b"\n")] == [
        b"<<<<<<<",
        b"theirs",
        b"|||||||",
        b"old",
        b"=======",
        b"ours",
        b">>>>>>>",
        b"",
    ]


def test_a_file_of_another_kind_is_merged_by_text_alone() -> None:
    done = merge_file("a.toml", b"a\nb\nc\n", b"a\nb\nc\nd\n", b"A\nb\nc\n")
    assert (done.rule, done.files) == (Rule.TEXT, {"a.toml": b"A\nb\nc\nd\n"})
    assert [str(edit.landed) for edit in done.edits] == ["a.toml:4"]
    refused = merge_file("a.toml", b"a\n", b"b\n", b"c\n")
    assert [str(conflict) for conflict in refused.conflicts] == [
        "changed differently on both sides: written at a.toml:1; target a.toml:1"
    ]


def test_edits_that_the_target_has_are_present() -> None:
    base, patched = b"a\nb\nc\nd\n", b"a\nX\nb\nc\nY\nd\n"
    target = b"a\nX\nb\nc\nd\nZ\n"
    done = merge_file("a.txt", base, patched, target)
    assert done.files["a.txt"] == b"a\nX\nb\nc\nY\nd\nZ\n"
    assert [(edit.written.line, edit.landed.line, edit.present) for edit in done.edits] == [
        (2, 2, True),
        (5, 5, False),
    ]


def test_deletions_name_the_line_that_goes() -> None:
    done = merge_file("a.txt", b"a\nb\nc\nd\n", b"a\nc\nd\n", b"0\na\nb\nc\nd\n")
    (edit,) = done.edits
    assert (edit.kind, edit.written.line, edit.landed.line) == ("delete", 2, 3)


def test_proof_finds_the_places_of_a_merge_that_another_tool_made() -> None:
    base = b"def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    patched = base.replace(b"return 2", b"x = 3\n    return 2")
    target = b"import os\n\n\n" + base
    merged = b"import os\n\n\n" + patched
    done = prove("m.py", base, patched, target, merged)
    assert not done.conflicts
    assert [str(edit.landed) for edit in done.edits] == ["m.py:9 (g)"]


def test_proof_refuses_an_edit_that_another_tool_put_in_the_wrong_function() -> None:
    base = b"def f():\n    return 1\n\n\ndef g():\n    return 2\n"
    patched = base.replace(b"return 2", b"x = 3\n    return 2")
    wrong = base.replace(b"return 1", b"x = 3\n    return 1")
    done = prove("m.py", base, patched, base, wrong)
    assert done.conflicts
    assert not done.files


def test_proof_refuses_what_does_not_parse() -> None:
    base = b"x = 1\ny = 2\nz = 3\n"
    patched = base + b"w = 4\n"
    target = b"x = 0\ny = 2\nz = 3\n"
    done = prove("m.py", base, patched, target, target + b"w = = 4\n")
    assert "does not parse" in done.conflicts[0].reason


def test_proof_refuses_a_merge_that_lost_the_edit() -> None:
    base = b"x = 1\ny = 2\nz = 3\n"
    target = b"x = 0\ny = 2\nz = 3\n"
    for path in ("m.py", "m.txt"):
        assert prove(path, base, base + b"w = 4\n", target, target).conflicts


def test_proof_refuses_a_merge_that_lost_upstreams_change() -> None:
    base = b"x = 1\ny = 2\nz = 3\n"
    patched = base + b"w = 4\n"
    assert prove("m.py", base, patched, base.replace(b"1", b"0"), patched).conflicts
