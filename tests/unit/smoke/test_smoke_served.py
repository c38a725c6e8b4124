import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tools.smoke import script, served, tokenizer
from tools.smoke.cases import CASES
from tools.smoke.checkpoint import Shape, Variant
from tools.smoke.engine import Answered, StepResult
from tools.smoke.golden import Answer, Golden

CHILDREN = Path(served.__file__).parent / "children"
PROMPT = CASES[2].prompts[0]


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # The script puts its directory on the path and imports its neighbours by name.
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("tested_served", CHILDREN / "served_child.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.child, "data_url", lambda picture: f"data:{picture}")
    monkeypatch.setattr(module.child, "pictures", lambda found: [d["rgb"] for d in found])
    return module


def test_the_command_line_holds_the_vendors_flags_and_leaves_out_what_is_false() -> None:
    words = served.command_line(
        {
            "model": "/m",
            "dtype": "float32",
            "max_model_len": 64,
            "enforce_eager": True,
            "disable_log_stats": False,
            "speculative_config": {"method": "mtp"},
        }
    )
    assert words[:3] == ["/m", "--served-model-name", "exaone"]
    assert words[3:8] == list(served.PARSERS)
    assert words[8:] == [
        "--dtype", "float32", "--max-model-len", "64", "--enforce-eager",
        "--speculative-config", '{"method": "mtp"}',
    ]  # fmt: skip


def test_a_golden_prompt_becomes_parts_in_the_order_of_its_text() -> None:
    content = served.message(PROMPT)["content"]
    kinds = [part["type"] for part in content]
    assert kinds == ["pixels", "text", "pixels", "text"]
    assert [p["picture"] for p in content if p["type"] == "pixels"] == [
        image.document() for image in PROMPT.images
    ]
    texts = [part["text"] for part in content if part["type"] == "text"]
    assert texts[0] == " is left and "


def test_a_prompt_with_a_clip_is_refused() -> None:
    with pytest.raises(ValueError, match="video is no turn"):
        served.message(CASES[3].prompts[0])


def test_requests_are_greedy_and_ask_for_token_ids() -> None:
    for streamed in (False, True):
        requests = served.golden_requests(streamed=streamed)
        assert list(requests) == ["text", "image", "images"]
        for request in requests.values():
            assert (request["temperature"], request["stream"]) == (0.0, streamed)
            extra = request["extra_body"]
            assert extra["return_token_ids"]
            assert extra["ignore_eos"]
            assert extra["chat_template_kwargs"] == {"enable_thinking": False}


GOLDEN = Golden("", "", {}, {Shape.PUBLISHED: {"a": Answer((1,), (2, 3), ())}})


@pytest.mark.parametrize(
    ("tokens", "pieces", "problem", "streamed_problem"),
    [
        ((2, 3), 2, "", ""),
        ((2, 3), 1, "", "a came in one piece"),
        ((2, 4), 2, "a: wrong tokens at 1: 4 != 3", "a: wrong tokens at 1: 4 != 3"),
    ],
)
def test_served_tokens_have_to_be_golden_and_streams_to_come_in_pieces(
    tokens: tuple[int, ...], pieces: int, problem: str, streamed_problem: str
) -> None:
    step = StepResult({"a": Answered((1,), tokens)}, data={"a": {"pieces": pieces}})
    assert served.golden_answers(Variant(), step, GOLDEN).problem == problem
    assert served.streamed_answers(Variant(), step, GOLDEN).problem == streamed_problem


def encode(text: str) -> tuple[int, ...]:
    """Spell a text with the scripted tokenizer's reserved tokens and single bytes."""
    known = {t: i for i, t in {**tokenizer.SPECIAL, **script.TOKENS}.items()}
    ids, symbols = tokenizer.vocabulary().ids, tokenizer.byte_symbols()
    found: list[int] = []
    while text:
        name = next((name for name in known if text.startswith(name)), "")
        if name:
            found.append(known[name])
            text = text[len(name) :]
        else:
            found += [ids[symbols[byte]] for byte in text[0].encode()]
            text = text[1:]
    return tuple(found)


def answered(asked: served.Scripted, **changed: Any) -> tuple[dict[str, Any], Answered]:
    """Return what a right server brings back."""
    said = asked.said
    tools = f"[|system|]\n?\n{json.dumps({'name': script.FUNCTION})}\n" if said.calls else ""
    found = {
        "reasoning": said.reasoning,
        "content": f"\n\n{said.content}",
        "calls": [list(call) for call in said.calls],
        "finish": said.finish,
        "pieces": 4,
        **changed,
    }
    return found, Answered(encode(tools + said.prompt), said.tokens)


EVERY = [
    served.scripted(thinks=thinks, calls=calls, streamed=False, after=after)
    for thinks in (True, False)
    for calls in (True, False)
    for after in (True, False)
]


@pytest.mark.parametrize("asked", EVERY)
def test_a_right_answer_to_a_script_has_no_fault(asked: served.Scripted) -> None:
    found, tokens = answered(asked)
    assert served.fault(found, tokens, asked.said) == ""


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"reasoning": ""}, "reasoning: ''"),
        ({"content": "<think>"}, "content: '<think>'"),
        ({"calls": []}, "calls: ()"),
        ({"finish": "stop"}, "finish: 'stop'"),
    ],
)
def test_each_part_of_an_answer_counts(changed: dict[str, Any], fault: str) -> None:
    asked = served.scripted(thinks=True, calls=True, streamed=False)
    found, tokens = answered(asked, **changed)
    assert served.fault(found, tokens, asked.said).startswith(fault)


def test_a_prompt_without_its_turn_or_its_function_is_a_fault() -> None:
    asked = served.scripted(thinks=False, calls=True, streamed=False)
    found, tokens = answered(asked)
    bare = Answered(encode('[|system|]\n?\n{"name": "x"}\n' + asked.said.prompt), tokens.tokens)
    assert "does not tell the function" in served.fault(found, bare, asked.said)
    assert served.fault(found, Answered((3,), tokens.tokens), asked.said).startswith("the prompt")


def test_a_scripted_stream_in_one_piece_is_a_fault() -> None:
    asked = served.scripted(thinks=True, calls=False, streamed=True)
    found, tokens = answered(asked, pieces=1)
    judge = served.as_scripted({"a": asked})
    golden = Golden("", "", {}, {})
    step = StepResult({"a": tokens}, data={"a": found})
    assert judge(Variant(), step, golden).problem == "a: came in one piece"
    right = StepResult({"a": tokens}, data={"a": {**found, "pieces": 2}})
    assert judge(Variant(), right, golden).problem == ""


MESSAGE = {
    "reasoning": "why",
    "content": "yes",
    "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
}


def test_an_answer_in_one_piece_is_taken_apart(child: ModuleType) -> None:
    response = {
        "prompt_token_ids": [1, 2],
        "choices": [{"message": MESSAGE, "token_ids": [3], "finish_reason": "stop"}],
    }
    assert child.whole(response) == {
        "prompt_ids": [1, 2],
        "tokens": [3],
        "reasoning": "why",
        "content": "yes",
        "calls": [["f", "{}"]],
        "finish": "stop",
        "pieces": 1,
    }


def test_the_older_name_of_reasoning_is_known_and_not_counted_twice(child: ModuleType) -> None:
    assert child.thought({"reasoning_content": "why"}) == "why"
    assert child.thought({"reasoning_content": "why", "reasoning": "why"}) == "why"
    assert child.thought({"content": "x"}) == ""


def delta(tokens: list[int] | None, finish: str | None = None, **parts: Any) -> dict[str, Any]:
    return {"choices": [{"delta": parts, "token_ids": tokens, "finish_reason": finish}]}


def test_the_pieces_of_a_stream_are_joined(child: ModuleType) -> None:
    def call(**function: str) -> list[dict[str, Any]]:
        return [{"index": 0, "function": function}]

    pieces = [
        {**delta(None, role="assistant"), "prompt_token_ids": [1]},
        delta([2], reasoning="wh"),
        delta([3], reasoning="y"),
        delta([4, 5], content="yes"),
        delta([6], tool_calls=call(name="f", arguments="{")),
        delta([7], "tool_calls", tool_calls=call(arguments="}")),
        {"choices": [], "usage": {}},
    ]
    assert child.joined(pieces) == {
        "prompt_ids": [1],
        "tokens": [2, 3, 4, 5, 6, 7],
        "reasoning": "why",
        "content": "yes",
        "calls": [["f", "{}"]],
        "finish": "tool_calls",
        "pieces": 5,
    }


class FakeClient:
    """Answers every request; a request without messages is an error."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))

    def create(self, **request: Any) -> Any:
        self.asked.append(request)
        if not request["messages"]:
            raise LookupError("nothing asked")
        choice = {"message": MESSAGE, "token_ids": [3], "finish_reason": "stop"}
        response = {"prompt_token_ids": [1], "choices": [choice]}
        return SimpleNamespace(model_dump=lambda: response)


def test_steps_are_asked_in_turn_and_an_error_ends_the_job(
    child: ModuleType, tmp_path: Path
) -> None:
    client, target = FakeClient(), tmp_path / "result.json"
    parts = [{"type": "pixels", "picture": {"rgb": "p"}}, {"type": "text", "text": "t"}]
    good = {"a": {"messages": [{"role": "user", "content": parts}]}}
    steps = [
        {"name": "one", "requests": good},
        {"name": "two", "requests": {"b": {"messages": []}}},
    ]
    result: dict[str, Any] = {"steps": {}}
    job = {"steps": [*steps, {"name": "three", "requests": good}]}
    assert child.ask(client, job, result, target) == child.STEP_FAILED
    kept = json.loads(target.read_text())["steps"]
    assert list(kept) == ["one", "two"]
    assert kept["one"]["prompts"] == {"a": {"prompt_ids": [1], "tokens": [3]}}
    assert kept["one"]["data"]["a"]["content"] == "yes"
    assert kept["two"]["error"] == "LookupError: nothing asked"
    assert client.asked[0]["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:p"}},
        {"type": "text", "text": "t"},
    ]
