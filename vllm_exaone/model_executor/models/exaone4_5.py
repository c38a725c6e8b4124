# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vllm-exaone project
"""EXAONE 4.5: an EXAONE 4.0 language model behind Qwen2.5-VL's vision encoder.

Against Qwen2.5-VL the vision encoder differs in one thing, grouped key/value heads, and the
language model takes plain one-dimensional positions. So this module builds the two parts and
inherits the rest (pixel and video inputs, window attention, embedding merge, weight names) from the
release it is laid over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from vllm.model_executor.layers.linear import QKVParallelLinear
from vllm.model_executor.models.qwen2_5_vl import (
    Qwen2_5_VLDummyInputsBuilder,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLMultiModalProcessor,
    Qwen2_5_VLProcessingInfo,
)
from vllm.model_executor.models.utils import init_vllm_registered_model, maybe_prefix
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.transformers_utils.configs.exaone4_5 import Exaone4_5_Config
from vllm.transformers_utils.processors.exaone4_5 import Exaone4_5_Processor

from .exaone4_5_compat import (
    build_vision_transformer,
    mark_language_model,
    mark_vision_tower,
    needs_vision_tower,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm.config import VllmConfig
    from vllm.model_executor.layers.quantization import QuantizationConfig

_PLACEHOLDERS = {
    "image": "<vision><|image_pad|></vision>",
    "video": "<vision><|video_pad|></vision>",
}


class Exaone4_5_GroupedQKV(QKVParallelLinear):  # noqa: N801
    """A fused projection with few key/value heads whose output has one for each query head.

    Qwen2.5-VL's attention takes its output as three equal parts. Widening the output instead of the
    weights keeps the projection, and what it costs, as small as the checkpoint has it.
    """

    def forward(self, input_: torch.Tensor) -> tuple[torch.Tensor, torch.nn.Parameter | None]:
        """Project, then repeat each key and value head for the query heads that share it.

        Args:
            input_: Activations, ``[..., hidden]``.

        Returns:
            ``[..., 3 * query heads * head size]`` of this rank, and the bias that was not added.
        """
        output, bias = super().forward(input_)
        queries = self.num_heads * self.head_size
        query, grouped = output.split([queries, output.shape[-1] - queries], dim=-1)
        # Keys and values lie one after the other, so one repetition serves both.
        heads = grouped.unflatten(-1, (2 * self.num_kv_heads, 1, self.head_size))
        repeats = self.num_heads // self.num_kv_heads
        widened = heads.expand(*heads.shape[:-2], repeats, self.head_size).flatten(-3)
        return torch.cat([query, widened], dim=-1), bias


def build_vision_tower(
    vllm_config: VllmConfig, quant_config: QuantizationConfig | None, prefix: str
) -> nn.Module:
    """Build the vision tower: the release's Qwen2.5-VL transformer with grouped heads.

    Args:
        vllm_config: The engine's configuration.
        quant_config: The quantization of the checkpoint, if any.
        prefix: The name of the tower in the engine.

    Returns:
        The tower, with parameters as the checkpoint has them.
    """
    vision_config = vllm_config.model_config.hf_config.vision_config
    tower = build_vision_transformer(vllm_config, quant_config, prefix)
    for index, block in enumerate(tower.blocks):
        equal = block.attn.qkv
        block.attn.qkv = Exaone4_5_GroupedQKV(
            equal.hidden_size,
            equal.head_size,
            vision_config.num_heads,
            vision_config.num_key_value_heads,
            bias=True,
            quant_config=quant_config,
            prefix=f"{prefix}.blocks.{index}.attn.qkv",
            disable_tp=equal.disable_tp,
        )
    return tower


class Exaone4_5_ProcessingInfo(Qwen2_5_VLProcessingInfo):  # noqa: N801
    """Where the processing that is Qwen2.5-VL's finds EXAONE's configuration and processor."""

    def get_hf_config(self) -> Exaone4_5_Config:
        """Return the model's configuration."""
        return self.ctx.get_hf_config(Exaone4_5_Config)

    def get_hf_processor(self, **kwargs: object) -> Exaone4_5_Processor:
        """Return the model's processor.

        Args:
            kwargs: Settings of the image and video processors for this request.
        """
        kwargs.setdefault("use_fast", True)
        return self.ctx.get_hf_processor(Exaone4_5_Processor, **kwargs)


class Exaone4_5_MultiModalProcessor(Qwen2_5_VLMultiModalProcessor):  # noqa: N801
    """Qwen2.5-VL's processing, with text of its own kept away from transformers' processor."""

    def _apply_hf_processor_text_only(
        self, prompt_text: str, tokenization_kwargs: Mapping[str, object]
    ) -> list[int]:
        # From 5.24.0 on the processor refuses a placeholder whose image is processed apart; without
        # images it does nothing but tokenize.
        return self.info.get_tokenizer().encode(prompt_text, **tokenization_kwargs)


@MULTIMODAL_REGISTRY.register_processor(
    Exaone4_5_MultiModalProcessor,
    info=Exaone4_5_ProcessingInfo,
    dummy_inputs=Qwen2_5_VLDummyInputsBuilder,
)
class Exaone4_5_ForConditionalGeneration(Qwen2_5_VLForConditionalGeneration):  # noqa: N801
    """EXAONE 4.5 for text, images and videos."""

    # Inherited abilities that rest on Qwen's three-dimensional positions or on Qwen's own language
    # model.
    supports_mrope = False
    supports_multimodal_pruning = False
    supports_eagle3 = False

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:  # noqa: ARG003
        """Return what stands in a prompt for one item.

        Args:
            modality: "image" or "video", or one of them with "_embeds".
            i: The number of the item; every item has the same placeholder.

        Raises:
            ValueError: The model takes no such modality.
        """
        kind = modality.removesuffix("_embeds")
        if kind not in _PLACEHOLDERS:
            raise ValueError(f"EXAONE 4.5 takes images and videos, not {modality!r}")
        return _PLACEHOLDERS[kind]

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        # Qwen2.5-VL's own would build Qwen's towers.
        nn.Module.__init__(self)
        model_config = vllm_config.model_config
        config = model_config.hf_config
        mm_config = model_config.multimodal_config
        if getattr(mm_config, "video_pruning_rate", None):
            # Pruning hands positions along in the embeddings, which only Qwen's kind can take.
            raise ValueError("EXAONE 4.5 cannot prune videos: leave out the video pruning rate")

        self.config = config
        self.model_config = model_config
        self.vllm_config = vllm_config
        self.multimodal_config = mm_config
        self.use_data_parallel = mm_config.mm_encoder_tp_mode == "data"
        self.video_pruning_rate = None
        self.is_multimodal_pruning_enabled = False

        self.visual = None
        if needs_vision_tower(self, vllm_config):
            with mark_vision_tower(self, vllm_config):
                self.visual = build_vision_tower(
                    vllm_config, self.quant_config, maybe_prefix(prefix, "visual")
                )

        with mark_language_model(self, vllm_config):
            self.language_model = init_vllm_registered_model(
                vllm_config=vllm_config,
                hf_config=config.text_config,
                architectures=["Exaone4ForCausalLM"],
                prefix=maybe_prefix(prefix, "language_model"),
            )
        self.make_empty_intermediate_tensors = self.language_model.make_empty_intermediate_tensors

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load the checkpoint, without the drafter that it also holds.

        Args:
            weights: The checkpoint's tensors by name.

        Returns:
            The names of the parameters that were loaded.
        """
        # Not by a name mapping to None: it would also drop the drafter's entries from the
        # checkpoint's list of layers that are not quantized, which target and drafter share.
        own = ((name, tensor) for name, tensor in weights if not name.startswith("mtp."))
        return super().load_weights(own)
