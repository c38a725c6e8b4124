"""The served API: chat requests, what they must bring back, and the server's command line.

Two servers are asked. One holds the random checkpoint: its answers have to be the golden tokens,
those of the offline engine and of transformers. The other holds the scripted checkpoint, whose
thought, answer and call are known beforehand, and runs with the vendor's flags.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.smoke import script, tokenizer
from tools.smoke.cases import CASES, IMAGE_TEXT, Frames, Prompt
from tools.smoke.checkpoint import Variant
from tools.smoke.engine import Answered, StepResult
from tools.smoke.environment import Environment
from tools.smoke.golden import Golden
from tools.smoke.jobs import Outcome, run_job
from tools.smoke.judges import Finding, difference
from tools.smoke.results import compare_tokens

CHILD = Path(__file__).with_name("children") / "served_child.py"
NAME = "exaone"
REQUEST_SECONDS = 600.0
# As the vendor's model card starts the server.
PARSERS = (
    "--reasoning-parser",
    "qwen3",
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "hermes",
)
_TURN = ("[|user|]\n", "[|endofturn|]\n[|assistant|]\n<think>\n\n</think>\n\n")
_TOOL = {
    "type": "function",
    "function": {
        "name": script.FUNCTION,
        "description": "The weather of the coming days.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}
_CLOSED = "\n</think>\n\n"
_QUESTION = "What will the weather be in Seoul?"


def command_line(arguments: Mapping[str, Any]) -> list[str]:
    """Return what follows ``vllm serve`` for arguments of ``vllm.LLM``.

    What is False is left out: it is what such a flag says when it is not given.
    """
    words = [str(arguments["model"]), "--served-model-name", NAME, *PARSERS]
    for name, value in arguments.items():
        if name == "model" or value is False:
            continue
        words.append(f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(json.dumps(value) if isinstance(value, Mapping) else str(value))
    return words


@dataclass(frozen=True)
class Servers:
    """Starts a server for each job, in place of an offline engine.

    Args:
        place: The engine environment.
        env: The variables of its engines.
    """

    place: Environment
    env: Mapping[str, str]

    def run(
        self, job: Mapping[str, Any], *, env: Mapping[str, str] | None = None, timeout: float
    ) -> Outcome:
        """Do one job and return its outcome.

        Args:
            job: What to do, in the form of an engine's job.
            env: Variables of this job alone.
            timeout: Seconds until server and client are killed.
        """
        engine = {"command": command_line(job["engine"])}
        # A server's engine always is a process of its own.
        apart = {name: text for name, text in self.env.items() if "MULTIPROCESSING" not in name}
        return run_job(
            self.place.python,
            CHILD,
            {**job, "engine": engine, "seconds": REQUEST_SECONDS},
            env={**apart, **(env or {})},
            timeout=timeout,
        )


def message(prompt: Prompt) -> dict[str, Any]:
    """Return a golden prompt as the message of a user, pictures where they stand in the text.

    Raises:
        ValueError: The prompt is no single turn without a thought, or has a clip.
    """
    start, end = _TURN
    if not prompt.text.startswith(start) or not prompt.text.endswith(end) or prompt.videos:
        raise ValueError(f"prompt {prompt.name} is no turn of text and pictures")
    texts = prompt.text.removeprefix(start).removesuffix(end).split(IMAGE_TEXT)
    parts: list[dict[str, Any]] = []
    for place, text in enumerate(texts):
        if place:
            parts.append(_pixels(prompt.images[place - 1]))
        if text:
            parts.append({"type": "text", "text": text})
    return {"role": "user", "content": parts}


def _pixels(picture: Frames) -> dict[str, Any]:
    return {"type": "pixels", "picture": picture.document()}


def request(
    messages: list[dict[str, Any]], *, thinks: bool, new_tokens: int, **more: Any
) -> dict[str, Any]:
    """Return the arguments of the client's call for a greedy answer with its token ids.

    Args:
        messages: The conversation.
        thinks: Whether the model is to reason.
        new_tokens: The most tokens to answer.
        more: Other arguments.
    """
    return {
        "model": NAME,
        "messages": messages,
        "temperature": 0.0,
        "max_tokens": new_tokens,
        **more,
        "extra_body": {
            "return_token_ids": True,
            "chat_template_kwargs": {"enable_thinking": thinks},
            **more.get("extra_body", {}),
        },
    }


def golden_requests(*, streamed: bool) -> dict[str, dict[str, Any]]:
    """Return the golden prompts of text and pictures as requests, by prompt name."""
    chosen = [case for case in CASES if case.name in ("text", "image", "images")]
    return {
        prompt.name: request(
            [message(prompt)],
            thinks=False,
            new_tokens=case.new_tokens,
            stream=streamed,
            extra_body={"ignore_eos": True},
        )
        for case in chosen
        for prompt in case.prompts
    }


def golden_answers(variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with tokens that are not golden."""
    count = sum(len(answer.tokens) for answer in step.answers.values())
    return Finding(difference(step, golden.known(variant)), f"{count} golden tokens")


def streamed_answers(variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with tokens that are not golden, and with a stream that comes in one piece."""
    problem = golden_answers(variant, step, golden).problem
    lumps = [name for name, answer in step.data.items() if answer["pieces"] < 2]
    pieces = sum(answer["pieces"] for answer in step.data.values())
    return Finding(
        problem or (f"{lumps[0]} came in one piece" if lumps else ""), f"{pieces} pieces"
    )


@dataclass(frozen=True)
class Said:
    """What a request to the scripted model must bring back.

    Attributes:
        prompt: How the prompt must end, as text; it begins with the tools where there are any.
        tokens: The tokens.
        reasoning: What is told apart as thought.
        content: What is told as answer, without white space around it.
        calls: Functions called, with their arguments as the model writes them.
        finish: The reason to stop.
    """

    prompt: str
    tokens: tuple[int, ...]
    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    finish: str


@dataclass(frozen=True)
class Scripted:
    """A request to the scripted model, and what it must bring back."""

    request: Mapping[str, Any]
    said: Said


def scripted(*, thinks: bool, calls: bool, streamed: bool, after: bool = False) -> Scripted:
    """Return a request to the scripted model.

    Args:
        thinks: Whether reasoning is on.
        calls: Whether functions are offered; the script calls one. Without, the answer is cut
            before the call.
        streamed: Whether the answer is streamed.
        after: Whether the conversation already holds a call and its result.
    """
    messages: list[dict[str, Any]] = [{"role": "user", "content": _QUESTION}]
    prompt = f"[|user|]\n{_QUESTION}[|endofturn|]\n"
    name, arguments = script.called()
    if after:
        function = {"name": name, "arguments": arguments}
        call = {"id": "call-1", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call-1", "content": "rain"},
        ]
        written = f'{script.OPEN}{{"name": "{name}", "arguments": {arguments}}}{script.CLOSE}'
        prompt += f"[|assistant|]\n<think>\n{_CLOSED}{written}[|endofturn|]\n"
        prompt += "[|tool|]\nrain[|endofturn|]\n"
    prompt += f"[|assistant|]\n<think>\n{'' if thinks else _CLOSED}"
    tokens = script.thinking() if thinks else script.answering()
    if not calls:
        (opening,) = (token for token, text in script.TOKENS.items() if text == script.OPEN)
        tokens = tokens[: tokens.index(opening)]
    said = Said(
        prompt=prompt,
        tokens=tokens,
        reasoning=script.THOUGHT if thinks else "",
        content=script.ANSWER,
        calls=((name, arguments),) if calls else (),
        finish="tool_calls" if calls else "length",
    )
    # A call ends by itself, well before the limit.
    limit = len(tokens) + (8 if calls else 0)
    more: dict[str, Any] = {"tools": [_TOOL], "tool_choice": "auto"} if calls else {}
    return Scripted(
        request(messages, thinks=thinks, new_tokens=limit, stream=streamed, **more), said
    )


def fault(found: Mapping[str, Any], answered: Answered, said: Said) -> str:
    """Return "" where an answer is what the script says, else what differs first."""
    text = tokenizer.decode(answered.prompt_ids, script.TOKENS)
    start = "[|system|]\n" if said.calls else said.prompt
    if not (text.startswith(start) and text.endswith(said.prompt)):
        return f"the prompt is {text!r}, not {said.prompt!r}"
    if said.calls and json.loads(text.splitlines()[2])["name"] != script.FUNCTION:
        return f"the prompt does not tell the function: {text!r}"
    seen = {
        "tokens": compare_tokens(said.tokens, answered.tokens),
        "reasoning": _unlike(said.reasoning, found["reasoning"].strip()),
        "content": _unlike(said.content, found["content"].strip()),
        "calls": _unlike(said.calls, tuple((name, words) for name, words in found["calls"])),
        "finish": _unlike(said.finish, found["finish"]),
    }
    return next((f"{part}: {what}" for part, what in seen.items() if what), "")


def _unlike(expected: object, found: object) -> str:
    return "" if expected == found else f"{found!r}, not {expected!r}"


def as_scripted(asked: Mapping[str, Scripted]) -> Callable[[Variant, StepResult, Golden], Finding]:
    """Return the judge of a step with these requests."""

    def judge(_variant: Variant, step: StepResult, _golden: Golden) -> Finding:
        for name, one in asked.items():
            found = step.data[name]
            problem = fault(found, step.answers[name], one.said)
            if not problem and one.request["stream"] and found["pieces"] < 2:
                problem = "came in one piece"
            if problem:
                return Finding(f"{name}: {problem}")
        return Finding("", f"{len(asked)} answers as scripted")

    return judge
