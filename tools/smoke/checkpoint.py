"""A tiny EXAONE-4.5 checkpoint, written file by file from the architecture's facts.

Two config shapes describe one set of weights: ``published`` as in the vendor's repository and
``saved`` as transformers 5 writes it. The fixture is built so that errors show: prompts are longer
than the sliding window, images are larger than a vision window, RoPE's scaling starts within the
prompts, and its theta is nobody's default.
"""

import functools
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tools.smoke import tokenizer
from tools.smoke.weights import (
    Tensor,
    fill,
    from_function,
    rows_of,
    safetensors,
    spread,
    stack_rows,
)

FORMAT = 1
SEED = "exaone-4.5-tiny/1"


class Shape(Enum):
    """How ``config.json`` spells the model."""

    PUBLISHED = "published"
    SAVED = "saved"


class Weights(Enum):
    """Which weights the checkpoint holds.

    ``RANDOM`` exercises every layer; ``ACCEPTING`` is a model whose decoder layers add nothing and
    whose head maps each token to a fixed next one, so that a right drafter is always accepted;
    ``UNDRAFTED`` lacks the MTP module.
    """

    RANDOM = "random"
    ACCEPTING = "accepting"
    UNDRAFTED = "undrafted"


@dataclass(frozen=True)
class Variant:
    """One checkpoint.

    Args:
        shape: How its config is spelled.
        weights: Which weights it holds.
        extra_layer_type: Whether `layer_types` has an entry for the MTP layer as well, as the
            vendor's FP8 repository has it.
        window: The sliding window that the config names; another one than the fixture's own makes
            a mutant.
    """

    shape: Shape = Shape.PUBLISHED
    weights: Weights = Weights.RANDOM
    extra_layer_type: bool = False
    window: int = 32

    @property
    def name(self) -> str:
        """A file name for the variant."""
        extra = "-extra" if self.extra_layer_type else ""
        return f"{self.shape.value}-{self.weights.value}-w{self.window}{extra}"


@dataclass(frozen=True)
class Text:
    """Sizes of the language model."""

    hidden: int = 256
    intermediate: int = 384
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    pattern: str = "LLLG"
    positions: int = 4096
    rope_theta: float = 1e6

    @property
    def layer_types(self) -> list[str]:
        """The attention of each layer."""
        kinds = {"L": "sliding_attention", "G": "full_attention"}
        return [kinds[self.pattern[i % len(self.pattern)]] for i in range(self.layers)]


@dataclass(frozen=True)
class Vision:
    """Sizes of the vision tower; blocks 1 and 3 attend to the whole image."""

    hidden: int = 128
    intermediate: int = 192
    depth: int = 4
    heads: int = 4
    kv_heads: int = 2
    patch: int = 14
    temporal: int = 2
    merge: int = 2
    window: int = 112
    full: tuple[int, ...] = (1, 3)


TEXT = Text()
VISION = Vision()
PIXELS = (3136, 200704)
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def write_checkpoint(variant: Variant, cache: Path) -> Path:
    """Write a variant below ``cache`` unless it is there, and return its directory.

    The directory's name holds a hash of its content, and it appears by one rename, so a reader
    never sees half a checkpoint.

    Raises:
        OSError: ``cache`` cannot be written.
    """
    files = checkpoint_files(variant)
    target = cache / f"{variant.name}-{digest(files)[:16]}"
    publish(files, target)
    return target


def publish(files: Mapping[str, bytes], target: Path) -> None:
    """Make ``target`` a directory of ``files`` by one rename; leave one that exists alone."""
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        aside = Path(scratch) / "checkpoint"
        aside.mkdir()
        for name, content in files.items():
            (aside / name).write_bytes(content)
        try:
            aside.rename(target)
        except OSError:
            # Another run published the same content first; anything else is an error.
            if not target.is_dir():
                raise


def digest(files: Mapping[str, bytes]) -> str:
    """Return a hash of file names and contents."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return total.hexdigest()


@functools.cache
def checkpoint_files(variant: Variant) -> Mapping[str, bytes]:
    """Return the checkpoint's files by name."""
    tensors = accepting_tensors() if variant.weights is Weights.ACCEPTING else random_tensors()
    if variant.weights is Weights.UNDRAFTED:
        tensors = {name: t for name, t in tensors.items() if not name.startswith("mtp.")}
    documents = {
        "config.json": config(variant),
        "generation_config.json": {
            "bos_token_id": tokenizer.BOS,
            "eos_token_id": tokenizer.EOS,
            "pad_token_id": tokenizer.PAD,
            "do_sample": False,
        },
        **processor_documents(),
        **tokenizer.tokenizer_files(),
    }
    files = {name: _json(document) for name, document in documents.items()}
    files["model.safetensors"] = safetensors(tensors)
    return MappingProxyType(files)


def _json(document: object) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=True).encode() + b"\n"


def config(variant: Variant) -> dict[str, Any]:
    """Return ``config.json`` of a variant."""
    published = variant.shape is Shape.PUBLISHED
    rope = {
        "rope_type": "llama3",
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": TEXT.rope_theta,
    }
    layer_types = TEXT.layer_types
    if variant.extra_layer_type:
        layer_types.append("sliding_attention")
    text = {
        "model_type": "exaone4_5_text" if published else "exaone4",
        "vocab_size": tokenizer.VOCABULARY,
        "hidden_size": TEXT.hidden,
        "intermediate_size": TEXT.intermediate,
        "num_hidden_layers": TEXT.layers,
        "num_attention_heads": TEXT.heads,
        "num_key_value_heads": TEXT.kv_heads,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": TEXT.positions,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "tie_word_embeddings": False,
        "bos_token_id": tokenizer.BOS,
        "eos_token_id": tokenizer.EOS,
        "pad_token_id": tokenizer.PAD,
        "sliding_window": variant.window,
        "sliding_window_pattern": TEXT.pattern,
        "layer_types": layer_types,
        "num_nextn_predict_layers": 1,
        ("rope_scaling" if published else "rope_parameters"): rope,
    }
    vision = {
        "model_type": "exaone4_5_vision",
        "depth": VISION.depth,
        "hidden_size": VISION.hidden,
        "hidden_act": "silu",
        "intermediate_size": VISION.intermediate,
        "num_heads": VISION.heads,
        "num_key_value_heads": VISION.kv_heads,
        "in_channels": 3,
        "patch_size": VISION.patch,
        "spatial_merge_size": VISION.merge,
        "temporal_patch_size": VISION.temporal,
        "window_size": VISION.window,
        "out_hidden_size": TEXT.hidden,
        "fullatt_block_indexes": list(VISION.full),
        "initializer_range": 0.02,
    }
    top: dict[str, Any] = {
        "architectures": ["Exaone4_5_ForConditionalGeneration"],
        "model_type": "exaone4_5",
        "image_token_id": tokenizer.IMAGE,
        "video_token_id": tokenizer.VIDEO,
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": vision,
    }
    if published:
        top |= {"vocab_size": tokenizer.VOCABULARY, "torch_dtype": "bfloat16"}
        top["transformers_version"] = "5.0.0.dev0"
    else:
        for part in (top, text, vision):
            part["dtype"] = "bfloat16"
        top["transformers_version"] = "5.8.0"
    return top


def processor_documents() -> dict[str, object]:
    """Return the image and video processor's configuration files by name."""
    common = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": list(MEAN),
        "image_std": list(STD),
        "min_pixels": PIXELS[0],
        "max_pixels": PIXELS[1],
        "size": {"shortest_edge": PIXELS[0], "longest_edge": PIXELS[1]},
        "patch_size": VISION.patch,
        "temporal_patch_size": VISION.temporal,
        "merge_size": VISION.merge,
        "resample": 3,
        "rescale_factor": 1 / 255,
        "processor_class": "Exaone4_5_Processor",
    }
    return {
        "preprocessor_config.json": {"image_processor_type": "Qwen2VLImageProcessor", **common},
        "video_preprocessor_config.json": {
            "video_processor_type": "Qwen2VLVideoProcessor",
            "do_sample_frames": False,
            **common,
        },
    }


def random_tensors() -> dict[str, Tensor]:
    """Return weights that make every layer count and every token decided by a margin."""
    names: dict[str, Tensor] = {}

    def draw(name: str, *shape: int, std: float, mean: float = 0.0) -> None:
        names[name] = spread(f"{SEED}/{name}", shape, std, mean)

    draw("model.language_model.embed_tokens.weight", tokenizer.VOCABULARY, TEXT.hidden, std=1.0)
    head = rows_of(spread(f"{SEED}/lm_head.weight", (tokenizer.VOCABULARY, TEXT.hidden), 0.25))
    for placeholder in (tokenizer.IMAGE, tokenizer.VIDEO):
        # A model that answers with a placeholder asks for an image that is not there.
        head[placeholder] = bytes(2 * TEXT.hidden)
    names["lm_head.weight"] = stack_rows(head, TEXT.hidden)
    draw("model.language_model.norm.weight", TEXT.hidden, std=0.2, mean=1.0)
    layers = [f"model.language_model.layers.{index}" for index in range(TEXT.layers)]
    for layer in (*layers, "mtp.layers.0"):
        queries, keys = TEXT.heads * TEXT.head_dim, TEXT.kv_heads * TEXT.head_dim
        attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
        draw(f"{attention}.q_proj.weight", queries, TEXT.hidden, std=0.06)
        draw(f"{attention}.k_proj.weight", keys, TEXT.hidden, std=0.06)
        draw(f"{attention}.v_proj.weight", keys, TEXT.hidden, std=0.06)
        draw(f"{attention}.o_proj.weight", TEXT.hidden, queries, std=0.06)
        # Above one, so that attention is peaked and moving a key changes what is read.
        draw(f"{attention}.q_norm.weight", TEXT.head_dim, std=0.3, mean=1.6)
        draw(f"{attention}.k_norm.weight", TEXT.head_dim, std=0.3, mean=1.6)
        draw(f"{mlp}.gate_proj.weight", TEXT.intermediate, TEXT.hidden, std=0.06)
        draw(f"{mlp}.up_proj.weight", TEXT.intermediate, TEXT.hidden, std=0.06)
        draw(f"{mlp}.down_proj.weight", TEXT.hidden, TEXT.intermediate, std=0.06)
        draw(f"{layer}.post_attention_layernorm.weight", TEXT.hidden, std=0.2, mean=1.0)
        draw(f"{layer}.post_feedforward_layernorm.weight", TEXT.hidden, std=0.2, mean=0.6)
    draw("mtp.fc.weight", TEXT.hidden, 2 * TEXT.hidden, std=0.05)
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        draw(f"mtp.{norm}.weight", TEXT.hidden, std=0.2, mean=1.0)

    tower, width = "model.visual", VISION.hidden
    head_width = width // VISION.heads
    volume = (width, 3, VISION.temporal, VISION.patch, VISION.patch)
    draw(f"{tower}.patch_embed.proj.weight", *volume, std=0.05)
    for index in range(VISION.depth):
        block = f"{tower}.blocks.{index}"
        grouped = width + 2 * VISION.kv_heads * head_width
        draw(f"{block}.norm1.weight", width, std=0.2, mean=1.0)
        draw(f"{block}.norm2.weight", width, std=0.2, mean=1.0)
        draw(f"{block}.attn.qkv.weight", grouped, width, std=0.14)
        draw(f"{block}.attn.qkv.bias", grouped, std=0.2)
        draw(f"{block}.attn.proj.weight", width, width, std=0.12)
        draw(f"{block}.attn.proj.bias", width, std=0.05)
        for part in ("gate_proj", "up_proj"):
            draw(f"{block}.mlp.{part}.weight", VISION.intermediate, width, std=0.09)
            draw(f"{block}.mlp.{part}.bias", VISION.intermediate, std=0.05)
        draw(f"{block}.mlp.down_proj.weight", width, VISION.intermediate, std=0.09)
        draw(f"{block}.mlp.down_proj.bias", width, std=0.05)
    merged = width * VISION.merge**2
    draw(f"{tower}.merger.ln_q.weight", width, std=0.2, mean=1.0)
    draw(f"{tower}.merger.mlp.0.weight", merged, merged, std=0.05)
    draw(f"{tower}.merger.mlp.0.bias", merged, std=0.05)
    draw(f"{tower}.merger.mlp.2.weight", TEXT.hidden, merged, std=0.06)
    draw(f"{tower}.merger.mlp.2.bias", TEXT.hidden, std=0.05)
    return names


def next_token(token: int) -> int:
    """Return the token that the accepting checkpoint puts after ``token`` (a permutation)."""
    return (5 * token + 7) % tokenizer.VOCABULARY


def accepting_tensors() -> dict[str, Tensor]:
    """Return weights under which target and drafter agree on every next token.

    Zero weights of the norms after attention and MLP make each decoder layer add nothing, the head
    holds each token's embedding in the row of its successor, and the drafter's projection takes
    the embedding half of its input alone.
    """
    names = random_tensors()
    for name, tensor in names.items():
        if name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight")):
            names[name] = fill(tensor.shape, 0.0)
        elif (
            name in ("mtp.norm.weight", "model.language_model.norm.weight") or "mtp.pre_fc" in name
        ):
            names[name] = fill(tensor.shape, 1.0)
    embedding = rows_of(names["model.language_model.embed_tokens.weight"])
    head = [b""] * tokenizer.VOCABULARY
    for token, row in enumerate(embedding):
        head[next_token(token)] = row
    names["lm_head.weight"] = stack_rows(head, TEXT.hidden)
    names["mtp.fc.weight"] = from_function(
        (TEXT.hidden, 2 * TEXT.hidden), lambda row, column: float(row == column)
    )
    return names
