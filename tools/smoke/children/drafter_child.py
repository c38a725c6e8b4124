"""Runs in an engine environment: the drafter alone, on the engine's own attention backend.

The drafter is loaded beside a running target and fed from a hook on the target's forward pass. So
it runs in a real forward context, with the attention metadata of the target's sliding layers and
key/value blocks of its own, also on releases whose runner refuses speculative decoding.
"""

import contextlib
import copy
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOKENS = 4


def configured(target: Any, **arguments: Any) -> Any:
    """Return the engine's own configuration of drafts with MTP for a running target."""
    return importlib.import_module("vllm.config").SpeculativeConfig(
        method="mtp",
        target_model_config=target.model_config,
        target_parallel_config=target.parallel_config,
        **arguments,
    )


def speculation(worker: Any) -> tuple[Any, Any]:
    """Return a copy of the engine's configuration that drafts with MTP, and what it adds."""
    target = worker.vllm_config
    speculative = configured(target, num_speculative_tokens=1)
    drafting = copy.copy(target)
    drafting.speculative_config = speculative
    return drafting, speculative


def load(drafting: Any, speculative: Any) -> Any:
    """Return the drafter with its weights, registered in the engine's forward context."""
    config = importlib.import_module("vllm.config")
    loader = importlib.import_module("vllm.model_executor.model_loader")
    with config.set_current_vllm_config(drafting):
        return loader.get_model(vllm_config=drafting, model_config=speculative.draft_model_config)


def attention_names(model: Any, layers: Any) -> list[str]:
    """Return the names by which the forward context knows a model's attention layers."""
    modules = {id(module) for module in model.modules()}
    return [name for name, layer in layers.items() if id(layer) in modules]


def empty_like(cache: Any) -> Any:
    """Return zeros in the form of a layer's cache: a tensor or, in older releases, a list."""
    if isinstance(cache, (list, tuple)):
        return type(cache)(part.clone().zero_() for part in cache)
    return cache.clone().zero_()


def lend(context: Any, owner: str, borrower: str) -> None:
    """Give a layer the attention metadata of another one, for this forward pass."""
    for mapping in (context.attn_metadata, getattr(context, "slot_mapping", None)):
        if isinstance(mapping, dict) and owner in mapping:
            mapping[borrower] = mapping[owner]


@contextlib.contextmanager
def watched(model: Any, hook: Any) -> Iterator[None]:
    """Call ``hook(module, args, kwargs, output)`` after each forward pass of ``model``."""
    handle = model.register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def default(llm: Any, _step: Any) -> dict[str, Any]:
    """Return what drafts with MTP are where nothing but the method is said."""
    (found,) = llm.collective_rpc(_default_on_worker)
    return dict(found)


def _default_on_worker(worker: Any) -> dict[str, Any]:
    found = configured(worker.vllm_config)
    return {
        "data": {
            "architectures": list(found.draft_model_config.hf_config.architectures),
            "number": found.num_speculative_tokens,
        }
    }


def compare(llm: Any, step: Any) -> dict[str, Any]:
    """Run the drafter over a prompt and some decoding steps; return how far off it is.

    The step's ``swap`` exchanges the halves of the drafter's projection, which must show.
    """
    (found,) = llm.collective_rpc(_on_worker, args=(llm, step))
    return dict(found)


def _on_worker(worker: Any, llm: Any, step: Any) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    get_context = importlib.import_module("vllm.forward_context").get_forward_context
    plain = importlib.import_module("mtp_reference")
    target = worker.model_runner.model
    drafting, speculative = speculation(worker)
    drafter = load(drafting, speculative)
    if step["swap"]:
        drafter.model.fc.register_forward_pre_hook(
            lambda _module, args: (torch.cat(args[0].chunk(2, dim=-1)[::-1], dim=-1), *args[1:])
        )
    layers = drafting.compilation_config.static_forward_context
    (borrower,) = attention_names(drafter, layers)
    sliding = [n for n in attention_names(target, layers) if window_of(layers[n]) is not None]
    owner = sliding[0]
    layers[borrower].kv_cache = empty_like(layers[owner].kv_cache)
    for name, value in vars(layers[owner]).items():
        # What the engine sets on its own layers after loading, such as the kernels to use.
        vars(layers[borrower]).setdefault(name, value)
    seen: list[tuple[Any, Any, Any]] = []

    def draft(_module: Any, _args: Any, kwargs: Any, output: Any) -> None:
        context = get_context()
        if context.attn_metadata is None:
            return
        positions = kwargs["positions"]
        # Any tokens do: they follow from the position, so that the reference can repeat them.
        tokens = (positions * 37 + 11) % step["vocabulary"]
        lend(context, owner, borrower)
        hidden = output.clone()
        found = drafter(input_ids=tokens, positions=positions, hidden_states=hidden)
        found = found[0] if isinstance(found, tuple) else found
        seen.append((tokens.cpu(), hidden.float().cpu(), found.float().cpu()))

    sampling = importlib.import_module("vllm").SamplingParams(
        temperature=0.0, max_tokens=TOKENS, ignore_eos=True
    )
    with watched(target, draft):
        llm.generate([{"prompt": step["text"]}], sampling, use_tqdm=False)
    del layers[borrower]
    tokens, hidden, found = (torch.cat(parts) for parts in zip(*seen, strict=True))
    expected = plain.reference(Path(step["checkpoint"]), tokens, hidden)
    worst = ((found - expected).norm(dim=-1) / expected.norm(dim=-1)).max().item()
    return {
        "data": {
            "class": type(drafter).__name__,
            "positions": len(tokens),
            "steps": len(seen),
            "error": worst,
        }
    }


def window_of(layer: Any) -> Any:
    """Return a layer's sliding window, or None where it attends to everything."""
    return getattr(layer, "sliding_window", None)
