# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vllm-exaone project
"""What differs between vLLM releases for EXAONE 4.5, in one place.

Everything here asks what the release at hand offers (a parameter, a method) and never which release
it is, so it also holds on a commit between two releases.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from vllm.model_executor.models import qwen2_5_vl

if TYPE_CHECKING:
    from torch import nn
    from vllm.config import VllmConfig
    from vllm.model_executor.layers.quantization import QuantizationConfig

# Every EXAONE 4.5 vision norm has this epsilon; no configuration key holds it.
VISION_NORM_EPS = 1e-6


def mark_vision_tower(model: nn.Module, vllm_config: VllmConfig) -> AbstractContextManager[None]:
    """Return the context in which ``model`` assigns its vision tower.

    Args:
        model: The multimodal model.
        vllm_config: The engine's configuration.

    Returns:
        Upstream's own mark, which lets a language-only run drop the tower, or an empty context
        where the release has no such mark.
    """
    mark = getattr(model, "_mark_tower_model", None)
    return mark(vllm_config, {"image", "video"}) if mark else nullcontext()


def mark_language_model(model: nn.Module, vllm_config: VllmConfig) -> AbstractContextManager[None]:
    """Return the context in which ``model`` assigns its language model.

    Args:
        model: The multimodal model.
        vllm_config: The engine's configuration.

    Returns:
        Upstream's own mark, which lets an encoder-only run drop the language model, or an empty
        context where the release has no such mark.
    """
    mark = getattr(model, "_mark_language_model", None)
    return mark(vllm_config) if mark else nullcontext()


def needs_vision_tower(model: nn.Module, vllm_config: VllmConfig) -> bool:
    """Say whether ``model`` has to build its vision tower.

    Args:
        model: The multimodal model.
        vllm_config: The engine's configuration.

    Returns:
        True where the release has a mark, which drops the tower itself; before, whether the engine
        admits an image or a video at all.
    """
    if hasattr(model, "_mark_tower_model"):
        return True
    limit = vllm_config.model_config.multimodal_config.get_limit_per_prompt
    return bool(limit("image") or limit("video"))


def build_vision_transformer(
    vllm_config: VllmConfig, quant_config: QuantizationConfig | None, prefix: str
) -> qwen2_5_vl.Qwen2_5_VisionTransformer:
    """Build the release's Qwen2.5-VL vision transformer from EXAONE's vision configuration.

    Args:
        vllm_config: The engine's configuration.
        quant_config: The quantization of the checkpoint, if any.
        prefix: The name of the transformer in the engine.

    Returns:
        The transformer as upstream builds it: with a key and a value head for each query head.
    """
    model_config = vllm_config.model_config
    mm_config = model_config.multimodal_config
    # How the transformer learns of data parallelism and of the attention backend differs: each
    # release takes some of these, the later ones none.
    offered = {
        "use_data_parallel": lambda: mm_config.mm_encoder_tp_mode == "data",
        "multimodal_config": lambda: mm_config,
        # contract: ignore[CT212] called only where the transformer takes it: there it exists
        "attn_backend_override": lambda: mm_config.mm_encoder_attn_backend,
    }
    transformer = qwen2_5_vl.Qwen2_5_VisionTransformer
    wanted = inspect.signature(transformer.__init__).parameters
    return transformer(
        vision_config=model_config.hf_config.vision_config,
        norm_eps=VISION_NORM_EPS,
        quant_config=quant_config,
        prefix=prefix,
        **{name: value() for name, value in offered.items() if name in wanted},
    )
