"""Runs in an engine environment: the overlay's modules against upstream's own, turn by turn.

``python speed_child.py JOB`` reads a JSON job and writes the JSON result that it names. The release
has to carry the model itself; the overlay's files are imported beside it under other names. Both
modules of a pair have the same weights and inputs, run in one process, and take turns, so that a
busy machine slows both. What counts is the time on the processor; the caller binds the engine to
one core, for threads that wait for each other take such time too.
"""

import contextlib
import copy
import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
child = importlib.import_module("child")
drafter = importlib.import_module("drafter_child")

MODELS = "vllm.model_executor.models"
# Sizes of the published vision tower; with all its blocks a call would take minutes here.
PUBLISHED = {
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_heads": 32,
    "num_key_value_heads": 8,
    "depth": 2,
    "fullatt_block_indexes": [1],
}


def overlay(directory: Path, name: str) -> Any:
    """Import a model of the overlay beside upstream's own; return the module."""
    models = "model_executor/models"
    files = {
        "vllm.transformers_utils.processors.exaone4_5": "transformers_utils/processors",
        f"{MODELS}.exaone4_5_compat": models,
        f"{MODELS}.overlay_{name}": models,
    }
    for module, place in files.items():
        if module not in sys.modules:
            stem = module.rpartition(".")[2].removeprefix("overlay_")
            _import(module, directory / place / f"{stem}.py")
    return sys.modules[f"{MODELS}.overlay_{name}"]


def _import(module: str, file: Path) -> None:
    spec = importlib.util.spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module at {file}")
    sys.modules[module] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[module])


def taking_turns(first: Callable[[], Any], second: Callable[[], Any], turns: int) -> list[float]:
    """Return the seconds of processor time of each call, first and second in turn.

    The order within a pair changes with every pair.
    """
    spent: list[float] = []
    for turn in range(turns):
        pair = [0.0, 0.0]
        for place in (0, 1) if turn % 2 else (1, 0):
            began = time.process_time()
            (first, second)[place]()
            pair[place] = time.process_time() - began
        spent += pair
    return spent


def difference(first: Any, second: Any) -> float:
    """Return how far two outputs are apart, relative to the first."""
    return float((first - second).norm() / first.norm())


def sized(config: Any, sizes: dict[str, Any]) -> Any:
    """Return a copy of the engine's configuration with other sizes of the vision tower."""
    found = copy.copy(config)
    found.model_config = copy.copy(config.model_config)
    found.model_config.hf_config = copy.copy(config.model_config.hf_config)
    vision = copy.deepcopy(config.model_config.hf_config.vision_config)
    for name, value in sizes.items():
        setattr(vision, name, value)
    found.model_config.hf_config.vision_config = vision
    return found


@contextlib.contextmanager
def building(config: Any) -> Iterator[None]:
    """Build modules in the block as the engine's loader builds them."""
    vllm_config = importlib.import_module("vllm.config")
    torch_utils = importlib.import_module("vllm.utils.torch_utils")
    dtype = config.model_config.dtype
    with vllm_config.set_current_vllm_config(config), torch_utils.set_default_torch_dtype(dtype):
        yield


def finished(module: Any, config: Any) -> Any:
    """Return a module with its weights in the form that the engine computes with."""
    torch = importlib.import_module("torch")
    loader = importlib.import_module("vllm.model_executor.model_loader.utils")
    loader.process_weights_after_loading(module, config.model_config, torch.device("cpu"))
    return module.eval()


def towers(worker: Any, directory: str, sizes: dict[str, Any], label: str) -> tuple[Any, Any]:
    """Return the vision tower of upstream and that of the overlay, with the same weights."""
    torch = importlib.import_module("torch")
    upstream = importlib.import_module(f"{MODELS}.exaone4_5")
    ours = overlay(Path(directory), "exaone4_5")
    config = sized(worker.vllm_config, sizes)
    with building(config):
        first = upstream.EXAONE4_5_VisionTransformer(
            config.model_config.hf_config.vision_config,
            norm_eps=1e-6,
            prefix=f"{label}.upstream",
        )
        second = ours.build_vision_tower(config, None, f"{label}.overlay")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.normal_(0.0, parameter.shape[-1] ** -0.5, generator=generator)
    second.load_state_dict(first.state_dict())
    return finished(first, config), finished(second, config)


def tower_speed(llm: Any, step: Any) -> dict[str, Any]:
    """Compare the vision towers on pictures of random pixels."""
    (found,) = llm.collective_rpc(_towers_on_worker, args=(step,))
    return dict(found)


def _towers_on_worker(worker: Any, step: Any) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    context = importlib.import_module("vllm.forward_context").set_forward_context
    sizes = PUBLISHED if step["published"] else {}
    first, second = towers(worker, step["overlay"], sizes, step["name"])
    grid = [[1, height, width] for height, width in step["grids"]]
    generator = torch.Generator().manual_seed(1)
    rows = sum(height * width for _, height, width in grid)
    volume = first.patch_embed.proj.weight[0].numel()
    pixels = torch.randn(rows, volume, generator=generator)
    with torch.inference_mode(), context(None, worker.vllm_config):
        apart = difference(first(pixels, grid), second(pixels, grid))
        spent = taking_turns(
            lambda: first(pixels, grid), lambda: second(pixels, grid), step["turns"]
        )
    return {"difference": apart, "spent": spent, "patches": rows}


def drafter_speed(llm: Any, step: Any) -> dict[str, Any]:
    """Compare the drafters in the target's forward pass over a prompt."""
    (found,) = llm.collective_rpc(_drafters_on_worker, args=(llm, step))
    return dict(found)


def _drafters_on_worker(worker: Any, llm: Any, step: Any) -> dict[str, Any]:
    loading = importlib.import_module("vllm.model_executor.model_loader.utils")
    get_context = importlib.import_module("vllm.forward_context").get_forward_context
    weights = importlib.import_module("safetensors.torch").load_file(
        Path(step["checkpoint"]) / "model.safetensors"
    )
    drafting, speculative = drafter.speculation(worker)
    first = drafter.load(drafting, speculative)
    ours = overlay(Path(step["overlay"]), "exaone4_5_mtp").Exaone4_5_MTP
    with building(drafting):
        second = loading.initialize_model(
            drafting,
            prefix="overlay",
            model_class=ours,
            model_config=speculative.draft_model_config,
        )
    second.load_weights(weights.items())
    finished(second, drafting)
    layers = drafting.compilation_config.static_forward_context
    names = [drafter.attention_names(model, layers)[0] for model in (first, second)]
    target = worker.model_runner.model
    owner = next(
        name
        for name in drafter.attention_names(target, layers)
        if drafter.window_of(layers[name]) is not None
    )
    for name in names:
        layers[name].kv_cache = drafter.empty_like(layers[owner].kv_cache)
        for attribute, value in vars(layers[owner]).items():
            vars(layers[name]).setdefault(attribute, value)
    found: dict[str, Any] = {}

    def measure(_module: Any, _args: Any, kwargs: Any, output: Any) -> None:
        context = get_context()
        if context.attn_metadata is None or found:
            return
        positions = kwargs["positions"]
        tokens = (positions * 37 + 11) % step["vocabulary"]
        hidden = output.clone()
        for name in names:
            drafter.lend(context, owner, name)

        def call(model: Any) -> Any:
            return model(input_ids=tokens, positions=positions, hidden_states=hidden)

        found["difference"] = difference(call(first), call(second))
        found["spent"] = taking_turns(lambda: call(first), lambda: call(second), step["turns"])
        found["positions"] = len(positions)

    sampling = importlib.import_module("vllm").SamplingParams(temperature=0.0, max_tokens=2)
    with drafter.watched(target, measure):
        llm.generate([{"prompt": step["text"]}], sampling, use_tqdm=False)
    for name in names:
        del layers[name]
    return found


STEPS = {"tower": tower_speed, "drafter": drafter_speed}


def main(job_file: str) -> int:
    """Start the engine and run the steps; return the exit status."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    llm = importlib.import_module("vllm").LLM(**job["engine"])
    found = {step["name"]: STEPS[step["kind"]](llm, step) for step in job["steps"]}
    child.write_result({"steps": found}, Path(job["result"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
