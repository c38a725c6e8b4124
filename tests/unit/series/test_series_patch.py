"""Reading mailbox patches as git itself writes them, and refusing what is malformed or hostile."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.errors import BadInput
from tools.series import check_path, parse_diff, parse_patch, read_series

BODY = "Why it is needed.\n\nBase: v0.19.1\nSkip-If: exists vllm/x.py\nForwarded: no\n"


def make(
    tmp_path: Path,
    user_git: Callable[..., str],
    change: Callable[[Path], object],
    message: str = "Do a thing\n\n" + BODY,
) -> bytes:
    """Return a patch that git wrote for what ``change`` does to a directory."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a.py").write_bytes(b"one\ntwo\nthree\n")
    (tree / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    user_git(tree, "init", "-q")
    user_git(tree, "config", "core.autocrlf", "false")
    user_git(tree, "add", "-A")
    user_git(tree, "commit", "-qm", "base")
    change(tree)
    user_git(tree, "add", "-A")
    user_git(tree, "commit", "-q", "--allow-empty", "-F", "-", stdin=message.encode())
    out = user_git(
        tree, "format-patch", "-1", "--stdout", "--full-index", "--binary", "-U1", "--no-signature"
    )
    return out.encode("utf-8", "surrogateescape")


def test_fields_author_and_message(tmp_path: Path, user_git: Callable[..., str]) -> None:
    content = make(
        tmp_path,
        user_git,
        lambda tree: (tree / "a.py").write_bytes(b"one\n2\nthree\n"),
        "Fügt etwas hinzu, with a subject that is long enough to be folded over several lines\n\n"
        + BODY,
    )
    patch = parse_patch("0001-thing.patch", content)
    assert patch.name == "0001-thing"
    assert patch.base == "v0.19.1"
    assert patch.subject.startswith("Fügt etwas hinzu")
    assert patch.subject.endswith("several lines")
    assert patch.body == BODY.rstrip("\n")
    assert [probe.text for probe in patch.skip_if] == ["exists vllm/x.py"]
    assert patch.field("Forwarded") == ("no",)
    assert patch.author.line() == b"A Tester <tester@invalid> 1700000000 +0000"
    (file,) = patch.files
    assert (file.old_path, file.new_path) == (b"a.py", b"a.py")
    assert file.old_oid is not None
    assert len(file.old_oid) == 40


@pytest.mark.parametrize("name", ["sp ace.txt", "tab\t.txt", "ümlaut.txt", 'quo"te\\.txt', "-x"])
def test_new_files_of_any_name(name: str, tmp_path: Path, user_git: Callable[..., str]) -> None:
    content = make(tmp_path, user_git, lambda tree: (tree / name).write_bytes(b"x"))
    (file,) = parse_patch("0001-x.patch", content).files
    assert (file.old_path, file.new_path, file.old_oid) == (None, name.encode(), None)


def test_empty_deleted_renamed_mode_and_binary(
    tmp_path: Path, user_git: Callable[..., str]
) -> None:
    def change(tree: Path) -> None:
        (tree / "empty file").write_bytes(b"")
        (tree / "crlf.txt").unlink()
        (tree / "a.py").rename(tree / "b.py")
        (tree / "b.py").chmod(0o755)
        (tree / "data.bin").write_bytes(bytes(range(256)))

    files = parse_patch("0001-x.patch", make(tmp_path, user_git, change)).files
    found = {(file.old_path, file.new_path): file.new_mode for file in files}
    assert found == {
        (b"a.py", b"b.py"): "100755",
        (b"crlf.txt", None): None,
        (None, b"data.bin"): "100644",
        (None, b"empty file"): "100644",
    }


def test_hunk_text_that_looks_like_a_header_is_not_one() -> None:
    diff = (
        b"diff --git a/x.md b/x.md\nindex 1111111..2222222 100644\n--- a/x.md\n+++ b/x.md\n"
        b"@@ -1,3 +1,3 @@\n one\n--- a/../../etc/passwd\n+++ b/../../etc/passwd\n two\n"
    )
    (file,) = parse_diff(diff)
    assert file.new_path == b"x.md"


@pytest.mark.parametrize(
    "path", [b"/etc/x", b"../x", b"a/../x", b"a//x", b".git/hooks/x", b"a/.GIT/c"]
)
def test_paths_that_lead_out_of_the_tree_are_refused(path: bytes) -> None:
    with pytest.raises(BadInput, match="leads out of the tree"):
        check_path(path)
    diff = (
        b"diff --git a/%b b/%b\nnew file mode 100644\n--- /dev/null\n+++ b/%b\n@@ -0,0 +1 @@\n+x\n"
    )
    with pytest.raises(BadInput):
        parse_diff(diff % (path, path, path))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Why.\n\nForwarded: no\n", "needs one field 'Base"),
        ("Why.\n\nBase: main\n", "needs one field 'Base"),
        ("Why.\n\nBase: v1\nOnly-if: exists x\n", "unknown field 'Only-if'"),
        ("Why.\n\nBase: v1\nOnly-If: exist x\n", "unknown probe"),
    ],
)
def test_bad_field_names_the_patch(
    body: str, expected: str, tmp_path: Path, user_git: Callable[..., str]
) -> None:
    content = make(tmp_path, user_git, lambda t: (t / "n").write_bytes(b"x"), "S\n\n" + body)
    with pytest.raises(BadInput, match=rf"patches/0001-x\.patch: .*{expected}"):
        parse_patch("0001-x.patch", content)


def test_truncated_patch_is_refused(tmp_path: Path, user_git: Callable[..., str]) -> None:
    content = make(tmp_path, user_git, lambda t: (t / "a.py").write_bytes(b"1\n2\n3\n"))
    with pytest.raises(BadInput, match="ends inside a hunk"):
        parse_patch("0001-x.patch", content[: content.rindex(b"+2")])


def test_series_order_variants_and_listing_errors(
    tmp_path: Path, user_git: Callable[..., str]
) -> None:
    content = make(tmp_path, user_git, lambda t: (t / "a.py").write_bytes(b"1\n2\n3\n"))
    patches = tmp_path / "patches"
    patches.mkdir()
    (patches / "0001-x.patch").write_bytes(content)
    (patches / "0001-x@v0.11.0.patch").write_bytes(content.replace(b"v0.19.1", b"v0.11.0"))
    (patches / "series").write_text("# why\n0001-x.patch  # here\n0001-x@v0.11.0.patch\n")
    series = read_series(patches)
    (step,) = series.steps
    assert [p.base for p in step.nearest("v0.12.0")] == ["v0.11.0", "v0.19.1"]
    assert [p.base for p in step.nearest("v0.33.0")] == ["v0.19.1", "v0.11.0"]
    assert [p.base for p in step.nearest("main")] == ["v0.19.1", "v0.11.0"]
    assert series.before("0001-x").steps == ()
    (patches / "0002-y.patch").write_bytes(content)
    with pytest.raises(BadInput, match=r"does not list 0002-y\.patch"):
        read_series(patches)
    (patches / "series").write_text("0001-x.patch\n0002-y.patch\n0001-x@v0.11.0.patch\n")
    with pytest.raises(BadInput, match="stands apart"):
        read_series(patches)
    (patches / "series").write_text("0001-x.patch\n0001-x.patch\n")
    with pytest.raises(BadInput, match="twice"):
        read_series(patches)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for text in (content, b"diff --git " + content, b"From x\n\n\ndiff --git a/f b/f\n" + content):
        with contextlib.suppress(BadInput):
            assert parse_patch("0001-x.patch", text).files
