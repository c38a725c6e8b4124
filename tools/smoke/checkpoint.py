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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tools.smoke import quantised, script, tokenizer
from tools.smoke.tensors import (
    TEXT,
    VISION,
    accepting_tensors,
    random_tensors,
    tied_tensors,
    undrafted_tensors,
)
from tools.smoke.weights import Tensor, safetensors

CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")


class Shape(Enum):
    """How ``config.json`` spells the model."""

    PUBLISHED = "published"
    SAVED = "saved"


class Weights(Enum):
    """Which weights the checkpoint holds.

    ``RANDOM`` exercises every layer; ``ACCEPTING`` is a model whose decoder layers add nothing and
    whose head maps each token to a fixed next one, so that a right drafter is always accepted;
    ``SCRIPTED`` is such a model whose next tokens make a sensible answer; ``TIED`` has the
    embedding for a head; ``UNDRAFTED`` lacks the MTP module.
    """

    RANDOM = "random"
    ACCEPTING = "accepting"
    SCRIPTED = "scripted"
    TIED = "tied"
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
        quantised: Whether the language model's layers are in FP8, the drafter's are not.
        chat: Whether it has a chat template.
    """

    shape: Shape = Shape.PUBLISHED
    weights: Weights = Weights.RANDOM
    extra_layer_type: bool = False
    window: int = 32
    quantised: bool = False
    chat: bool = False

    @property
    def name(self) -> str:
        """A file name for the variant."""
        marks = {
            "extra": self.extra_layer_type,
            "quantised": self.quantised,
            "chat": self.chat,
        }
        extra = "".join(f"-{mark}" for mark, is_set in marks.items() if is_set)
        return f"{self.shape.value}-{self.weights.value}-w{self.window}{extra}"


_TENSORS: Mapping[Weights, Callable[[], dict[str, Tensor]]] = {
    Weights.RANDOM: random_tensors,
    Weights.ACCEPTING: accepting_tensors,
    Weights.SCRIPTED: functools.partial(accepting_tensors, script.successor),
    Weights.TIED: tied_tensors,
    Weights.UNDRAFTED: undrafted_tensors,
}
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
    tensors = _TENSORS[variant.weights]()
    if variant.quantised:
        tensors = quantised.quantised_tensors(tensors)
    more = script.TOKENS if variant.weights is Weights.SCRIPTED else {}
    documents = {
        "config.json": config(variant),
        "generation_config.json": {
            "bos_token_id": tokenizer.BOS,
            "eos_token_id": tokenizer.EOS,
            "pad_token_id": tokenizer.PAD,
            "do_sample": False,
        },
        **processor_documents(),
        **tokenizer.tokenizer_files(more),
    }
    files = {name: _json(document) for name, document in documents.items()}
    files["model.safetensors"] = safetensors(tensors)
    if variant.chat:
        files["chat_template.jinja"] = CHAT_TEMPLATE.read_bytes()
    return MappingProxyType(files)


def _json(document: object) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=True).encode() + b"\n"


def config(variant: Variant) -> dict[str, Any]:
    """Return ``config.json`` of a variant."""
    published = variant.shape is Shape.PUBLISHED
    tied = variant.weights is Weights.TIED
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
        "tie_word_embeddings": tied,
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
        "tie_word_embeddings": tied,
        "text_config": text,
        "vision_config": vision,
    }
    if variant.quantised:
        top["quantization_config"] = quantised.quantization_config()
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
