"""The patches as they stand in ``patches/``: their form, and what they promise to the overlay."""

import ast
import re
from itertools import product
from pathlib import Path

import pytest

from tools.overlay import OverlayFile, read_overlay, unmet
from tools.series import Patch, Step, read_series
from tools.tree import MappingTree

ROOT = Path(__file__).parents[3]
SERIES = read_series(ROOT / "patches")
OVERLAY = read_overlay(ROOT / "vllm_exaone")

MODEL = "vllm/model_executor/models/exaone4_5.py"
# What each hook makes upstream import, and the overlay file that it then finds.
PROMISES = [
    ("0001-register-model", "Exaone4_5_ForConditionalGeneration", MODEL),
    ("0002-register-drafter", "Exaone4_5_MTP", "vllm/model_executor/models/exaone4_5_mtp.py"),
    ("0003-register-config", "Exaone4_5_Config", "vllm/transformers_utils/configs/exaone4_5.py"),
    (
        "0004-register-processor",
        "Exaone4_5_Processor",
        "vllm/transformers_utils/processors/exaone4_5.py",
    ),
]
# What a release may have of EXAONE-4.5 and of the tables that the hooks add to.
PARTS = {
    MODEL: b"",
    "vllm/model_executor/models/exaone4_5_mtp.py": b"",
    "vllm/transformers_utils/config.py": b"class LazyConfigDict(dict): ...\n",
    "vllm/transformers_utils/configs/__init__.py": b"_CLASS_TO_MODULE = {}\n",
    "vllm/transformers_utils/processors/__init__.py": b"_CLASS_TO_MODULE = {}\n",
}

# The forms that the proposer has had: v0.11.0, v0.11.1, v0.12.0 and v0.16.0 brought them.
READS_ONE_NAME = """
class EagleProposer:
    def load_model(self):
        self.token = target_model.config.image_token_index
"""
COMPARES_WITH_ONE_MODEL = """
class EagleProposer:
    def load_model(self):
        if name == "Qwen2_5_VLForConditionalGeneration":
            self.token = target_model.config.image_token_id
        else:
            self.token = target_model.config.image_token_index
"""
LOOKS_INTO_A_LIST = """
class EagleProposer:
    def load_model(self):
        if name in ["Qwen2_5_VLForConditionalGeneration"]:
            self.token = target_model.config.image_token_id
        elif name == "PixtralForConditionalGeneration":
            self.token = target_model.config.vision_config.image_token_id
        else:
            self.token = target_model.config.image_token_index
"""
LOOKS_INTO_A_LIST_IN_ITS_BASE = (
    LOOKS_INTO_A_LIST.replace("class EagleProposer", "class SpecDecodeBaseProposer")
    + "class EagleProposer(SpecDecodeBaseProposer): ..."
)

every_patch = pytest.mark.parametrize("patch", SERIES.patches, ids=lambda patch: patch.file)


def step(name: str) -> Step:
    return next(step for step in SERIES.steps if step.name == name)


def changed(patch: Patch, sign: bytes) -> str:
    lines = re.findall(rb"^%b(?!%b%b )(.*)$" % ((re.escape(sign),) * 3), patch.diff, re.MULTILINE)
    return b"\n".join(lines).decode()


def laid(target: str) -> OverlayFile:
    return next(file for file in OVERLAY.files if file.target == target)


def test_the_numbers_go_up() -> None:
    numbers = [step.name for step in SERIES.steps]
    assert numbers == sorted(numbers)


@every_patch
def test_a_patch_says_where_it_comes_from(patch: Patch) -> None:
    assert len(patch.field("Origin")) == 1
    assert len(patch.field("Forwarded")) == 1
    assert len(patch.subject) <= 72
    assert not patch.subject.endswith(".")


@every_patch
def test_a_patch_says_why(patch: Patch) -> None:
    why, _, _fields = patch.body.rpartition("\n\n")
    assert len(why.split()) > 15
    assert max(map(len, why.splitlines())) <= 79


@every_patch
def test_a_variant_gives_its_reason(patch: Patch) -> None:
    assert ("A variant, because" in patch.body) == (patch != step(patch.name).variants[0])


@every_patch
def test_a_patch_names_whole_blobs(patch: Patch) -> None:
    for file in patch.files:
        assert {len(oid) for oid in (file.old_oid, file.new_oid) if oid} == {40}


@every_patch
def test_a_patch_holds_one_line_of_context(patch: Patch) -> None:
    hunks = re.split(rb"^@@ .*\n", patch.diff, flags=re.MULTILINE)[1:]
    assert hunks
    for hunk in hunks:
        kinds = b"".join(re.findall(rb"^([ +-])", hunk.split(b"\ndiff --git ")[0], re.MULTILINE))
        before, after = re.match(rb" *", kinds), re.search(rb" *$", kinds)
        assert before
        assert after
        assert len(before[0]) <= 1
        assert len(after[0]) <= 1


@every_patch
def test_a_patch_can_be_shipped_by_repacking_a_wheel(patch: Patch) -> None:
    for file in patch.files:
        for path in filter(None, (file.old_path, file.new_path)):
            assert re.fullmatch(rb"vllm/.+\.py|(docs|examples|tests)/.+\.(py|md)", path)


@pytest.mark.parametrize("name", sorted({name for name, _, _ in PROMISES}))
def test_a_hook_takes_nothing_from_upstream(name: str) -> None:
    for patch in step(name).variants:
        assert not changed(patch, b"-")


@pytest.mark.parametrize(("name", "class_name", "target"), PROMISES)
def test_a_registered_class_is_in_the_overlay(name: str, class_name: str, target: str) -> None:
    module = ast.parse(laid(target).content)
    assert class_name in {node.name for node in module.body if isinstance(node, ast.ClassDef)}
    for patch in step(name).variants:
        added = changed(patch, b"+")
        assert class_name in added
        assert Path(target).stem in added


def kept_off(one: Patch | OverlayFile, tree: MappingTree) -> str:
    return unmet(one.only_if, one.skip_if, lambda probe: probe.holds(tree))


@pytest.mark.parametrize("have", list(product([0, 1], repeat=len(PARTS))), ids=str)
def test_a_registered_module_is_there(have: tuple[int, ...]) -> None:
    # An entry without its module would be an ImportError at the first look into the table.
    tree = MappingTree(
        {p: c for (p, c), present in zip(PARTS.items(), have, strict=True) if present}
    )
    for name, _, target in PROMISES:
        if any(not kept_off(patch, tree) for patch in step(name).variants):
            file = laid(target)
            assert target in tree.files or not kept_off(file, tree), (
                name,
                target,
            )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (READS_ONE_NAME, "0006-proposer-image-token@v0.11.0.patch"),
        (COMPARES_WITH_ONE_MODEL, "0006-proposer-image-token@v0.11.2.patch"),
        (LOOKS_INTO_A_LIST, "0006-proposer-image-token@v0.14.1.patch"),
        (LOOKS_INTO_A_LIST_IN_ITS_BASE, "0006-proposer-image-token.patch"),
    ],
)
def test_one_variant_of_the_proposer_patch_fits_each_form(source: str, expected: str) -> None:
    tree = MappingTree(
        {"vllm/v1/spec_decode/eagle.py": source.encode(), "vllm/config/speculative.py": b""}
    )
    fitting = [
        patch.file
        for patch in step("0006-proposer-image-token").variants
        if not kept_off(patch, tree)
    ]
    assert fitting == [expected]
