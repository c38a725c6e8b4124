"""The smoke of a model of the user's: real weights, with and without drafts.

There is no golden file for it. What can be proved is that it answers, with drafts and without, how
many drafts are accepted and what they gain. Where the first token differs with drafts is told and
no fault: in half precision a batch of drafts is summed in another order.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tools.smoke.cases import CASES, Case
from tools.smoke.engine import EngineRun, Needs, StepResult, run_engine
from tools.smoke.jobs import Server
from tools.smoke.judges import ACCEPTED, DRAFTED
from tools.smoke.results import Check, Verdict, compare_tokens
from tools.smoke.runs import SPECULATIVE

NEW_TOKENS = 64
_ASKED = ("text", "image", "images", "video")


def model_cases() -> tuple[Case, ...]:
    """Return the cases that a model of the user's is asked."""
    return tuple(
        Case(case.name, case.prompts, new_tokens=NEW_TOKENS)
        for case in CASES
        if case.name in _ASKED
    )


def hub_id(model: str) -> str:
    """Return what the hub knows a model by; "" for a directory, and for no model."""
    return "" if Path(model).is_dir() else model


def weight_bytes(model: str) -> int:
    """Return the size of a local checkpoint's weights; 0 for one that is not a directory."""
    root = Path(model)
    return sum(f.stat().st_size for f in root.glob("*.safetensors")) if root.is_dir() else 0


def smoke_model(
    server: Server,
    model: str,
    device: str,
    *,
    speculates: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Mapping[str, str], tuple[Check, ...]]:
    """Ask a model with and without drafts.

    Args:
        server: Starts engines, for an id such as may ask the hub.
        model: A directory or an id of the hub; an id is fetched as the hub's client does it.
        device: ``cpu`` or ``cuda``.
        speculates: False where the release's runner cannot draft.
        progress: Told, in one line, what is being done.

    Returns:
        The versions that ran, and the checks.
    """
    arguments: dict[str, Any] = {
        "model": model,
        "max_model_len": 4096,
        "max_num_seqs": 8,
        "limit_mm_per_prompt": {"image": 2, "video": 1},
        "disable_log_stats": False,
        "seed": 0,
        **({"enforce_eager": True} if device == "cpu" else {}),
    }
    needs = None
    if device == "cuda":
        needs = Needs(weight_bytes(model), hub_id(model))
    progress(f"asking {model}")
    plain = _ask(server, arguments, needs)
    checks = [_answered("model", case, plain.steps[case.name]) for case in model_cases()]
    if not speculates:
        reason = "the CPU runner of this release refuses speculative decoding"
        checks += [Check("model mtp", c.name, Verdict.SKIPPED, reason) for c in model_cases()]
        return plain.versions, tuple(checks)
    progress(f"asking {model} with drafts")
    drafted = _ask(server, {**arguments, **SPECULATIVE}, needs)
    checks += [
        _drafted(case, plain.steps[case.name], drafted.steps[case.name]) for case in model_cases()
    ]
    return plain.versions, tuple(checks)


def _ask(server: Server, arguments: Mapping[str, Any], needs: Needs | None) -> EngineRun:
    steps = [
        {
            "kind": "generate",
            "name": case.name,
            "new_tokens": case.new_tokens,
            "prompts": [prompt.document() for prompt in case.prompts],
        }
        for case in model_cases()
    ]
    return run_engine(server, arguments, steps, needs=needs)


def _answered(run: str, case: Case, step: StepResult) -> Check:
    if step.skipped:
        return Check(run, case.name, Verdict.SKIPPED, step.skipped)
    if step.error:
        return Check(run, case.name, Verdict.FAILED, step.error)
    count = sum(len(answer.tokens) for answer in step.answers.values())
    detail = f"{count} tokens, {count / max(step.seconds, 1e-9):.1f} a second"
    return Check(run, case.name, Verdict.PASSED, detail, round(step.seconds, 2))


def _drafted(case: Case, plain: StepResult, drafted: StepResult) -> Check:
    check = _answered("model mtp", case, drafted)
    if check.verdict is not Verdict.PASSED or plain.error:
        return check
    tokens, accepted = drafted.counters.get(DRAFTED, 0), drafted.counters.get(ACCEPTED, 0)
    differences = [
        compare_tokens(plain.answers[name].tokens, answer.tokens)
        for name, answer in drafted.answers.items()
    ]
    figure = (
        f"{accepted:.0f} of {tokens:.0f} draft tokens accepted, "
        f"{plain.seconds / max(drafted.seconds, 1e-9):.2f} times as fast"
    )
    detail = ", ".join([figure, *(f"without drafts other: {d}" for d in differences if d)])
    verdict = Verdict.PASSED if tokens and accepted else Verdict.FAILED
    return Check(check.run, case.name, verdict, detail, check.seconds)
