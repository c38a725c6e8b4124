# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vllm-exaone project
"""EXAONE 4.5's multi-token prediction module, which drafts tokens for speculative decoding.

The module normalises the next token's embedding and the target's hidden state, joins them in that
order through one projection, and runs one EXAONE 4.0 decoder layer. The layer counts as layer 0:
sliding attention with rotary positions. Token embedding and output head are the target's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import ColumnParallelLinear
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    VocabParallelEmbedding,
)
from vllm.model_executor.model_loader.weight_utils import (
    default_weight_loader,
    maybe_remap_kv_scale_name,
)
from vllm.model_executor.models.exaone4 import Exaone4DecoderLayer
from vllm.model_executor.models.interfaces import SupportsPP
from vllm.model_executor.models.utils import (
    make_empty_intermediate_tensors_factory,
    maybe_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vllm.config import VllmConfig
    from vllm.sequence import IntermediateTensors

# The target's tensors that the drafter also reads: alone on its pipeline stage it has no target to
# share them with.
_SHARED = {
    "model.language_model.embed_tokens.weight": "model.embed_tokens.weight",
    "lm_head.weight": "lm_head.weight",
}


@support_torch_compile(
    dynamic_arg_dims={"input_ids": 0, "positions": -1, "hidden_states": 0, "inputs_embeds": 0}
)
class Exaone4_5_MultiTokenPredictor(nn.Module):  # noqa: N801
    """From a hidden state and the token after it to the hidden state of that token."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config.text_config
        quant_config = vllm_config.quant_config
        size = config.hidden_size

        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, size)
        self.pre_fc_norm_embedding = RMSNorm(size, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = RMSNorm(size, eps=config.rms_norm_eps)
        self.fc = ColumnParallelLinear(
            2 * size,
            size,
            bias=False,
            gather_output=True,
            quant_config=quant_config,
            prefix=f"{prefix}.fc",
            return_bias=False,
        )
        self.layers = nn.ModuleList(
            [
                Exaone4DecoderLayer(
                    config=config,
                    cache_config=vllm_config.cache_config,
                    quant_config=quant_config,
                    prefix=f"{prefix}.layers.0",
                )
            ]
        )
        self.norm = RMSNorm(size, eps=config.rms_norm_eps)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Run the module once.

        Args:
            input_ids: The tokens after those that ``hidden_states`` belong to.
            positions: The tokens' positions.
            hidden_states: The target's hidden states, or this module's own of the step before.
            inputs_embeds: The tokens' embeddings, instead of ``input_ids``.

        Returns:
            Hidden states from which the head predicts the token after ``input_ids``.
        """
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        hidden_states = self.fc(
            torch.cat(
                [self.pre_fc_norm_embedding(inputs_embeds), self.pre_fc_norm_hidden(hidden_states)],
                dim=-1,
            )
        )
        # The layer norms its outputs and adds the residual itself.
        hidden_states, _ = self.layers[0](positions, hidden_states, None)
        return self.norm(hidden_states)


class Exaone4_5_MTP(nn.Module, SupportsPP):  # noqa: N801
    """The drafter as the engine drives it."""

    packed_modules_mapping = {  # noqa: RUF012
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        # The engine hands over the target's configuration on some releases and the drafter's copy
        # of it on others. In both, sizes stand in the text part.
        hf_config = vllm_config.model_config.hf_config
        config = hf_config.text_config
        self.config = config
        self.quant_config = vllm_config.quant_config
        self._media_token_ids = [
            token
            for name in ("image_token_id", "video_token_id")
            if (token := getattr(hf_config, name, None)) is not None
        ]
        # Named as in the checkpoint, so that its list of unquantized layers applies.
        self.model = Exaone4_5_MultiTokenPredictor(
            vllm_config=vllm_config, prefix=maybe_prefix(prefix, "mtp")
        )
        self.lm_head = ParallelLMHead(
            config.vocab_size,
            config.hidden_size,
            quant_config=self.quant_config,
            prefix=maybe_prefix(prefix, "lm_head"),
        )
        if config.tie_word_embeddings:
            self.lm_head = self.lm_head.tie_weights(self.model.embed_tokens)
        self.logits_processor = LogitsProcessor(config.vocab_size)
        self.make_empty_intermediate_tensors = make_empty_intermediate_tensors_factory(
            ["hidden_states", "residual"], config.hidden_size
        )

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: Sequence[torch.Tensor] | None = None,
        *,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Embed tokens, with the vision tower's embeddings in place of media tokens.

        Args:
            input_ids: Tokens.
            multimodal_embeddings: The embeddings of the media tokens among them, in order.
            is_multimodal: Which tokens those are; where absent, the tokens' ids say.

        Returns:
            One embedding for each token.
        """
        embeds = self.model.embed_tokens(input_ids)
        if multimodal_embeddings is None or len(multimodal_embeddings) == 0:
            return embeds
        if is_multimodal is None:
            media = torch.tensor(self._media_token_ids, device=input_ids.device)
            is_multimodal = torch.isin(input_ids, media)
        joined = torch.cat(list(multimodal_embeddings)).to(embeds)
        mask = is_multimodal.to(embeds.device, non_blocking=True).unsqueeze(-1)
        return embeds.masked_scatter(mask, joined)

    # The name of the same before v0.11.1.
    get_input_embeddings = embed_input_ids

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        hidden_states: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,  # noqa: ARG002
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: object,  # noqa: ARG002
    ) -> torch.Tensor:
        """Draft one token further.

        Args:
            input_ids: The tokens after those that ``hidden_states`` belong to.
            positions: The tokens' positions.
            hidden_states: The target's hidden states, or this model's own of the step before.
            intermediate_tensors: Unused: a drafter runs whole on the last pipeline stage.
            inputs_embeds: The tokens' embeddings, instead of ``input_ids``.
            kwargs: What some releases add; there is only one module, so the step makes no
                difference.

        Returns:
            Hidden states for :meth:`compute_logits` and for the next step.
        """
        return self.model(input_ids, positions, hidden_states, inputs_embeds)

    def compute_logits(
        self,
        hidden_states: torch.Tensor,
        spec_step_idx: int = 0,  # noqa: ARG002
    ) -> torch.Tensor | None:
        """Return the logits of the drafted tokens.

        Args:
            hidden_states: What :meth:`forward` returned, at the positions to draft for.
            spec_step_idx: Unused: every step has the same head.
        """
        return self.logits_processor(self.lm_head, hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load the module's tensors from the target's checkpoint.

        Args:
            weights: The checkpoint's tensors by name.

        Returns:
            The names of the parameters that were loaded.

        Raises:
            ValueError: The checkpoint holds no drafter.
        """
        params = dict(self.named_parameters())
        loaded: set[str] = set()
        found = False
        for name, tensor in weights:
            if name.startswith("mtp."):
                found = True
                target, shard = self._packed("model." + name.removeprefix("mtp."))
            elif name in _SHARED:
                target, shard = _SHARED[name], None
            else:
                continue
            if target not in params:
                # A head tied to the embedding has no parameter of its own, and the cache scales of
                # quantized checkpoints go by several names.
                target = maybe_remap_kv_scale_name(target, params)
                if target not in params:
                    continue
            param = params[target]
            if shard is None:
                getattr(param, "weight_loader", default_weight_loader)(param, tensor)
            else:
                param.weight_loader(param, tensor, shard)
            loaded.add(target)
        if not found:
            raise ValueError(
                "this EXAONE 4.5 checkpoint has no 'mtp.*' tensors, so it cannot draft: "
                "use one that has them, or run without a speculative configuration"
            )
        return loaded

    def _packed(self, name: str) -> tuple[str, str | int | None]:
        """Return the parameter that holds a tensor, and which part of it, if only a part."""
        for packed, parts in self.packed_modules_mapping.items():
            for index, part in enumerate(parts):
                if f".{part}." in name:
                    shard = part[0] if packed == "qkv_proj" else index
                    return name.replace(f".{part}.", f".{packed}."), shard
        return name, None
