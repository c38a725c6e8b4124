"""Refs: the allow-list, and the names suggested for unknown ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tools.errors import BadInput
from tools.upstream.refs import Ref, RefKind, nearest, parse_ref, unknown_ref


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("v0.19.1", "v0.19.1", "0.19.1"),
        ("0.19.1", "v0.19.1", "0.19.1"),
        ("v0.10.1.1", "v0.10.1.1", "0.10.1.1"),
        ("v0.33.0rc2", "v0.33.0rc2", "0.33.0rc2"),
        ("v0.9.0.post1", "v0.9.0.post1", "0.9.0.post1"),
    ],
)
def test_tags_carry_their_version(text: str, name: str, version: str) -> None:
    assert parse_ref(text) == Ref(name, RefKind.TAG, Version(version))


def test_release_candidates_are_no_releases() -> None:
    assert parse_ref("v0.33.0").is_release
    assert not parse_ref("v0.33.0rc2").is_release
    assert not parse_ref("main").is_release


@pytest.mark.parametrize("text", ["main", "releases/v0.19.1", "user/fix-1", "a_b", "zcafe12"])
def test_branches(text: str) -> None:
    assert parse_ref(text) == Ref(text, RefKind.BRANCH)


@pytest.mark.parametrize("text", ["deadbee", "DEADBEEF", "a" * 40])
def test_commits_are_lower_case(text: str) -> None:
    assert parse_ref(text) == Ref(text.lower(), RefKind.COMMIT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "--upload-pack=x",
        "v0.19.1..v0.20.0",
        "v0.19..1",
        "main@{1}",
        "HEAD",
        "HEAD~1",
        "main^{tree}",
        "main:vllm",
        "+main",
        "refs/heads/main",
        "refs/heads/*:refs/x/*",
        "a//b",
        "/a",
        "a/",
        "a/.b",
        "a/-b",
        "a.lock",
        "a.lock/b",
        "a.",
        "a b",
        "a\nb",
        "v0.19.1\n",
        "a\0",
        "main\x7f",
        "a\\b",
        "a?",
        "a*",
        "[a]",
        "$(x)",
        ";x",
        "mäin",
        "x" * 201,
    ],
)
def test_what_is_no_ref_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_ref(text)
    assert caught.value.exit_code == 2
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


@given(st.text())
def test_accepted_names_are_safe_arguments(text: str) -> None:
    try:
        ref = parse_ref(text)
    except BadInput:
        return
    assert ref.name.isascii()
    assert ref.name.isprintable()
    assert not ref.name.startswith(("-", "+", "/", "."))
    assert not set(ref.name) & set(" ~^:?*[\\@{}$;|&<>'\"`!()")
    assert ".." not in ref.name
    assert parse_ref(ref.name) == ref


def test_unknown_refs_name_the_nearest() -> None:
    known = ["v0.19.0", "v0.19.1", "v0.20.0", "main"]
    assert nearest(parse_ref("v0.19.2"), known)[0] in {"v0.19.0", "v0.19.1"}
    assert nearest(parse_ref("mian"), known) == ("main",)
    assert nearest(parse_ref("v9.9.9"), known) == ("v0.20.0",)
    error = unknown_ref(parse_ref("v0.19.11"), "git", known)
    assert "v0.19.11" in error.message
    assert "v0.19.1" in error.hint
    assert error.exit_code == 3
    assert "tags" in unknown_ref(parse_ref("zzz"), "git", known).hint
