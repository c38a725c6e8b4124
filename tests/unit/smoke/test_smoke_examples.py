import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tools.errors import BadInput
from tools.smoke import examples, tokenizer
from tools.smoke.jobs import Outcome
from tools.smoke.results import Verdict
from tools.tree import MappingTree

ONE, TWO = examples.EXAMPLES


def outcome(*answers: tuple[list[int], list[int]]) -> Outcome:
    found = [{"prompt_ids": ids, "tokens": tokens} for ids, tokens in answers]
    return Outcome(0, {"answers": found}, "")


def prompt(images: int) -> list[int]:
    return [3, *[tokenizer.VISION, tokenizer.IMAGE, tokenizer.END_VISION] * images]


def test_the_newest_place_of_a_script_comes_first() -> None:
    files = {path: path.encode() for path in ONE.scripts}
    assert examples.find(MappingTree(files), ONE) == ONE.scripts[0].encode()
    del files[ONE.scripts[0]]
    assert examples.find(MappingTree(files), ONE) == ONE.scripts[1].encode()
    with pytest.raises(BadInput, match="has no example"):
        examples.find(MappingTree({}), ONE)


def test_the_tiny_checkpoint_lies_where_the_hubs_client_looks(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    examples.publish_model(hub)
    (repository,) = hub.iterdir()
    assert repository.name == "models--LGAI-EXAONE--EXAONE-4.5-33B"
    revision = (repository / "refs" / "main").read_text()
    files = {path.name for path in (repository / "snapshots" / revision).iterdir()}
    assert {"config.json", "model.safetensors", "chat_template.jinja"} <= files


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (outcome((prompt(2), [1])), ""),
        (outcome((prompt(1), [1])), "1 pictures in the prompt, not 2"),
        (outcome((prompt(2), [])), "an answer without a token"),
        (outcome(), "0 answers, not 1"),
        (outcome(([3, tokenizer.END_VISION] * 2, [1])), "0 pictures in the prompt, not 2"),
        (Outcome(1, None, "ValueError: no"), "ValueError: no"),
    ],
)
def test_an_example_has_to_see_its_pictures_and_answer(found: Outcome, fault: str) -> None:
    assert examples.fault(TWO, found) == fault
    verdict = examples.check(TWO, found, 1.0).verdict
    assert (verdict is Verdict.PASSED) == (fault == "")


SCRIPT = """
import sys
from vllm import LLM, EngineArgs
IMAGE_URLS = ["https://nowhere.invalid/a.jpg"]
def parse_args():
    return sys.argv[1:]
def main(args):
    assert args == ["-m", "x"], args
    assert IMAGE_URLS == ["data:red"], IMAGE_URLS
    assert EngineArgs().enforce_eager
    LLM().generate("hello")
"""


def test_a_script_runs_with_its_pictures_and_its_answers_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    spec = importlib.util.spec_from_file_location("tested_example", examples.CHILD)
    assert spec is not None
    assert spec.loader is not None
    child = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(child)

    class EngineArgs:
        def __init__(self) -> None:
            self.enforce_eager, self.dtype = False, "auto"
            self.__post_init__()

        def __post_init__(self) -> None:
            assert self.dtype == "float32"

    class LLM:
        def generate(self, text: str) -> list[Any]:
            answer = SimpleNamespace(token_ids=(7, 8))
            return [SimpleNamespace(prompt_token_ids=[len(text)], outputs=[answer])]

    class Picture(str):
        def save(self, file: Path, **_: object) -> None:
            file.write_text(self)

    vllm = ModuleType("vllm")
    vllm.LLM, vllm.EngineArgs = LLM, EngineArgs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setattr(child.child, "pictures", lambda found: [Picture(d["c"]) for d in found])
    monkeypatch.setattr(child.child, "data_url", lambda picture: f"data:{picture}")
    script, job, result = (tmp_path / name for name in ("script.py", "job", "result"))
    script.write_text(SCRIPT)
    job.write_text(
        json.dumps(
            {
                "script": str(script),
                "arguments": ["-m", "x"],
                "assets": str(tmp_path / "assets"),
                "pictures": {"a.jpg": {"c": "red"}},
                "result": str(result),
            }
        )
    )
    child.main(str(job))
    assert json.loads(result.read_text()) == {"answers": [{"prompt_ids": [5], "tokens": [7, 8]}]}
    assert (tmp_path / "assets" / "a.jpg").read_text() == "red"
