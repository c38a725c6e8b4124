"""Edits as the project's patches make them, written on one release and merged to others."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.cli.common import Project
from tools.git import GitTree
from tools.merge import FileMerge, Rule, merge_file

pytestmark = pytest.mark.network

BASE = "v0.19.1"
REGISTRY = "vllm/model_executor/models/registry.py"
SPECULATIVE = "vllm/config/speculative.py"
EAGLE = "vllm/v1/spec_decode/eagle.py"
PROPOSER = "vllm/v1/spec_decode/llm_base_proposer.py"
CONFIG = "vllm/transformers_utils/config.py"
DOCS = "docs/models/supported_models.md"

Read = Callable[[str, str], bytes]


@pytest.fixture(scope="module")
def read(shared_cache: Path) -> Iterator[Read]:
    patch = pytest.MonkeyPatch()
    patch.setenv("VLLM_EXAONE_CACHE", str(shared_cache))
    project = Project()
    patch.undo()

    def reading(ref: str, path: str) -> bytes:
        return GitTree(project.store.git, project.obtain(ref).commit).read(path) or b""

    yield reading
    project.store.close()


def after(source: bytes, anchor: bytes, new: bytes, *, last: bool = False) -> bytes:
    """Put lines after the first (or last) line that starts with ``anchor``."""
    lines = source.splitlines(keepends=True)
    found = [k for k, line in enumerate(lines) if line.strip().startswith(anchor)]
    at = found[-1 if last else 0]
    return b"".join([*lines[: at + 1], new, *lines[at + 1 :]])


def carried(
    read: Read, ref: str, path: str, patched: bytes, elsewhere: dict[str, bytes] | None = None
) -> FileMerge:
    done = merge_file(path, read(BASE, path), patched, read(ref, path), elsewhere)
    assert not done.conflicts, list(map(str, done.conflicts))
    return done


def keys(source: bytes, name: str) -> list[str]:
    """Return the keys of the dictionary that is assigned to ``name``, in order."""
    for node in ast.walk(ast.parse(source)):
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            value = node.value  # type: ignore[attr-defined]
            if isinstance(value, ast.Dict):
                return [k.value for k in value.keys if isinstance(k, ast.Constant)]
            return [k.value for k in ast.walk(value) if isinstance(k, ast.Constant)]
    return []


@pytest.mark.parametrize(
    "ref", ["v0.10.0", "v0.11.0", "v0.13.0", "v0.16.0", "v0.20.0", "v0.28.0", "v0.33.0"]
)
def test_registry_entry_stands_once_in_the_same_dictionary(read: Read, ref: str) -> None:
    base = read(BASE, REGISTRY)
    patched = after(base, b'"Exaone4ForCausalLM"', b'    "NewModel": ("new", "NewModel"),\n')
    patched = after(patched, b'"ExaoneMoeMTP"', b'    "NewMTP": ("new_mtp", "NewMTP"),\n')
    done = carried(read, ref, REGISTRY, patched)
    merged, target = done.files[REGISTRY], read(ref, REGISTRY)
    for name, new in (
        ("_TEXT_GENERATION_MODELS", "NewModel"),
        ("_SPECULATIVE_DECODING_MODELS", "NewMTP"),
    ):
        found = keys(merged, name)
        assert found.count(new) == 1
        assert [key for key in found if key != new] == keys(target, name)
    lines = set(target.splitlines())
    assert [line for line in merged.splitlines() if line not in lines] == [
        b'    "NewModel": ("new", "NewModel"),',
        b'    "NewMTP": ("new_mtp", "NewMTP"),',
    ]


@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("v0.11.0", "MTP_MODEL_TYPES"),
        ("v0.11.1", "MTPModelTypes"),
        ("v0.20.0", "MTPModelTypes"),
        ("v0.33.0", "MTPModelTypes"),
    ],
)
def test_mtp_model_type_in_a_tuple_and_in_a_literal(read: Read, ref: str, name: str) -> None:
    patched = after(read(BASE, SPECULATIVE), b'"exaone_moe_mtp",', b'    "new_mtp",\n')
    done = carried(read, ref, SPECULATIVE, patched)
    assert done.rule is Rule.STRUCTURE
    assert [edit.landed.qualname for edit in done.edits] == [name]
    assert keys(done.files[SPECULATIVE], name).count("new_mtp") == 1


@pytest.mark.parametrize("ref", ["v0.12.0", "v0.14.1"])
def test_list_in_a_method_whose_class_had_another_name(read: Read, ref: str) -> None:
    done = carried(read, ref, EAGLE, _listed(read))
    (edit,) = done.edits
    assert edit.written.qualname == "SpecDecodeBaseProposer.load_model"
    assert edit.landed.qualname == "EagleProposer.load_model"
    line = done.files[EAGLE].splitlines()[edit.landed.line - 1]
    assert line.strip() == b'"NewForConditionalGeneration",'


@pytest.mark.parametrize("ref", ["v0.20.0", "v0.25.0", "v0.33.0"])
def test_list_in_a_class_that_moved_to_a_file_git_sees_no_rename_of(read: Read, ref: str) -> None:
    done = carried(read, ref, EAGLE, _listed(read), {PROPOSER: read(ref, PROPOSER)})
    assert list(done.files) == [PROPOSER]
    (edit,) = done.edits
    assert str(edit.landed).startswith(f"{PROPOSER}:")
    assert edit.landed.qualname == "SpecDecodeBaseProposer.load_model"
    line = done.files[PROPOSER].splitlines()[edit.landed.line - 1]
    assert line.strip() == b'"NewForConditionalGeneration",'


@pytest.mark.parametrize("ref", ["v0.11.0", "v0.11.2"])
def test_comparison_with_one_name_is_no_list_and_is_refused(read: Read, ref: str) -> None:
    done = merge_file(EAGLE, read(BASE, EAGLE), _listed(read), read(ref, EAGLE))
    assert done.conflicts
    assert done.conflicts[0].written.qualname == "SpecDecodeBaseProposer.load_model"


def _listed(read: Read) -> bytes:
    new = b'                "NewForConditionalGeneration",\n'
    return after(read(BASE, EAGLE), b'"GlmOcrForConditionalGeneration"', new)


@pytest.mark.parametrize("ref", ["v0.11.0", "v0.14.0", "v0.21.0", "v0.33.0"])
def test_keyword_argument_of_a_module_level_call(read: Read, ref: str) -> None:
    patched = after(read(BASE, CONFIG), b'flex_olmo="FlexOlmoConfig"', b'    new="NewConfig",\n')
    done = carried(read, ref, CONFIG, patched)
    assert done.files[CONFIG].count(b'new="NewConfig"') == 1


@pytest.mark.parametrize("ref", ["v0.13.0", "v0.20.0", "v0.33.0"])
def test_table_row(read: Read, ref: str) -> None:
    row = b"| `NewForConditionalGeneration` | New | T | `a/new` | | |\n"
    patched = after(read(BASE, DOCS), b"| `Ernie4_5_VLMoeForConditionalGeneration`", row)
    done = carried(read, ref, DOCS, patched)
    merged = done.files[DOCS]
    assert merged.count(row) == 1
    assert merged.replace(row, b"") == read(ref, DOCS)
    assert "Multimodal" in done.edits[0].landed.qualname


@pytest.mark.parametrize("ref", ["v0.11.0", "v0.33.0"])
def test_carrying_twice_changes_nothing(read: Read, ref: str) -> None:
    base = read(BASE, REGISTRY)
    patched = after(base, b'"Exaone4ForCausalLM"', b'    "NewModel": ("new", "NewModel"),\n')
    merged = carried(read, ref, REGISTRY, patched).files[REGISTRY]
    again = merge_file(REGISTRY, base, patched, merged)
    assert again.files == {REGISTRY: merged}
    assert all(edit.present for edit in again.edits)
