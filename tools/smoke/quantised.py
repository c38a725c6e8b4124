"""FP8 weights for the tiny checkpoint, as compressed-tensors stores them.

The decoder layers of the language model are quantised: one scale a row, activations quantised as
they come. Vision tower, head and drafter are not, and the config lists their linear layers one by
one, as tools that write such checkpoints do. The format is described at
https://github.com/vllm-project/compressed-tensors (``float-quantized``).
"""

import bisect
import functools
import math
import struct
from collections.abc import Mapping
from typing import Any

from tools.smoke.tensors import VISION
from tools.smoke.weights import FLOAT8, Tensor, fill

LARGEST = 448.0
_LANGUAGE_MODEL = "model.language_model.layers."
_LINEAR = {
    "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}


def quantised_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with each linear layer of the decoder in FP8, and its scales."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        if name.startswith(_LANGUAGE_MODEL) and name.endswith("_proj.weight"):
            found[name], found[f"{name}_scale"] = quantise(tensor)
    return found


def quantise(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix of bfloat16 in FP8 and the scale of its rows, a power of two for all."""
    values = struct.unpack(f"<{len(tensor.data) // 2}H", tensor.data)
    levels = {bits: _float(bits) for bits in set(values)}
    scale = 2.0 ** math.ceil(math.log2(max(map(abs, levels.values())) / LARGEST))
    codes = {bits: float8(level / scale) for bits, level in levels.items()}
    data = bytes(codes[bits] for bits in values)
    return Tensor(tensor.shape, data, FLOAT8), fill((tensor.shape[0], 1), scale)


def _float(bits: int) -> float:
    (value,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    return float(value)


@functools.cache
def _magnitudes() -> list[float]:
    """Return the values of the codes 0 to 126: E4M3 with bias 7, subnormals, no infinity."""
    return [
        (code % 8) / 8 * 2.0**-6 if code < 8 else (1 + code % 8 / 8) * 2.0 ** (code // 8 - 7)
        for code in range(127)
    ]


def float8(value: float) -> int:
    """Return the E4M3 code nearest to a value, the largest one beyond the range."""
    grid = _magnitudes()
    above = min(bisect.bisect_left(grid, abs(value)), len(grid) - 1)
    below = max(above - 1, 0)
    near = above if grid[above] - abs(value) <= abs(value) - grid[below] else below
    return near | (0x80 if value < 0 else 0)


def quantization_config() -> dict[str, Any]:
    """Return the ``quantization_config``, whose layers go by their names in the checkpoint."""
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": _scheme("channel", dynamic=False),
                "input_activations": _scheme("token", dynamic=True),
                "output_activations": None,
            }
        },
        "ignore": ["lm_head", "mtp.fc", *_drafter_layers(), *_vision_layers()],
    }


def _scheme(strategy: str, *, dynamic: bool) -> dict[str, Any]:
    return {
        "type": "float",
        "num_bits": 8,
        "strategy": strategy,
        "dynamic": dynamic,
        "symmetric": True,
    }


def _drafter_layers() -> list[str]:
    return [f"mtp.layers.0.{part}.{name}" for part, names in _LINEAR.items() for name in names]


def _vision_layers() -> list[str]:
    inner = ("attn.qkv", "attn.proj", *(f"mlp.{name}" for name in _LINEAR["mlp"]))
    blocks = [f"model.visual.blocks.{i}.{name}" for i in range(VISION.depth) for name in inner]
    return [*blocks, "model.visual.merger.mlp.0", "model.visual.merger.mlp.2"]
