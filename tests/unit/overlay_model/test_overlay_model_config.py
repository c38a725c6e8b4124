"""The configuration of the overlay, with stand-ins for the two kinds of transformers."""

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SOURCE = (
    Path(__file__).parents[3] / "vllm_exaone" / "transformers_utils" / "configs" / "exaone4_5.py"
)
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
PUBLISHED: dict[str, Any] = {
    "model_type": "exaone4_5_text",
    "num_hidden_layers": 4,
    "num_nextn_predict_layers": 1,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    "vocab_size": 512,
    "rope_scaling": {**LLAMA3, "rope_theta": 1e6},
}
Load = Callable[[str], ModuleType]


class _Config:
    """As much of PretrainedConfig as the overlay's classes build on."""

    def __init__(self, **kwargs: Any) -> None:
        for name, value in {"tie_word_embeddings": True, **kwargs}.items():
            setattr(self, name, value)


def load(version: str, patch: pytest.MonkeyPatch) -> ModuleType:
    """Import the overlay's module beside a transformers of ``version`` without EXAONE 4.5."""
    transformers = ModuleType("transformers")
    transformers.PretrainedConfig = _Config  # type: ignore[attr-defined]
    transformers.Exaone4Config = type("Exaone4Config", (_Config,), {})  # type: ignore[attr-defined]
    for name in [name for name in sys.modules if name.split(".")[0] == "transformers"]:
        patch.delitem(sys.modules, name)
    patch.setitem(sys.modules, "transformers", transformers)
    patch.setattr(importlib.metadata, "version", lambda _: version)
    spec = importlib.util.spec_from_file_location("overlay_config", SOURCE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Load:
    return lambda version: load(version, monkeypatch)


def test_published_rope_reaches_old_transformers_with_its_theta(loaded: Load) -> None:
    text = loaded("4.57.6").normalize_text_config(PUBLISHED)

    assert text["rope_theta"] == 1e6
    assert text["rope_scaling"] == LLAMA3
    assert "rope_parameters" not in text


def test_published_rope_is_joined_for_new_transformers(loaded: Load) -> None:
    text = loaded("5.19.0").normalize_text_config(PUBLISHED)

    assert text["rope_parameters"] == {**LLAMA3, "rope_theta": 1e6}
    assert "rope_scaling" not in text
    assert "rope_theta" not in text


@pytest.mark.parametrize("version", ["4.57.6", "5.19.0"])
def test_every_spelling_of_one_rope_reads_alike(loaded: Load, version: str) -> None:
    module = loaded(version)
    rest = {key: value for key, value in PUBLISHED.items() if key != "rope_scaling"}
    spellings = [
        {"rope_scaling": {**LLAMA3, "rope_theta": 1e6}},
        {"rope_scaling": LLAMA3, "rope_theta": 1e6},
        {"rope_parameters": {**LLAMA3, "rope_theta": 1e6}},
        {"rope_parameters": {**LLAMA3, "rope_theta": 1e6}, "rope_scaling": None},
    ]

    read = [module.normalize_text_config({**rest, **spelling}) for spelling in spellings]

    assert read == [read[0]] * len(spellings)


def test_default_rope_of_a_saved_config_is_no_scaling_for_old_transformers(loaded: Load) -> None:
    saved = {**PUBLISHED, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    del saved["rope_scaling"]

    text = loaded("4.57.6").normalize_text_config(saved)

    assert (text["rope_scaling"], text["rope_theta"]) == (None, 5e5)


@pytest.mark.parametrize("version", ["4.57.6", "5.19.0"])
def test_a_config_without_rope_is_left_to_transformers(loaded: Load, version: str) -> None:
    text = loaded(version).normalize_text_config({"num_hidden_layers": 4})

    assert not {"rope_theta", "rope_scaling", "rope_parameters"} & set(text)


def test_the_drafters_layer_type_is_dropped_and_the_input_left_alone(loaded: Load) -> None:
    surplus = {**PUBLISHED, "layer_types": [*PUBLISHED["layer_types"], "sliding_attention"]}
    before = deepcopy(surplus)

    text = loaded("5.19.0").normalize_text_config(surplus)

    assert text["layer_types"] == PUBLISHED["layer_types"]
    assert surplus == before


@pytest.mark.parametrize(("entries", "drafter"), [(3, 1), (6, 1), (6, 2), (5, 0), (5, None)])
def test_any_other_number_of_layer_types_is_refused_with_both_numbers(
    loaded: Load, entries: int, drafter: int | None
) -> None:
    wrong = {
        **PUBLISHED,
        "layer_types": ["sliding_attention"] * entries,
        "num_nextn_predict_layers": drafter,
    }

    with pytest.raises(ValueError, match=rf"has {entries} entries, but num_hidden_layers is 4"):
        loaded("5.19.0").normalize_text_config(wrong)


@given(layers=st.integers(0, 80), entries=st.integers(0, 82), drafter=st.integers(0, 3))
def test_layer_types_are_as_many_as_layers_or_refused(
    layers: int, entries: int, drafter: int
) -> None:
    text = {
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": drafter,
        "layer_types": [str(number) for number in range(entries)],
    }
    with pytest.MonkeyPatch.context() as patch:
        normalize = load("5.19.0", patch).normalize_text_config
    fits = entries == layers or (entries == layers + 1 and drafter == 1)

    if fits:
        once = normalize(text)
        assert once["layer_types"] == text["layer_types"][:layers]
        assert normalize(once) == once
    else:
        with pytest.raises(ValueError, match="layer_types"):
            normalize(text)


def test_the_whole_config_shows_what_only_its_text_part_holds(loaded: Load) -> None:
    config = loaded("4.57.6").Exaone4_5_Config(text_config=PUBLISHED)

    assert (config.vocab_size, config.num_nextn_predict_layers) == (512, 1)
    assert config.text_config.model_type == "exaone4"


def test_the_top_of_the_config_wins_where_it_speaks(loaded: Load) -> None:
    config = loaded("4.57.6").Exaone4_5_Config(text_config=PUBLISHED, vocab_size=640)

    assert (config.vocab_size, config.text_config.vocab_size) == (640, 512)


@pytest.mark.parametrize("tied", [True, False])
def test_tying_is_the_models_and_reaches_the_language_model(loaded: Load, tied: bool) -> None:
    text = {**PUBLISHED, "tie_word_embeddings": not tied}

    config = loaded("4.57.6").Exaone4_5_Config(text_config=text, tie_word_embeddings=tied)

    assert config.text_config.tie_word_embeddings is tied


def test_vision_defaults_are_the_published_model(loaded: Load) -> None:
    vision = loaded("4.57.6").Exaone4_5_Config().vision_config

    assert (vision.depth, vision.num_heads, vision.num_key_value_heads) == (28, 32, 8)
    assert vision.fullatt_block_indexes == [6, 13, 20, 27]
