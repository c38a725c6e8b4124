"""Probes answer from content alone, and say so when they cannot."""

import pytest

from tools.errors import BadInput
from tools.series import parse_probe
from tools.tree import MappingTree

SOURCE = b"""
import os.path
from typing import TYPE_CHECKING
from .near import thing as renamed

if TYPE_CHECKING:
    from vllm.config import VllmConfig

KINDS: tuple[str, ...] = ("mtp", "eagle")
TABLE = {"Known": ("module", "Known")}


class Block:
    depth = 3

    def forward(self, x, *, lengths=None):
        if x:
            def inner(y): return y
        return self.attn.run(x, scale=1)


class Plain:
    pass
"""
TREE = MappingTree({"vllm/a.py": SOURCE, "vllm/deep/b.txt": b"", "vllm/bad.py": b"def x(:\n"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exists vllm/a.py", True),
        ("exists vllm/deep", True),
        ("exists vllm/dee", False),
        ("not exists vllm/gone.py", True),
        ("defines vllm/a.py::Block", True),
        ("defines vllm/a.py::Block.forward", True),
        ("defines vllm/a.py::Block.forward(lengths)", True),
        ("defines vllm/a.py::Block.forward(width)", False),
        ("defines vllm/a.py::Block.forward.inner", True),
        ("defines vllm/a.py::Block.depth", True),
        ("defines vllm/a.py::KINDS", True),
        ("defines vllm/a.py::VllmConfig", False),
        ("defines vllm/gone.py::Block", False),
        ("imports vllm/a.py::vllm.config.VllmConfig", True),
        ("imports vllm/a.py::typing", True),
        ("imports vllm/a.py::typing.Any", False),
        ('refers vllm/a.py::KINDS -> "mtp"', True),
        ('refers vllm/a.py::TABLE -> "mtp"', False),
        ('refers vllm/a.py:: -> "Known"', True),
        ("refers vllm/a.py::Block.forward -> self.attn.run", True),
        ("refers vllm/a.py::Block.forward -> scale", True),
        ("refers vllm/a.py::Plain -> scale", False),
    ],
)
def test_probe_answers(text: str, expected: bool) -> None:
    assert parse_probe(text).holds(TREE) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "exists",
        "exists /etc/passwd",
        "exists vllm/../../x",
        "define vllm/a.py::Block",
        "defines vllm/a.py",
        "defines vllm/a.py::Block.(x)",
        "imports vllm/a.py",
        "refers vllm/a.py::Block",
        'refers vllm/a.py::Block -> ""',
        "admits torch",
        "admits torch 2",
        "admits torch<",
        "admits torch<2.x",
        "admits Torch<2",
    ],
)
def test_malformed_probe_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_probe(text)
    assert caught.value.hint


def test_unparsable_file_is_an_error_and_not_an_answer() -> None:
    with pytest.raises(BadInput, match=r"vllm/bad\.py is not valid Python"):
        parse_probe("defines vllm/bad.py::x").holds(TREE)
    # What does not occur in it is not defined there, however it would be read.
    assert not parse_probe("defines vllm/bad.py::y").holds(TREE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("imports vllm/deep/c.py::vllm.deep.near.Thing", True),
        ("imports vllm/deep/c.py::vllm.deep.near", True),
        ("imports vllm/deep/c.py::vllm.deep.layers", True),
        ("imports vllm/deep/c.py::vllm.config.VllmConfig", True),
        ("imports vllm/deep/c.py::near.Thing", False),
        ("imports vllm/deep/c.py::vllm.near.Thing", False),
        ("imports vllm/deep/c.py::vllm.deep", True),
        ("imports vllm/deep/c.py::vllm", False),
        ("imports vllm/deep/c.py::vllm.far", False),
        ("imports vllm/deep/__init__.py::vllm.deep.layers", True),
    ],
)
def test_a_relative_import_is_no_silent_no(text: str, expected: bool) -> None:
    source = (
        b"from ..config import VllmConfig\nfrom . import layers\nfrom .near import Thing\n"
        b"from ....... import far\n"
    )
    tree = MappingTree({"vllm/deep/c.py": source, "vllm/deep/__init__.py": source})
    assert parse_probe(text).holds(tree) is expected


def test_a_string_is_found_in_any_spelling() -> None:
    tree = MappingTree({"a.py": b'X = ["Exa" "one", "Q\\x77en"]\n'})
    assert parse_probe('refers a.py:: -> "Exaone"').holds(tree)
    assert parse_probe('refers a.py:: -> "Qwen"').holds(tree)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("admits transformers<5.8", True),
        ("admits transformers<4.56", False),
        ("admits transformers==5.0.1", False),
        ("admits transformers>=5,<5.6", True),
        ("not admits transformers>=6", True),
        ("admits torch==2.11.0", True),
        ("admits torch<2.11", False),
        ("admits unheard-of<1", True),
        ("admits msgspec<1", True),
    ],
)
def test_probe_asks_what_the_requirement_files_admit(text: str, expected: bool) -> None:
    tree = MappingTree(
        {
            "requirements/common.txt": b"""
                transformers >= 4.56.0, != 5.0.*, < 6  # some reason
                transformers-extras < 4
                msgspec
            """,
            "requirements/cuda.txt": b"-r common.txt\ntorch == 2.11.0\n",
        }
    )
    assert parse_probe(text).holds(tree) is expected
