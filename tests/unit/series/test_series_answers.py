"""Answers that are kept between runs are those that the tree would give."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.errors import BadInput
from tools.series import Answers, answers, parse_probe
from tools.tree import MappingTree

HAS, LACKS = parse_probe("defines a.py::f"), parse_probe("not exists a.py")


class Counted:
    """A tree that counts its reads."""

    def __init__(self, source: bytes = b"def f(): ...\n") -> None:
        self.tree, self.reads = MappingTree({"a.py": source}), 0

    def read(self, path: str) -> bytes | None:
        self.reads += 1
        return self.tree.read(path)

    def paths(self, prefix: str = "") -> Iterator[str]:
        return self.tree.paths(prefix)


def asked(file: Path) -> tuple[list[bool], int]:
    """Ask a fresh run's tree, twice; return the answers and how often it read the tree."""
    tree = Counted()
    held = Answers(tree, file)
    found = [held.holds(probe) for probe in (HAS, LACKS, HAS)]
    held.keep()
    return found, tree.reads


def test_a_second_run_reads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "answers" / "tree.json"
    assert asked(file) == ([True, False, True], 2)
    assert asked(file) == ([True, False, True], 0)
    assert [path.name for path in file.parent.iterdir()] == ["tree.json"]


def test_an_answer_of_other_probes_or_another_python_is_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tree.json"
    asked(file)
    monkeypatch.setattr(answers, "_asking", lambda: "other")
    assert asked(file)[1] == 2
    assert asked(file)[1] == 0


@pytest.mark.parametrize(
    "held",
    [b"", b"\xff", b"[]", b"{}", b'{"asking": "x", "answers": {}}', b'{"asking": 1', b"null"],
)
def test_what_is_not_whole_is_asked_anew(tmp_path: Path, held: bytes) -> None:
    file = tmp_path / "tree.json"
    file.write_bytes(held)
    assert asked(file) == ([True, False, True], 2)
    assert json.loads(file.read_bytes())["answers"] == {HAS.text: True, LACKS.text: False}


def test_a_place_that_cannot_be_written_still_answers(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"a file where the directory would be")
    assert asked(tmp_path / "taken" / "tree.json") == ([True, False, True], 2)


def test_a_tree_that_does_not_parse_leaves_no_answer(tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    held = Answers(Counted(b"def f(:\n"), file)
    with pytest.raises(BadInput, match=r"a\.py is not valid Python"):
        held.holds(HAS)
    held.keep()
    assert not file.exists()
