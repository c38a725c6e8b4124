"""What the hooks do on real releases: the carried code is run, not looked at.

vLLM itself is not installed here. Each test takes the definition that a hook changed out of the
carried file and runs it by itself, with stand-ins for what it calls.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

import pytest

from tools.carry import Carrier
from tools.git import GitTree
from tools.overlay import read_overlay
from tools.series import Series, read_series
from tools.settings import Settings
from tools.tree import Tree
from tools.upstream import Store, obtain

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[2]
# One release for each form that the hooked places have had, and the newest.
RELEASES = ("v0.11.0", "v0.11.2", "v0.12.0", "v0.13.0", "v0.14.1", "v0.16.0", "v0.18.1", "v0.19.1")
WITH_MODEL = ("v0.20.0", "v0.23.0", "v0.32.0", "v0.33.0")

MODEL, DRAFTER = "Exaone4_5_ForConditionalGeneration", "Exaone4_5_MTP"
REGISTRY = "vllm/model_executor/models/registry.py"
CONFIG = "vllm/transformers_utils/config.py"
CONFIGS = "vllm/transformers_utils/configs/__init__.py"
PROCESSORS = "vllm/transformers_utils/processors/__init__.py"
SPECULATIVE = "vllm/config/speculative.py"
EAGLE = "vllm/v1/spec_decode/eagle.py"
DOCS = "docs/models/supported_models.md"
EXAMPLES = "examples/offline_inference"
TESTS = "tests/models/registry.py"

Carry = Callable[[str], Tree]


@pytest.fixture(scope="module")
def carry(shared_cache: Path) -> Carry:
    """The hooks alone on a release, from a store that the tests share."""
    patch = pytest.MonkeyPatch()
    patch.setenv("VLLM_EXAONE_CACHE", str(shared_cache))
    store = Store.open(Settings.load())
    patch.undo()
    whole = read_series(ROOT / "patches")
    hooks = Series(tuple(step for step in whole.steps if step.name < "0020"))
    carrier = Carrier(
        store.git, hooks, read_overlay(ROOT / "vllm_exaone"), lambda ref: obtain(store, ref).commit
    )

    @cache
    def carried(ref: str) -> Tree:
        done = carrier.carry(obtain(store, ref))
        assert not done.conflicts, [(c.name, c.rule) for c in done.conflicts]
        return GitTree(store.git, done.commit)

    return carried


def module(tree: Tree, path: str) -> ast.Module:
    source = tree.read(path)
    assert source is not None, path
    return ast.parse(source)


def definitions(node: ast.AST, name: str) -> list[ast.AST]:
    """Return what ``name``, such as ``Class.method``, defines in ``node``."""
    head, _, rest = name.partition(".")
    found: list[ast.AST] = []
    for child in ast.walk(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == head:
            found += definitions(child, rest) if rest else [child]
        elif isinstance(child, ast.Assign | ast.AnnAssign) and not rest:
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            if any(isinstance(target, ast.Name) and target.id == head for target in targets):
                found.append(child)
    return found


def value(tree: Tree, path: str, name: str) -> ast.expr:
    (found,) = definitions(module(tree, path), name)
    assert isinstance(found, ast.Assign | ast.AnnAssign)
    assert found.value is not None
    return found.value


def rows(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the string keys and the values of a dict display or of a call's keywords."""
    if isinstance(node, ast.Dict):
        for key, entry in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield key.value, entry
    elif isinstance(node, ast.Call):
        yield from ((word.arg, word.value) for word in node.keywords if word.arg)


def only(tree: Tree, path: str, name: str, key: str) -> ast.expr:
    """Return the value of ``key``, which the table must hold once."""
    (entry,) = [entry for known, entry in rows(value(tree, path, name)) if known == key]
    return entry


def run(code: list[ast.stmt], names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(ast.Module(code, []), "carried", "exec"), names)
    return names


class Config(SimpleNamespace):
    """As much of a transformers config as the override asks for."""

    def update(self, values: Mapping[str, object]) -> None:
        self.__dict__.update(values)


@pytest.mark.parametrize("ref", RELEASES + WITH_MODEL)
def test_each_architecture_is_registered_once(carry: Carry, ref: str) -> None:
    tree = carry(ref)
    model = only(tree, REGISTRY, "_MULTIMODAL_MODELS", MODEL)
    drafter = only(tree, REGISTRY, "_SPECULATIVE_DECODING_MODELS", DRAFTER)
    assert ast.literal_eval(model) == ("exaone4_5", MODEL)
    assert ast.literal_eval(drafter) == ("exaone4_5_mtp", DRAFTER)


@pytest.mark.parametrize("ref", RELEASES + WITH_MODEL)
def test_the_config_class_is_found_by_model_type(carry: Carry, ref: str) -> None:
    tree = carry(ref)
    name = ast.literal_eval(only(tree, CONFIG, "_CONFIG_REGISTRY", "exaone4_5"))
    assert ast.literal_eval(value(tree, CONFIGS, "__all__")).count(name) == 1
    package = module(tree, CONFIGS)
    if definitions(package, "_CLASS_TO_MODULE"):
        where = ast.literal_eval(only(tree, CONFIGS, "_CLASS_TO_MODULE", name))
    else:
        (where,) = [
            node.module
            for node in ast.walk(package)
            if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]
        ]
    assert definitions(module(tree, where.replace(".", "/") + ".py"), name)


@pytest.mark.parametrize("ref", RELEASES + WITH_MODEL)
def test_a_registered_processor_has_its_module(carry: Carry, ref: str) -> None:
    tree = carry(ref)
    package = module(tree, PROCESSORS)
    listed = ast.literal_eval(value(tree, PROCESSORS, "__all__")).count("Exaone4_5_Processor")
    assert listed == (ref in ("v0.18.1", "v0.19.1"))
    if listed:
        where = ast.literal_eval(only(tree, PROCESSORS, "_CLASS_TO_MODULE", "Exaone4_5_Processor"))
        path = where.replace(".", "/") + ".py"
        assert definitions(module(tree, path), "Exaone4_5_Processor")
    else:
        assert b"Exaone4_5" not in ast.unparse(package).encode()


def override(tree: Tree) -> Callable[[Config], Config]:
    (function,) = definitions(module(tree, SPECULATIVE), "SpeculativeConfig.hf_config_override")
    assert isinstance(function, ast.FunctionDef)
    function.decorator_list = []
    found = run([function], {"PretrainedConfig": Config, "PreTrainedConfig": Config})
    result: Callable[[Config], Config] = found["hf_config_override"]
    return result


@pytest.mark.parametrize("ref", RELEASES)
def test_the_target_config_becomes_the_drafters(carry: Carry, ref: str) -> None:
    config = Config(
        model_type="exaone4_5",
        architectures=[MODEL],
        text_config=Config(num_nextn_predict_layers=1),
    )
    drafter = override(carry(ref))(config)
    assert drafter.architectures == [DRAFTER]
    assert drafter.model_type == "exaone4_5_mtp"
    assert drafter.n_predict == 1


@pytest.mark.parametrize("ref", RELEASES)
def test_the_override_leaves_other_configs_alone(carry: Carry, ref: str) -> None:
    # vLLM calls it with a dummy type to learn which config class to read.
    config = Config(model_type="dummy_exaone4_5", architectures=[""])
    assert override(carry(ref))(config).__dict__ == {
        "model_type": "dummy_exaone4_5",
        "architectures": [""],
    }


@pytest.mark.parametrize("ref", RELEASES + WITH_MODEL)
def test_the_drafters_model_type_is_an_mtp_type(carry: Carry, ref: str) -> None:
    tree = carry(ref)
    name = "MTP_MODEL_TYPES" if ref == "v0.11.0" else "MTPModelTypes"
    (assignment,) = definitions(module(tree, SPECULATIVE), name)
    assert isinstance(assignment, ast.Assign)
    types = run([assignment], {"Literal": Literal})[name]
    known = types if isinstance(types, tuple) else get_args(types)
    assert known.count("exaone4_5_mtp") == 1


@pytest.mark.parametrize("ref", RELEASES)
def test_the_proposer_finds_the_image_token(carry: Carry, ref: str) -> None:
    tree = carry(ref)
    name = "EagleProposer" if ref < "v0.16" else "SpecDecodeBaseProposer"
    (function,) = definitions(module(tree, EAGLE), f"{name}.load_model")
    (branch,) = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == "supports_multimodal(target_model)"
    ]
    model = type(MODEL, (), {})()
    model.config = Config(image_token_id=67)
    model.get_language_model = lambda: model
    proposer = SimpleNamespace(
        model=SimpleNamespace(config=Config()), get_model_name=lambda known: type(known).__name__
    )
    run(
        [branch],
        {
            "self": proposer,
            "target_model": model,
            "supports_multimodal": lambda _model: True,
            "cast": lambda _type, known: known,
            "SupportsMultiModal": object,
        },
    )
    assert proposer.model.config.image_token_index == 67


@pytest.mark.parametrize("ref", RELEASES + WITH_MODEL)
def test_the_model_has_one_whole_row_among_the_supported(carry: Carry, ref: str) -> None:
    text = carry(ref).read(DOCS)
    assert text is not None
    lines = text.decode().splitlines()
    (at,) = [k for k, line in enumerate(lines) if line.startswith(f"| `{MODEL}`")]
    rule = next(k for k in range(at, 0, -1) if re.fullmatch(r"\|[\s|:-]+", lines[k]))
    assert lines[at].count("|") == lines[rule].count("|")
    assert "Inputs" in lines[rule - 1]


class Tokenizer:
    """Writes the messages down in place of a chat template."""

    @classmethod
    def from_pretrained(cls, _name: str) -> "Tokenizer":
        return cls()

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert (tokenize, add_generation_prompt) == (False, True)
        return "".join(f"[{m['role']}]{m['content']}" for m in messages)


STAND_INS = {
    "AutoTokenizer": Tokenizer,
    "EngineArgs": dict,
    "ModelRequestData": dict,
    "fetch_image": str.upper,
}


def example(tree: Tree, path: str, key: str) -> Callable[..., dict[str, Any]]:
    source = module(tree, path)
    imported = {
        alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {"AutoTokenizer", "EngineArgs"} <= imported
    function_name = only(tree, path, "model_example_map", key)
    assert isinstance(function_name, ast.Name)
    (function,) = definitions(source, function_name.id)
    assert isinstance(function, ast.FunctionDef)
    found: Callable[..., dict[str, Any]] = run([function], dict(STAND_INS))[function_name.id]
    return found


@pytest.mark.parametrize("ref", RELEASES)
def test_the_example_for_one_item_asks_about_it(carry: Carry, ref: str) -> None:
    run_example = example(carry(ref), f"{EXAMPLES}/vision_language.py", "exaone4_5")
    for modality in ("image", "video"):
        asked = run_example(["Who?", "What?"], modality)
        placeholder = f"<vision><|{modality}_pad|></vision>"
        assert asked["prompts"] == [f"[user]{placeholder}{q}" for q in ("Who?", "What?")]
        assert asked["engine_args"]["limit_mm_per_prompt"] == {modality: 1}


@pytest.mark.parametrize("ref", RELEASES)
def test_the_example_for_many_images_asks_about_all(carry: Carry, ref: str) -> None:
    run_example = example(carry(ref), f"{EXAMPLES}/vision_language_multi_image.py", "exaone4_5")
    asked = run_example("Which?", ["a", "b"])
    assert asked["prompt"] == "[user]" + "<vision><|image_pad|></vision>" * 2 + "Which?"
    assert asked["image_data"] == ["A", "B"]
    assert asked["engine_args"]["limit_mm_per_prompt"] == {"image": 2}


@pytest.mark.parametrize("ref", RELEASES + WITH_MODEL)
def test_upstreams_tests_know_the_checkpoint(carry: Carry, ref: str) -> None:
    tree = carry(ref)
    for table, key in (
        ("_MULTIMODAL_EXAMPLE_MODELS", MODEL),
        ("_SPECULATIVE_DECODING_EXAMPLE_MODELS", DRAFTER),
    ):
        entry = only(tree, TESTS, table, key)
        assert isinstance(entry, ast.Call)
        assert ast.literal_eval(entry.args[0]) == "LGAI-EXAONE/EXAONE-4.5-33B"


@pytest.mark.parametrize("ref", RELEASES)
def test_the_vision_mlp_has_its_own_data_parallelism(carry: Carry, ref: str) -> None:
    # Why the series teaches none to EXAONE's MLP.
    (mlp,) = definitions(
        module(carry(ref), "vllm/model_executor/models/qwen2_5_vl.py"), "Qwen2_5_VisionMLP"
    )
    words = [node.arg for node in ast.walk(mlp) if isinstance(node, ast.keyword)]
    assert words.count("disable_tp") == 2


@pytest.mark.parametrize("ref", RELEASES + WITH_MODEL)
def test_no_drafter_of_ours_refuses_prefix_caching(carry: Carry, ref: str) -> None:
    # Why the series lifts no assertion.
    source = carry(ref).read("vllm/model_executor/models/exaone4_5_mtp.py")
    assert source is not None
    assert b"enable_prefix_caching" not in source
