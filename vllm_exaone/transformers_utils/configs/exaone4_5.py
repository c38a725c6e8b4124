# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vllm-exaone project
"""EXAONE 4.5's configuration, as any published or saved checkpoint spells it.

transformers has the model from 5.8 on; older ones get the two classes from here. Either way the
text part is read leniently where checkpoints differ and strictly where they are wrong:

* rotary settings as ``rope_scaling`` (with ``rope_theta`` inside or beside it) or, as transformers
  5 saves them, as ``rope_parameters``;
* ``layer_types`` with an entry for the drafter's layer behind those of the model, as the FP8
  repository has it, which transformers 5 refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from transformers import Exaone4Config, PretrainedConfig

try:
    from transformers.models.exaone4_5.configuration_exaone4_5 import (
        Exaone4_5_Config as _BaseConfig,
    )
    from transformers.models.exaone4_5.configuration_exaone4_5 import (
        Exaone4_5_VisionConfig,
    )
except ImportError:
    _BaseConfig = None

# transformers 5 keeps all rotary settings in ``rope_parameters``; before, theta stood apart.
_JOINED_ROPE = int(version("transformers").split(".", 1)[0]) >= 5
_DRAFTER_LAYERS = "num_nextn_predict_layers"


def normalize_text_config(text: Mapping[str, Any]) -> dict[str, Any]:
    """Spell the text part of a configuration the way the installed transformers reads it.

    Args:
        text: ``text_config`` of a ``config.json``.

    Returns:
        A copy with one spelling of the rotary settings, the model type that transformers knows, and
        one ``layer_types`` entry for each layer of the model.

    Raises:
        ValueError: ``layer_types`` fits neither the model nor the model with its drafter.
    """
    text = dict(text)
    text["model_type"] = "exaone4"  # published as exaone4_5_text
    _drop_drafter_layer_type(text)

    rope, scaling = text.pop("rope_parameters", None), text.pop("rope_scaling", None)
    rope = dict(rope or scaling or {})
    theta = rope.pop("rope_theta", text.pop("rope_theta", None))
    if rope or theta is not None:
        rope = {"rope_type": rope.pop("type", "default"), **rope}
        if _JOINED_ROPE:
            text["rope_parameters"] = rope if theta is None else {**rope, "rope_theta": theta}
        else:
            text["rope_scaling"] = None if rope == {"rope_type": "default"} else rope
            if theta is not None:
                text["rope_theta"] = theta
    return text


def _drop_drafter_layer_type(text: dict[str, Any]) -> None:
    """Shorten ``layer_types`` by the drafter's entry, the last, where it has one."""
    kinds, layers = text.get("layer_types"), text.get("num_hidden_layers")
    if kinds is None or layers is None:
        return
    surplus = len(kinds) - layers
    if surplus == 0:
        return
    drafter = text.get(_DRAFTER_LAYERS) or 0
    if surplus != 1 or drafter != 1:
        raise ValueError(
            f"text_config.layer_types has {len(kinds)} entries, but num_hidden_layers is {layers} "
            f"and {_DRAFTER_LAYERS} is {drafter}: expected {layers} entries, or one more for a "
            "drafter of one layer"
        )
    text["layer_types"] = list(kinds)[:layers]


if _BaseConfig is None:

    class Exaone4_5_VisionConfig(PretrainedConfig):  # noqa: N801
        """The vision encoder's sizes; defaults are the published model's."""

        model_type = "exaone4_5_vision"
        base_config_key = "vision_config"

        def __init__(
            self,
            *,
            depth: int = 28,
            hidden_size: int = 2048,
            hidden_act: str = "silu",
            intermediate_size: int = 5120,
            num_heads: int = 32,
            num_key_value_heads: int = 8,
            in_channels: int = 3,
            patch_size: int = 14,
            spatial_merge_size: int = 2,
            temporal_patch_size: int = 2,
            window_size: int = 112,
            out_hidden_size: int = 5120,
            fullatt_block_indexes: tuple[int, ...] = (6, 13, 20, 27),
            **kwargs: Any,
        ) -> None:
            super().__init__(**kwargs)
            self.depth = depth
            self.hidden_size = hidden_size
            self.hidden_act = hidden_act
            self.intermediate_size = intermediate_size
            self.num_heads = num_heads
            self.num_key_value_heads = num_key_value_heads
            self.in_channels = in_channels
            self.patch_size = patch_size
            self.spatial_merge_size = spatial_merge_size
            self.temporal_patch_size = temporal_patch_size
            self.window_size = window_size
            self.out_hidden_size = out_hidden_size
            self.fullatt_block_indexes = list(fullatt_block_indexes)

    class _BaseConfig(PretrainedConfig):
        """What transformers 5.8 would have provided."""

        model_type = "exaone4_5"
        sub_configs = {  # noqa: RUF012
            "vision_config": Exaone4_5_VisionConfig,
            "text_config": Exaone4Config,
        }
        keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012

        def __init__(
            self,
            text_config: dict[str, Any] | PretrainedConfig | None = None,
            vision_config: dict[str, Any] | PretrainedConfig | None = None,
            image_token_id: int = 67,
            video_token_id: int = 68,
            tie_word_embeddings: bool = False,
            **kwargs: Any,
        ) -> None:
            if text_config is None or isinstance(text_config, Mapping):
                text_config = Exaone4Config(**(text_config or {}))
            if vision_config is None or isinstance(vision_config, Mapping):
                vision_config = Exaone4_5_VisionConfig(**(vision_config or {}))
            self.text_config = text_config
            self.vision_config = vision_config
            self.image_token_id = image_token_id
            self.video_token_id = video_token_id
            super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)


class Exaone4_5_Config(_BaseConfig):  # noqa: N801
    """The configuration of a text, image and video model with an optional drafter."""

    model_type = "exaone4_5"

    def __init__(self, **kwargs: Any) -> None:
        text = kwargs.get("text_config")
        if isinstance(text, Mapping):
            kwargs["text_config"] = normalize_text_config(text)
        super().__init__(**kwargs)
        # vLLM's drafters and its speculative settings ask the whole configuration for these.
        for name in ("vocab_size", _DRAFTER_LAYERS):
            if name not in kwargs and hasattr(self.text_config, name):
                setattr(self, name, getattr(self.text_config, name))
        # The head belongs to the language model in the engine, which is built from the text part.
        self.text_config.tie_word_embeddings = self.tie_word_embeddings


__all__ = ["Exaone4_5_Config", "Exaone4_5_VisionConfig", "normalize_text_config"]
