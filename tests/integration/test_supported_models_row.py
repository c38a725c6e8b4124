"""The row of EXAONE-4.5 in the documentation of carried trees says what the model can do."""

import ast
import re
from pathlib import Path

import pytest

from tools.cli.common import Project
from tools.git import GitTree
from tools.tree import Tree

pytestmark = pytest.mark.network
DOCUMENT = "docs/models/supported_models.md"
MODEL = "vllm/model_executor/models/exaone4_5.py"
QWEN = "vllm/model_executor/models/qwen2_5_vl.py"
ARCHITECTURE = "Exaone4_5_ForConditionalGeneration"


def carried(release: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    monkeypatch.setenv("VLLM_EXAONE_CACHE", str(cache))
    project = Project()
    return GitTree(project.store.git, project.carrier.carry(project.obtain(release)).commit)


def text(tree: Tree, path: str) -> str:
    content = tree.read(path)
    assert content is not None, path
    return content.decode()


def row(document: str) -> tuple[list[str], list[str]]:
    """Return the header and the cells of the model's only row."""
    lines = document.splitlines()
    (place,) = (i for i, line in enumerate(lines) if f"| `{ARCHITECTURE}` |" in line)
    start = max(i for i in range(place) if lines[i].startswith("| Architecture"))
    assert all(line.startswith("|") for line in lines[start:place]), "the row stands in no table"
    return cells_of(lines[start]), cells_of(lines[place])


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def bases(source: str, name: str) -> set[str]:
    """Return the names that a class is derived from."""
    (found,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {ast.unparse(base) for base in found.bases}


# The oldest carried release, those around where the file moved or the hub's table changed, and the
# last before upstream's own row.
@pytest.mark.parametrize("release", ["v0.11.0", "v0.12.0", "v0.14.0", "v0.16.0", "v0.19.1"])
def test_the_row_says_what_the_model_can_do(
    real_releases: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    tree = carried(release, real_releases, monkeypatch)
    header, cells = row(text(tree, DOCUMENT))
    assert len(header) == len(cells)
    said = dict(zip(header, cells, strict=True))
    # Images and videos, several of each, also as embeddings.
    assert re.sub(r"<sup>|</sup>", "", said["Inputs"]) == "T + IE+ + VE+"
    assert "`LGAI-EXAONE/EXAONE-4.5-33B`" in said["Example HF Models"]
    parents = bases(text(tree, QWEN), "Qwen2_5_VLForConditionalGeneration")
    assert "Qwen2_5_VLForConditionalGeneration" in bases(text(tree, MODEL), ARCHITECTURE)
    for column, interface in {"LoRA": "SupportsLoRA", "PP": "SupportsPP"}.items():
        (found,) = (cell for name, cell in said.items() if column in name)
        assert bool(found) == (interface in parents), column


def test_upstreams_own_row_is_the_only_one(
    real_releases: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = carried("v0.32.0", real_releases, monkeypatch)
    assert text(tree, DOCUMENT).count(f"`{ARCHITECTURE}`") == 1
