"""The merge on syntax: what lands, where, and what is refused."""

from collections.abc import Mapping

import pytest

from tools.merge import Edit, FileMerge, Rule, merge_file

PATH = "pkg/mod.py"


def carried(base: str, patched: str, target: str) -> tuple[str, FileMerge]:
    done = merge_file(PATH, base.encode(), patched.encode(), target.encode())
    assert not done.conflicts, list(map(str, done.conflicts))
    return done.files[PATH].decode(), done


def refused(
    base: str, patched: str, target: str, elsewhere: Mapping[str, bytes] | None = None
) -> str:
    done = merge_file(PATH, base.encode(), patched.encode(), target.encode(), elsewhere)
    assert done.conflicts
    assert not done.files
    assert all(conflict.target is not None for conflict in done.conflicts)
    return "; ".join(map(str, done.conflicts))


DICT = """\
MODELS = {
    "Alpha": ("alpha", "Alpha"),
    "Beta": ("beta", "Beta"),
    "Gamma": ("gamma", "Gamma"),
}
"""
DICT_WITH_NEW = DICT.replace('    "Gamma"', '    "New": ("new", "New"),\n    "Gamma"')


def test_entry_goes_after_the_nearest_surviving_neighbour() -> None:
    target = DICT.replace('    "Beta": ("beta", "Beta"),\n', "").replace(
        "}\n", '    "Delta": ("delta", "Delta"),\n}\n'
    )
    merged, done = carried(DICT, DICT_WITH_NEW, target)
    assert merged == target.replace('    "Gamma"', '    "New": ("new", "New"),\n    "Gamma"')
    assert done.rule is Rule.STRUCTURE
    assert done.edits == (
        Edit(
            "insert",
            done.edits[0].written,
            done.edits[0].landed,
            present=False,
        ),
    )
    assert (done.edits[0].written.qualname, done.edits[0].written.line) == ("MODELS", 4)
    assert (done.edits[0].landed.qualname, done.edits[0].landed.line) == ("MODELS", 3)


def test_entry_that_upstream_has_at_another_place_is_present_and_not_doubled() -> None:
    target = DICT.replace("}\n", '    "New": ("new", "New"),\n}\n')
    merged, done = carried(DICT, DICT_WITH_NEW, target)
    assert merged == target
    assert [edit.present for edit in done.edits] == [True]


def test_entry_that_upstream_has_with_another_value_is_refused() -> None:
    target = DICT.replace("}\n", '    "New": ("other", "New"),\n}\n')
    assert "added differently on both sides" in refused(DICT, DICT_WITH_NEW, target)


def test_list_that_became_one_line() -> None:
    base = 'X = [\n    "a",\n    "b",\n]\n'
    patched = 'X = [\n    "a",\n    "new",\n    "b",\n]\n'
    assert carried(base, patched, 'X = ["a", "b", "z"]\n')[0] == 'X = ["a", "new", "b", "z"]\n'


def test_list_that_became_one_entry_a_line() -> None:
    base = 'X = ["a", "b"]\n'
    patched = 'X = ["a", "b", "new"]\n'
    target = 'X = [\n    "a",\n    "b",\n    "z",\n]\n'
    merged, _ = carried(base, patched, target)
    assert merged == 'X = [\n    "a",\n    "b",\n    "new",\n    "z",\n]\n'


def test_tuple_that_became_a_literal_under_another_name_is_followed_and_said() -> None:
    base = 'from typing import Literal\n\nKINDS = ("a", "b", "c")\n'
    patched = base.replace('"b", ', '"b", "new", ')
    target = 'from typing import Literal\n\nKindNames = Literal[\n    "z",\n    "a",\n    "b",\n]\n'
    target = target.replace('    "z",\n', "").replace('    "b",\n', '    "b",\n    "c",\n')
    merged, done = carried(base, patched, target)
    assert merged == target.replace('    "b",\n', '    "b",\n    "new",\n')
    assert done.edits[0].written.qualname == "KINDS"
    assert done.edits[0].landed.qualname == "KindNames"


TWINS = """\
class Left:
    def run(self, x):
        y = prepare(x)
        return finish(y, mode="left")


class Right:
    def run(self, x):
        y = prepare(x)
        return finish(y, mode="right")
"""


def test_wrong_place_the_right_one_of_two_alike_classes_is_deleted_upstream() -> None:
    patched = TWINS.replace('mode="left")', 'mode="left", strict=True)')
    target = TWINS[TWINS.index("class Right") :]
    assert "no counterpart" in refused(TWINS, patched, target)


def test_wrong_place_the_same_edit_landed_upstream_in_the_sibling_only() -> None:
    patched = TWINS.replace("prepare(x)\n", "prepare(x, fast=True)\n", 1)
    head, _, tail = TWINS.partition("class Right")
    target = head + "class Right" + tail.replace("prepare(x)", "prepare(x, fast=True)")
    merged, done = carried(TWINS, patched, target)
    assert merged == TWINS.replace("prepare(x)", "prepare(x, fast=True)")
    assert [edit.present for edit in done.edits] == [False]


def test_wrong_place_body_reindented_under_a_new_if() -> None:
    base = "def f(x):\n    first = load(x, 1)\n    second = store(first, x)\n    return second\n"
    patched = base.replace("    second", "    check(first, x)\n    second")
    target = (
        "def f(x):\n    if x.enabled:\n        first = load(x, 1)\n"
        "        second = store(first, x)\n    return second\n"
    )
    merged, done = carried(base, patched, target)
    assert merged == target.replace("        second", "        check(first, x)\n        second")
    assert done.edits[0].landed.qualname == "f"


def test_wrong_place_arguments_that_went_from_one_line_to_many() -> None:
    base = "f(alpha, beta=1)\n"
    patched = "f(alpha, beta=1, new=2)\n"
    target = "f(\n    alpha,\n    beta=1,\n    other=3,\n)\n"
    merged, _ = carried(base, patched, target)
    assert merged == "f(\n    alpha,\n    beta=1,\n    new=2,\n    other=3,\n)\n"


def test_wrong_place_list_that_was_sorted_again() -> None:
    base = 'X = [\n    "c",\n    "a",\n    "b",\n]\n'
    patched = base.replace('    "a",\n', '    "a",\n    "new",\n')
    target = 'X = [\n    "a",\n    "b",\n    "c",\n]\n'
    merged, _ = carried(base, patched, target)
    assert merged == 'X = [\n    "a",\n    "new",\n    "b",\n    "c",\n]\n'


@pytest.mark.parametrize("first_half", [2, 3])
def test_wrong_place_dict_that_was_split_in_two(first_half: int) -> None:
    lines = [f'    "{name}": run_{name},\n' for name in "abcdef"]
    base = "M = {\n" + "".join(lines) + "}\n"
    patched = base.replace(lines[3], '    "new": run_new,\n' + lines[3])
    target = (
        "M = {\n" + "".join(lines[:first_half]) + "}\nN = {\n" + "".join(lines[first_half:]) + "}\n"
    )
    assert "moved to another container" in refused(base, patched, target)


def test_wrong_place_function_that_moved_to_a_base_class_in_another_file() -> None:
    method = (
        "    def load(self, model):\n        config = model.config\n"
        "        if config.kind in [\n            'a',\n            'b',\n        ]:\n"
        "            config.index = config.token\n        return config\n"
    )
    base = "class Proposer:\n    def other(self):\n        return 1\n\n" + method
    patched = base.replace("            'b',\n", "            'b',\n            'new',\n")
    target = base[: base.index("    def load")].replace("Proposer", "Proposer(Base)")
    moved = "class Base:\n" + method.replace(
        "            'b',\n", "            'z',\n            'b',\n"
    )
    done = merge_file(
        PATH, base.encode(), patched.encode(), target.encode(), {"pkg/base.py": moved.encode()}
    )
    assert not done.conflicts
    assert list(done.files) == ["pkg/base.py"]
    want = moved.replace("            'b',\n", "            'b',\n            'new',\n")
    assert done.files["pkg/base.py"] == want.encode()
    (edit,) = done.edits
    assert (edit.written.path, edit.written.qualname) == (PATH, "Proposer.load")
    assert (edit.landed.path, edit.landed.qualname) == ("pkg/base.py", "Base.load")
    assert edit.landed.line == want[: want.index("'new'")].count("\n") + 1


def test_function_that_moved_to_a_file_which_already_holds_the_edit_is_present_there() -> None:
    """The file that is only read for where the edit lies is not among those that are written."""
    method = (
        "    def load(self, model):\n        config = model.config\n"
        "        if config.kind in [\n            'a',\n            'b',\n        ]:\n"
        "            config.index = config.token\n        return config\n"
    )
    base = "class Proposer:\n    def other(self):\n        return 1\n\n" + method
    patched = base.replace("            'b',\n", "            'new',\n            'b',\n")
    target = base[: base.index("    def load")].replace("Proposer", "Proposer(Base)")
    moved = "class Base:\n" + patched[patched.index("    def load") :]
    done = merge_file(
        PATH, base.encode(), patched.encode(), target.encode(), {"pkg/base.py": moved.encode()}
    )
    assert not done.conflicts
    assert done.files == {PATH: target.encode()}
    (edit,) = done.edits
    assert edit.present
    assert (edit.landed.path, edit.landed.qualname) == ("pkg/base.py", "Base.load")


def test_function_in_another_file_that_the_base_had_already_is_not_taken_for_moved() -> None:
    method = "    def load(self, model):\n        config = model.config\n        return config\n"
    base = "class A:\n    x = 1\n" + method
    patched = base.replace("return config", "return config, 1")
    other = {"pkg/b.py": ("class B:\n" + method).encode()}
    done = merge_file(
        PATH, base.encode(), patched.encode(), b"class A:\n    x = 1\n", other, elsewhere_base=other
    )
    assert done.conflicts


def test_wrong_place_one_of_two_alike_calls_went_and_the_other_changed() -> None:
    base = 'def f():\n    add("first", size, 1)\n    add("second", size, 1)\n    done()\n'
    patched = base.replace('"first", size, 1', '"first", size, 1, strict=True')
    target = 'def f():\n    add("second", size, 1, 2)\n    done()\n'
    assert refused(base, patched, target)


def test_wrong_place_a_new_class_has_a_method_of_that_name() -> None:
    steps = "".join(f"        step_{k}(x)\n" for k in range(8))
    other = steps.replace("step_1", "other_1").replace("step_5", "other_5").replace("6(x)", "6(y)")
    keep = "    def keep(self):\n        return 1\n"
    base = f"class A:\n{keep}\n    def run(self, x):\n{steps}"
    patched = base.replace("step_3(x)", "step_3(x, 9)")
    target = f"class A:\n{keep}\n\nclass B:\n    def run(self, x):\n{other}"
    assert "no counterpart" in refused(base, patched, target)


def test_wrong_place_a_small_new_tuple_shares_a_member() -> None:
    base = 'KINDS = ("a", "b", "c")\nrest = 1\n'
    patched = base.replace('"b"', '"b", "new"')
    assert "no counterpart" in refused(base, patched, 'DEFAULT = ("a",)\nrest = 1\n')


def test_wrong_place_the_same_call_stands_in_two_branches() -> None:
    base = (
        "def f(x):\n    if x.left:\n        go(x, 1)\n        end(x)\n"
        "    if x.right:\n        go(x, 1)\n        end(x)\n"
    )
    head, _, tail = base.partition("    if x.right:")
    patched = head + "    if x.right:" + tail.replace("go(x, 1)", "go(x, 1, fast=True)")
    target = base.replace("x.left", "x.left and y").replace("end(x)", "end(x, y)")
    merged, _ = carried(base, patched, target)
    left, right = merged.split("    if x.right:")
    assert "fast" not in left
    assert "go(x, 1, fast=True)" in right
    assert "no counterpart" in refused(base, patched, head)


# A decorator's arguments are what changes; its name says which decorator it is.


def test_an_argument_is_added_to_the_only_decorator() -> None:
    base = "import f\n\n\n@f.cache(size=3)\ndef go():\n    return 1\n"
    patched = base.replace("size=3", "size=3, ours=1")
    target = base.replace("size=3", "size=4").replace("return 1", "return 2")
    text, _ = carried(base, patched, target)
    assert text == target.replace("size=4", "size=4, ours=1")


def test_decorators_that_call_the_same_are_told_apart_by_their_arguments() -> None:
    base = '@mark("a", 1)\n@mark("b", 2)\ndef go():\n    return 1\n'
    patched = base.replace('"b", 2', '"b", 3')
    target = base.replace("return 1", "return 2").replace('@mark("a", 1)\n', "")
    text, _ = carried(base, patched, target)
    assert text == target.replace('"b", 2', '"b", 3')


# What is replaced as a whole would be empty in between.


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"a": 1}', '{"b": 1}'),
        ("[one()]", "[two()]"),
        ("items[first]", "items[second]"),
    ],
)
def test_the_only_member_of_a_list_is_replaced(old: str, new: str) -> None:
    base = f"VALUE = {old}\nOTHER = [1]\n"
    target = base.replace("[1]", "[1, 2]")
    text, _ = carried(base, base.replace(old, new), target)
    assert text == target.replace(old, new)


def test_the_only_statement_of_a_block_is_replaced() -> None:
    base = "def go(x):\n    if x:\n        first = 1\n    return x\n"
    target = base.replace("return x", "return x + 1")
    text, _ = carried(base, base.replace("first = 1", "second = 2"), target)
    assert text == target.replace("first = 1", "second = 2")


def test_what_is_deleted_around_an_addition_of_the_target_is_a_conflict_from_both_sides() -> None:
    base = 'VALUE = {\n    "a": 1,\n}\n'
    emptied = "VALUE = {\n}\n"
    added = 'VALUE = {\n    "a": 1,\n    "b": 2,\n}\n'
    assert "nothing would be left" in refused(base, emptied, added)
    assert "no neighbour" in refused(base, added, emptied)
