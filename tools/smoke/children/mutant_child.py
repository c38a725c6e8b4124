"""Runs in an engine environment: mistakes made on purpose in a loaded model.

Each one is a mistake that a port of EXAONE 4.5 can make. The golden tokens have to notice every
one of them, or they prove nothing. A mutant changes the running model and is undone afterwards, so
one engine start serves all; it touches what Qwen2.5-VL's and EXAONE 4.0's modules have in every
release.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

Undo = Callable[[], None]


def rope_on_global_layers(model: Any) -> Undo:
    """Rotate queries and keys in the full-attention layers too."""
    layers = [
        module
        for module in model.modules()
        if hasattr(module, "apply_rope_all_layers") and not module.sliding_window
    ]
    return _set(layers, "apply_rope_all_layers", True)


def vision_window_off(model: Any) -> Undo:
    """Let every vision block attend to the whole image."""
    return _set([model.visual], "fullatt_block_indexes", list(range(len(model.visual.blocks))))


def groups_swapped(model: Any) -> Undo:
    """Give each group of vision query heads the other group's keys and values.

    What follows the queries are keys, then values; with two groups each half of them is one group,
    whether or not the model has repeated the heads. Outputs are swapped, not weights: an engine
    may have packed those.
    """

    def swap(_module: Any, args: Any, output: Any) -> Any:
        rows, bias = output
        width = args[0].shape[-1]
        keys, values = rows[..., width:].chunk(2, dim=-1)
        parts = [half for part in (keys, values) for half in reversed(part.chunk(2, dim=-1))]
        return importlib.import_module("torch").cat([rows[..., :width], *parts], dim=-1), bias

    handles = [block.attn.qkv.register_forward_hook(swap) for block in model.visual.blocks]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


def normalisation_skipped(model: Any) -> Undo:
    """Undo the pixels' normalisation where they enter the first convolution."""

    def raw(_module: Any, args: Any) -> Any:
        pixels = args[0]
        channels = pixels.reshape(-1, 3, pixels.numel() // (pixels.shape[0] * 3))
        mean = channels.new_tensor(MEAN).view(1, 3, 1)
        std = channels.new_tensor(STD).view(1, 3, 1)
        return ((channels * std + mean).view_as(pixels), *args[1:])

    handle = model.visual.patch_embed.proj.register_forward_pre_hook(raw)
    undo: Undo = handle.remove
    return undo


def images_reversed(model: Any) -> Undo:
    """Put the images of a request in reverse order."""
    right = model._process_image_input

    def reverse(*args: Any, **kwargs: Any) -> Any:
        return tuple(reversed(right(*args, **kwargs)))

    return _set([model], "_process_image_input", reverse)


# Of Qwen2-VL's image processor, as in the tiny checkpoint.
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
MUTANTS: dict[str, Callable[[Any], Undo]] = {
    "rope on global layers": rope_on_global_layers,
    "vision window off": vision_window_off,
    "key/value groups swapped": groups_swapped,
    "normalisation skipped": normalisation_skipped,
    "images in reverse order": images_reversed,
}


def _set(modules: list[Any], name: str, value: Any) -> Undo:
    if not modules:
        raise LookupError(f"no module to set {name} on")
    before = [(module, vars(module).get(name)) for module in modules]
    for module in modules:
        setattr(module, name, value)

    def undo() -> None:
        for module, old in before:
            if old is None:
                delattr(module, name)
            else:
                setattr(module, name, old)

    return undo


@contextlib.contextmanager
def mutated(llm: Any, name: str) -> Iterator[None]:
    """Run the block with a mutant of the engine's model, "" for the model as it is.

    Encoder outputs are not taken from a cache, or the mistake would be the previous run's.
    """
    if not name:
        yield
        return
    (undo,) = llm.apply_model(MUTANTS[name])
    try:
        yield
    finally:
        undo()
