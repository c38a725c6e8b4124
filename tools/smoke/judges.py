"""Verdicts: what a probe has to bring back, and what is wrong with what it brought."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tools.smoke import numeric
from tools.smoke.checkpoint import Variant
from tools.smoke.engine import StepResult
from tools.smoke.golden import Answer, Golden
from tools.smoke.results import compare_tokens
from tools.smoke.tensors import next_token

CACHE_HITS = "vllm:prefix_cache_hits"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
DRAFTED = "vllm:spec_decode_num_draft_tokens"
DRAFTS = "vllm:spec_decode_num_drafts"
# Of the drafter's hidden states against plain torch, relative, in float32.
DRAFTER_TOLERANCE = 1e-4
# Of first-token logits with FP8 weights and activations: 0.17 was seen, other logits are 1.4 off.
QUANTISED_TOLERANCE = 0.4


@dataclass(frozen=True)
class Finding:
    """What a judge makes of a step: the problem, or "", and a figure worth showing."""

    problem: str
    figure: str = ""


def difference(step: StepResult, known: Mapping[str, Answer]) -> str:
    """Return "" when all prompts and answers are the known ones, else the first difference."""
    for name, answer in step.answers.items():
        wrong = compare_tokens(known[name].prompt_ids, answer.prompt_ids)
        if wrong:
            return f"{name}: in the prompt, {wrong}"
        wrong = compare_tokens(known[name].tokens, answer.tokens)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def golden_tokens(variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with a token that is not the golden one."""
    return Finding(difference(step, golden.known(variant)))


def golden_tokens_drafted(variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with other tokens, and with a step for which no draft was counted."""
    drafts = step.counters.get(DRAFTS, 0)
    problem = difference(step, golden.known(variant))
    return Finding(
        problem or ("" if drafts > 0 else "no draft was counted"), f"{drafts:.0f} drafts"
    )


def golden_tokens_cached(variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with other tokens, and with a repeated prompt that no cached block served."""
    hits = step.counters.get(CACHE_HITS, 0)
    problem = difference(step, golden.known(variant))
    return Finding(problem or ("" if hits > 0 else "no cache hit"), f"{hits:.0f} tokens from cache")


def noticed(variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with a mutant whose tokens all are golden: nothing would notice the mistake."""
    wrong = difference(step, golden.known(variant))
    return Finding("" if wrong else "no golden token noticed it", f"noticed: {wrong}")


def all_accepted(_variant: Variant, step: StepResult, _golden: Golden) -> Finding:
    """Find fault with a refused draft token, and with a token that does not follow its last."""
    for name, answer in step.answers.items():
        expected, token = [], answer.prompt_ids[-1]
        for _ in answer.tokens:
            token = next_token(token)
            expected.append(token)
        wrong = compare_tokens(tuple(expected), answer.tokens)
        if wrong:
            return Finding(f"{name}: {wrong}")
    drafted, accepted = step.counters.get(DRAFTED, 0), step.counters.get(ACCEPTED, 0)
    figure = f"{accepted:.0f} of {drafted:.0f} draft tokens accepted"
    return Finding("" if drafted == accepted > 0 else figure, figure)


def close_to_reference(_variant: Variant, step: StepResult, _golden: Golden) -> Finding:
    """Find fault with a drafter that is another module, or far from the plain one."""
    error, positions = step.data["error"], step.data["positions"]
    figure = f"{step.data['class']}, {positions} positions, relative error {error:.1e}"
    return Finding("" if error < DRAFTER_TOLERANCE else figure, figure)


def one_draft_by_default(_variant: Variant, step: StepResult, _golden: Golden) -> Finding:
    """Find fault with another drafter or number than one token by the checkpoint's one layer."""
    architectures, number = step.data["architectures"], step.data["number"]
    figure = f"{number} by {', '.join(architectures)}"
    return Finding("" if (architectures, number) == (["Exaone4_5_MTP"], 1) else figure, figure)


def far_from_reference(_variant: Variant, step: StepResult, _golden: Golden) -> Finding:
    """Find fault with a drafter mutant that stays close to the plain one."""
    figure = f"relative error {step.data['error']:.1e}"
    good = step.data["error"] > 100 * DRAFTER_TOLERANCE
    return Finding("" if good else f"not noticed: {figure}", f"noticed: {figure}")


def numbers_close(_variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with embeddings or first-token logits beyond the tolerance."""
    finding = numbers_reported(_variant, step, golden)
    bad = any(error >= numeric.TOLERANCE for error, _ in worst_numbers(step, golden).values())
    return Finding(finding.figure if bad else "", finding.figure)


def numbers_reported(_variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Say how far embeddings and logits are off; find fault with those that are no numbers."""
    worst = worst_numbers(step, golden)
    figure = ", ".join(f"{part} {error:.1e} ({name})" for part, (error, name) in worst.items())
    bad = any(not math.isfinite(error) for error, _ in worst.values())
    return Finding(figure if bad else "", figure)


def numbers_of_quantised(_variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with embeddings off at all and logits far off: the tower is not quantised."""
    worst = worst_numbers(step, golden)
    figure = numbers_reported(_variant, step, golden).figure
    good = worst["embeddings"][0] < numeric.TOLERANCE and worst["logits"][0] < QUANTISED_TOLERANCE
    return Finding("" if good else figure, figure)


def embeddings_close(_variant: Variant, step: StepResult, golden: Golden) -> Finding:
    """Find fault with embeddings beyond the tolerance, whatever the logits are."""
    error, name = worst_numbers(step, golden)["embeddings"]
    figure = f"embeddings {error:.1e} ({name})"
    return Finding("" if error < numeric.TOLERANCE else figure, figure)


def worst_numbers(step: StepResult, golden: Golden) -> dict[str, tuple[float, str]]:
    """Return the largest relative error of embeddings and of logits, and its prompt."""
    worst = {"embeddings": (0.0, ""), "logits": (0.0, "")}
    for name, expected in golden.numbers.items():
        found = numeric.parse(step.data[name])
        for part, error in {
            "embeddings": numeric.relative_error(expected.embeddings, found.embeddings),
            "logits": numeric.relative_error(expected.logits, found.logits),
        }.items():
            worst[part] = max(worst[part], (error, name))
    return worst
