"""EXAONE 4.5's MTP module in plain torch, to hold an engine's drafter against.

Written from the architecture alone: norm the embedding and the hidden state, join them in that
order, project, then one decoder layer (post-norm, per-head q/k norm, rotary positions, sliding
window) and a last norm. Runs in an engine environment: torch is imported by name.
"""

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

torch = importlib.import_module("torch")


def reference(checkpoint: Path, token_ids: Any, hidden: Any) -> Any:
    """Return the module's output for each position of one sequence.

    Args:
        checkpoint: A checkpoint directory with one safetensors file and MTP weights.
        token_ids: The tokens after those that ``hidden`` belongs to, from position 0 on.
        hidden: The target's hidden states, one row a position, in float32.
    """
    text = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["text_config"]
    weights = {
        name: tensor.float()
        for name, tensor in importlib.import_module("safetensors.torch")
        .load_file(checkpoint / "model.safetensors")
        .items()
    }
    eps = text["rms_norm_eps"]
    embedded = weights["model.language_model.embed_tokens.weight"][token_ids]
    joined = torch.cat(
        [
            norm(embedded, weights["mtp.pre_fc_norm_embedding.weight"], eps),
            norm(hidden, weights["mtp.pre_fc_norm_hidden.weight"], eps),
        ],
        dim=-1,
    )
    state = joined @ weights["mtp.fc.weight"].T
    layer = {
        name.removeprefix("mtp.layers.0."): tensor
        for name, tensor in weights.items()
        if name.startswith("mtp.layers.0.")
    }
    attended = attention(state, layer, text)
    state = state + norm(attended, layer["post_attention_layernorm.weight"], eps)
    gate = state @ layer["mlp.gate_proj.weight"].T
    up = state @ layer["mlp.up_proj.weight"].T
    mixed = (torch.nn.functional.silu(gate) * up) @ layer["mlp.down_proj.weight"].T
    state = state + norm(mixed, layer["post_feedforward_layernorm.weight"], eps)
    return norm(state, weights["mtp.norm.weight"], eps)


def norm(x: Any, weight: Any, eps: float) -> Any:
    """Return the root-mean-square norm of the last dimension."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def attention(state: Any, layer: Mapping[str, Any], text: Mapping[str, Any]) -> Any:
    """Return causal sliding-window attention with grouped heads."""
    count, heads, kv_heads = (
        state.shape[0],
        text["num_attention_heads"],
        text["num_key_value_heads"],
    )
    width = text.get("head_dim") or text["hidden_size"] // heads
    eps = text["rms_norm_eps"]

    def project(name: str, parts: int) -> Any:
        return (state @ layer[f"self_attn.{name}_proj.weight"].T).view(count, parts, width)

    angles = positions_angles(count, width, text.get("rope_parameters") or text["rope_scaling"])
    queries = rotate(norm(project("q", heads), layer["self_attn.q_norm.weight"], eps), angles)
    keys = rotate(norm(project("k", kv_heads), layer["self_attn.k_norm.weight"], eps), angles)
    keys = keys.repeat_interleave(heads // kv_heads, dim=1)
    values = project("v", kv_heads).repeat_interleave(heads // kv_heads, dim=1)
    scores = torch.einsum("qhd,khd->hqk", queries, keys) / math.sqrt(width)
    place = torch.arange(count)
    distance = place[:, None] - place[None, :]
    seen = (distance >= 0) & (distance < text["sliding_window"])
    scores = scores.masked_fill(~seen, float("-inf"))
    mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).reshape(count, heads * width)
    return mixed @ layer["self_attn.o_proj.weight"].T


def positions_angles(count: int, width: int, rope: Mapping[str, Any]) -> Any:
    """Return the rotation of each position and pair, with Llama 3's scaling of long waves."""
    pairs = torch.arange(0, width, 2, dtype=torch.float64)
    frequency = rope["rope_theta"] ** (-pairs / width)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    # 1 keeps a wave as it is (it turns often within the original length), 0 divides by the factor.
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    frequency = frequency * (keep + (1 - keep) / rope["factor"])
    return torch.arange(count, dtype=torch.float64)[:, None] * frequency[None, :]


def rotate(x: Any, angles: Any) -> Any:
    """Return heads whose halves are rotated against each other by the position's angles."""
    cosine, sine = angles.cos().float()[:, None, :], angles.sin().float()[:, None, :]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
