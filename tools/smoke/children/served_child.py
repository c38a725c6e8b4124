"""Runs in an engine environment: ``vllm serve``, asked by the official client.

``python served_child.py JOB`` reads a JSON job and writes the JSON result that it names, in the
form of ``engine_child.py``: the server is the engine, a step is a list of chat requests.
"""

import importlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
child = importlib.import_module("child")
engine = importlib.import_module("engine_child")
server = importlib.import_module("server")

STEP_FAILED = 3
START_FAILED = 4
# How messages name what a model thinks: the older name first, which some releases send as well.
REASONING = ("reasoning_content", "reasoning")


def with_pictures(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with data URLs in place of the pixels of a job."""

    def part(document: Any) -> Any:
        if document["type"] != "pixels":
            return document
        (picture,) = child.pictures([document["picture"]])
        return {"type": "image_url", "image_url": {"url": child.data_url(picture)}}

    return [
        {**message, "content": [part(document) for document in message["content"]]}
        if isinstance(message.get("content"), list)
        else dict(message)
        for message in messages
    ]


def thought(message: Mapping[str, Any]) -> str:
    """Return what a message or a piece of one holds of reasoning."""
    return next((message[name] for name in REASONING if message.get(name)), "")


def whole(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an answer in one piece holds."""
    (choice,) = response["choices"]
    message = choice["message"]
    return {
        "prompt_ids": response["prompt_token_ids"],
        "tokens": choice["token_ids"],
        "reasoning": thought(message),
        "content": message["content"] or "",
        "calls": [
            [call["function"]["name"], call["function"]["arguments"]]
            for call in message.get("tool_calls") or []
        ],
        "finish": choice["finish_reason"],
        "pieces": 1,
    }


def joined(pieces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the pieces of a streamed answer hold together."""
    found: dict[str, Any] = {
        "prompt_ids": [],
        "tokens": [],
        "reasoning": "",
        "content": "",
        "finish": None,
    }
    calls: dict[int, list[str]] = {}
    count = 0
    for piece in pieces:
        found["prompt_ids"] = piece.get("prompt_token_ids") or found["prompt_ids"]
        for choice in piece["choices"]:
            delta = choice["delta"]
            count += bool(choice.get("token_ids"))
            found["tokens"] += choice.get("token_ids") or []
            found["reasoning"] += thought(delta)
            found["content"] += delta.get("content") or ""
            found["finish"] = choice["finish_reason"] or found["finish"]
            for call in delta.get("tool_calls") or []:
                parts = calls.setdefault(call["index"], ["", ""])
                function = call.get("function") or {}
                parts[0] += function.get("name") or ""
                parts[1] += function.get("arguments") or ""
    return {**found, "calls": list(calls.values()), "pieces": count}


def chat(client: Any, step: Mapping[str, Any]) -> dict[str, Any]:
    """Send the requests of a step, one after another; return what was answered."""
    answers = {}
    for name, request in step["requests"].items():
        asked = {**request, "messages": with_pictures(request["messages"])}
        response = client.chat.completions.create(**asked)
        if request.get("stream"):
            answers[name] = joined(piece.model_dump() for piece in response)
        else:
            answers[name] = whole(response.model_dump())
    return {
        "prompts": {
            name: {"prompt_ids": answer.pop("prompt_ids"), "tokens": answer.pop("tokens")}
            for name, answer in answers.items()
        },
        "data": answers,
    }


def ask(client: Any, job: Mapping[str, Any], result: dict[str, Any], target: Path) -> int:
    """Do the steps, writing the result after each; return the exit status."""
    for step in job["steps"]:
        began = time.monotonic()
        try:
            answer = chat(client, step)
        except Exception as error:  # whatever a step raises is the finding
            answer = child.failure(error)
        answer["seconds"] = time.monotonic() - began
        result["steps"][step["name"]] = answer
        child.write_result(result, target)
        if "error" in answer:
            return STEP_FAILED
    return 0


def main(job_file: str) -> int:
    """Start the server and do the steps; return the exit status."""
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    target = Path(job["result"])
    result: dict[str, Any] = {"versions": engine.versions(), "start": {}, "steps": {}}
    began = time.monotonic()
    start = [sys.executable, "-P", str(Path(__file__).with_name("serve.py")), "serve"]
    try:
        with server.served([*start, *job["engine"]["command"]], job["seconds"]) as url:
            result["start"] = {"seconds": time.monotonic() - began}
            child.write_result(result, target)
            client = importlib.import_module("openai").OpenAI(
                base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=job["seconds"]
            )
            return ask(client, job, result, target)
    except RuntimeError as error:
        result["start"] = child.failure(error)
        child.write_result(result, target)
        return START_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
