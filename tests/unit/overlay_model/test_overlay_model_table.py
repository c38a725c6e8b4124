"""Which files of the overlay are laid on which kind of upstream tree, and what they may hold."""

import ast
from pathlib import Path

import pytest

from tools.overlay import OverlayFile, read_overlay
from tools.tree import MappingTree

ROOT = Path(__file__).parents[3] / "vllm_exaone"
OVERLAY = read_overlay(ROOT)
MODELS = "vllm/model_executor/models/"
CONFIG = "vllm/transformers_utils/configs/exaone4_5.py"
REGISTRY = {"vllm/transformers_utils/config.py": b"class LazyConfigDict(dict): ...\n"}
PROCESSOR = "vllm/transformers_utils/processors/exaone4_5.py"
NEW_TRANSFORMERS = {"requirements/common.txt": b"transformers >= 5.10.4\n"}
UPSTREAM_MODEL = {MODELS + "exaone4_5.py": b"", MODELS + "exaone4_5_mtp.py": b""}


def laid(tree: dict[str, bytes]) -> set[str]:
    return {
        one.file.target
        for one in OVERLAY.choose(lambda probe: probe.holds(MappingTree(tree)))
        if one.laid
    }


def test_everything_is_laid_where_upstream_lacks_the_model() -> None:
    assert laid(REGISTRY) == {file.target for file in OVERLAY.files}


def test_only_the_config_is_laid_where_upstream_has_the_model() -> None:
    assert laid({**REGISTRY, **UPSTREAM_MODEL, **NEW_TRANSFORMERS}) == {CONFIG}


def test_the_processor_is_laid_too_where_a_transformers_without_one_is_admitted() -> None:
    old = {"requirements/common.txt": b"transformers >= 5.5.3\n"}
    assert laid({**REGISTRY, **UPSTREAM_MODEL, **old}) == {CONFIG, PROCESSOR}


def test_nothing_is_laid_where_no_config_can_be_registered_by_name() -> None:
    assert laid({"vllm/transformers_utils/config.py": b"_CONFIG_REGISTRY = {}\n"}) == set()


def test_a_config_of_upstreams_own_is_not_replaced() -> None:
    assert laid({**REGISTRY, **UPSTREAM_MODEL, **NEW_TRANSFORMERS, CONFIG: b""}) == set()


def test_every_module_is_listed_and_mirrors_its_place() -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")}

    assert {file.source for file in OVERLAY.files} == modules
    assert all(file.target == "vllm/" + file.source for file in OVERLAY.files)


@pytest.mark.parametrize("file", OVERLAY.files, ids=lambda file: file.source)
def test_files_are_readable_by_the_oldest_python_that_a_release_admits(file: OverlayFile) -> None:
    ast.parse(file.content, feature_version=(3, 9))


@pytest.mark.parametrize("file", OVERLAY.files, ids=lambda file: file.source)
def test_no_module_asks_which_release_it_is_on(file: OverlayFile) -> None:
    assert b"vllm.__version__" not in file.content
    assert b'version("vllm")' not in file.content
