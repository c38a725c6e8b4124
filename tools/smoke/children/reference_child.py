"""Runs in the reference environment: transformers' greedy tokens for a job of prompts.

``python reference_child.py JOB`` reads a JSON job and writes the JSON result that it names.
"""

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
child = importlib.import_module("child")
torch = importlib.import_module("torch")
transformers = importlib.import_module("transformers")


def prepare(processor: Any, prompt: Mapping[str, Any]) -> Any:
    """Return the model's inputs for one prompt."""
    clips = [torch.from_numpy(child.frames(clip)) for clip in prompt["videos"]]
    return processor(
        text=[prompt["text"]],
        images=child.pictures(prompt["images"]) or None,
        videos=[clip.permute(0, 3, 1, 2) for clip in clips] or None,
        return_tensors="pt",
        **({"do_sample_frames": False} if clips else {}),
    )


def answer(model: Any, processor: Any, prompt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens for one prompt, each with the gap between the best two logits."""
    inputs = prepare(processor, prompt)
    with torch.inference_mode():
        output = model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=prompt["new_tokens"],
            eos_token_id=None,
            return_dict_in_generate=True,
            output_logits=True,
        )
    start = inputs["input_ids"].shape[1]
    best = [logits[0].float().topk(2).values.tolist() for logits in output.logits]
    return {
        "prompt_ids": inputs["input_ids"][0].tolist(),
        "tokens": output.sequences[0, start:].tolist(),
        "margins": [first - second for first, second in best],
    }


def numbers(model: Any, processor: Any, prompt: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the projected vision embeddings and the first token's logits of one prompt."""
    seen: list[Any] = []
    handle = model.model.visual.register_forward_hook(
        lambda _module, _args, output: seen.append(output.pooler_output)
    )
    inputs = prepare(processor, prompt)
    with torch.inference_mode():
        logits = model(**inputs).logits[0, -1].double()
    handle.remove()
    (rows,) = seen
    return {"embeddings": child.projected(rows), "logits": logits.tolist()}


KINDS = {"answers": answer, "numbers": numbers}


def main(job_file: str) -> None:
    """Run the job."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    processor = transformers.AutoProcessor.from_pretrained(job["checkpoint"])
    model = transformers.Exaone4_5_ForConditionalGeneration.from_pretrained(
        job["checkpoint"], dtype=torch.float32, attn_implementation="eager"
    ).eval()
    result = {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "prompts": {
            prompt["name"]: KINDS[job["kind"]](model, processor, prompt)
            for prompt in job["prompts"]
        },
    }
    child.write_result(result, Path(job["result"]))


if __name__ == "__main__":
    main(sys.argv[1])
