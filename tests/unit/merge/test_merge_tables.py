"""Markdown tables are merged by row."""

import pytest

from tools.merge import Rule, merge_file, prove

HEAD = "# Models\n\n## Text\n\n| Name | Kind |\n|------|------|\n"
ROWS = "| `A` | x |\n| `C` | x |\n"
OTHER = "\n## Images\n\n| Name | Kind |\n|------|------|\n| `P` | i |\n| `Q` | i |\n"
BASE = HEAD + ROWS + OTHER
PATCHED = BASE.replace("| `C`", "| `B` | x |\n| `C`")
PATH = "docs/models.md"


def merged(base: str, patched: str, target: str) -> str:
    done = merge_file(PATH, base.encode(), patched.encode(), target.encode())
    assert not done.conflicts, list(map(str, done.conflicts))
    return done.files[PATH].decode()


def refused(base: str, patched: str, target: str) -> str:
    done = merge_file(PATH, base.encode(), patched.encode(), target.encode())
    assert not done.files
    return "; ".join(map(str, done.conflicts))


def test_row_goes_beside_its_surviving_neighbour() -> None:
    target = BASE.replace("| `C` | x |\n", "| `D` | x |\n").replace("`P` | i", "`P` | j")
    done = merge_file(PATH, BASE.encode(), PATCHED.encode(), target.encode())
    assert done.rule is Rule.STRUCTURE
    assert done.files[PATH].decode() == target.replace("| `D`", "| `B` | x |\n| `D`")
    (edit,) = done.edits
    assert edit.landed.qualname == "Models > Text"
    assert edit.landed.line == 8


def test_row_that_upstream_has_elsewhere_in_the_table_is_not_doubled() -> None:
    target = BASE.replace("| `A`", "| `B` | x |\n| `A`")
    assert merged(BASE, PATCHED, target) == target


def test_proof_refuses_a_text_merge_with_a_doubled_row() -> None:
    target = BASE.replace("| `A`", "| `B` | x |\n| `A`")
    doubled = target.replace("| `C`", "| `B` | x |\n| `C`")
    done = prove(PATH, BASE.encode(), PATCHED.encode(), target.encode(), doubled.encode())
    assert "twice" in done.conflicts[0].reason


def test_row_of_another_table_with_the_same_name_does_not_count() -> None:
    target = BASE.replace("| `P`", "| `B` | i |\n| `P`")
    assert merged(BASE, PATCHED, target).count("`B`") == 2


def test_changed_row_follows_its_name() -> None:
    patched = BASE.replace("| `C` | x |", "| `C` | y |")
    target = BASE.replace("| `A` | x |\n| `C` | x |\n", "| `C` | x |\n| `A` | x |\n| `E` | x |\n")
    assert merged(BASE, patched, target) == target.replace("| `C` | x |", "| `C` | y |")


def test_row_changed_on_both_sides_is_refused() -> None:
    patched = BASE.replace("| `C` | x |", "| `C` | y |")
    target = BASE.replace("| `C` | x |", "| `C` | z |")
    assert "changed differently on both sides" in refused(BASE, patched, target)


def test_deleted_row_that_upstream_changed_is_refused() -> None:
    patched = BASE.replace("| `C` | x |\n", "")
    target = BASE.replace("| `C` | x |", "| `C` | z |")
    assert "deleted by the patch, changed" in refused(BASE, patched, target)


def test_table_with_other_columns_is_refused() -> None:
    target = BASE.replace("| Name | Kind |", "| Name | Kind | V1 |", 1)
    target = target.replace("|------|------|", "|---|---|---|", 1)
    target = target.replace("| x |", "| x | y |")
    assert "other columns" in refused(BASE, PATCHED, target)


def test_table_that_upstream_dropped_is_refused() -> None:
    target = BASE.replace(HEAD[len("# Models\n\n") :] + ROWS, "## Text\n\nSee elsewhere.\n")
    assert "no counterpart of the table" in refused(BASE, PATCHED, target)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_a_missing_final_one_are_the_targets(newline: str) -> None:
    base = HEAD + ROWS
    patched = base + "| `D` | x |\n"
    target = base.replace("| `A` | x |", "| `A` | z |").replace("\n", newline).removesuffix(newline)
    result = merged(base.replace("\n", newline), patched.replace("\n", newline), target)
    assert result == target + newline + "| `D` | x |"


def test_fenced_lines_are_no_headings_and_nul_bytes_are_refused() -> None:
    text = "# A\n```\n# not\n```\n" + ROWS
    done = merge_file(PATH, text.encode(), (text + "x\n").encode(), text.encode())
    assert done.edits[0].landed.qualname == "A"
    assert "NUL" in refused("a\0\n", "b\0\n", "c\0\n")
