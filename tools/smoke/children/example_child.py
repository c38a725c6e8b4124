"""Runs in an engine environment: one of upstream's example scripts, offline, as it stands.

``python example_child.py JOB`` reads a JSON job and writes the JSON result that it names. The
script finds its model in the hub's cache and its first picture in vLLM's cache of assets, both
prepared by the caller; the addresses of more pictures are replaced by the pictures themselves.
What it asks the engine and what that answers is kept.
"""

import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
child = importlib.import_module("child")

URLS = "IMAGE_URLS"


def eager(arguments: type[Any]) -> None:
    """Let the engine start without compiling, in the precision that a CPU is exact in."""
    finish = arguments.__post_init__

    def finish_eagerly(self: Any) -> None:
        self.enforce_eager, self.dtype = True, "float32"
        finish(self)

    arguments.__post_init__ = finish_eagerly


def watched(llm: type[Any], answers: list[dict[str, Any]]) -> None:
    """Keep each request and answer of the engines that the script makes."""
    generate = llm.generate

    def generating(self: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = generate(self, *args, **kwargs)
        answers.extend(
            {
                "prompt_ids": list(output.prompt_token_ids),
                "tokens": list(output.outputs[0].token_ids),
            }
            for output in outputs
        )
        return outputs

    llm.generate = generating


def script(file: Path) -> Any:
    """Import a script, without running what it does as a program."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"no script at {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(assets: Path, pictures: Mapping[str, Any]) -> None:
    """Write pictures into vLLM's cache of public assets."""
    assets.mkdir(parents=True, exist_ok=True)
    for name, document in pictures.items():
        (picture,) = child.pictures([document])
        picture.save(assets / name, quality=95)


def main(job_file: str) -> None:
    """Run the script of a job."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    vllm = importlib.import_module("vllm")
    prepare(Path(job["assets"]), job["pictures"])
    answers: list[dict[str, Any]] = []
    eager(vllm.EngineArgs)
    watched(vllm.LLM, answers)
    module = script(Path(job["script"]))
    if hasattr(module, URLS):
        found = child.pictures(list(job["pictures"].values()))
        setattr(module, URLS, [child.data_url(picture) for picture in found])
    sys.argv = [job["script"], *job["arguments"]]
    module.main(module.parse_args())
    child.write_result({"answers": answers}, Path(job["result"]))


if __name__ == "__main__":
    main(sys.argv[1])
