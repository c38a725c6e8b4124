import json
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tools.smoke import checkpoint
from tools.smoke.cases import CASES
from tools.smoke.checkpoint import Variant

QUESTION = {"role": "user", "content": "Why?"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def render(messages: list[dict[str, Any]], **more: Any) -> str:
    """Render as transformers does: its environment trims blocks and sorts no keys."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = checkpoint.checkpoint_files(Variant(chat=True))["chat_template.jinja"].decode()
    return environment.from_string(template).render(
        messages=messages, add_generation_prompt=True, **more
    )


def test_the_thought_is_open_by_default_and_closed_on_request() -> None:
    turn = "[|user|]\nWhy?[|endofturn|]\n[|assistant|]\n"
    assert render([QUESTION]) == render([QUESTION], enable_thinking=True) == f"{turn}<think>\n"
    assert render([QUESTION], enable_thinking=False) == f"{turn}<think>\n\n</think>\n\n"


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
def test_the_closed_thought_gives_the_prompts_of_the_golden_file(case: Any) -> None:
    (prompt,) = case.prompts
    text = prompt.text.removeprefix("[|user|]\n").partition("[|endofturn|]")[0]
    asked = [{"role": "user", "content": text}]
    assert render(asked, enable_thinking=False) == prompt.text


def test_pictures_and_clips_stand_where_their_parts_stand() -> None:
    parts = [
        {"type": "text", "text": "From "},
        {"type": "image"},
        {"type": "text", "text": " to "},
        {"type": "video"},
    ]
    text = render([{"role": "user", "content": parts}])
    assert "From <vision><|image_pad|></vision> to <vision><|video_pad|></vision>[|end" in text


def test_tools_are_told_first_and_calls_and_results_are_turns() -> None:
    call = {"function": {"name": "weather", "arguments": {"city": "Ulm"}}}
    history = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "rain"},
    ]
    text = render([QUESTION, *history], tools=[TOOL])
    assert text.startswith("[|system|]\nYou may call these functions:\n")
    assert f"\n{json.dumps(TOOL['function'])}\n" in text
    assert (
        "</think>\n\n<tool_call>"
        '{"name": "weather", "arguments": {"city": "Ulm"}}</tool_call>[|endofturn|]\n'
        "[|tool|]\nrain[|endofturn|]\n[|assistant|]\n" in text
    )
