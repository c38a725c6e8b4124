"""The golden file: what transformers answers, greedily and in float32, with its margins.

``generate`` writes it and ``load`` reads it. A margin is the gap between the best two logits; a
golden token whose margin float noise could cross would make a test that fails by chance, so
generation refuses it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.errors import BadInput, CheckFailed
from tools.smoke.cases import GOLDEN_CASES, Case, all_prompts
from tools.smoke.checkpoint import (
    Shape,
    Variant,
    Weights,
    checkpoint_files,
    digest,
    write_checkpoint,
)
from tools.smoke.jobs import run_job
from tools.smoke.numeric import Numbers

# Engines and transformers differ by about 1e-4 in these logits; 200 times that is no accident.
MARGIN_FLOOR = 0.02
TIMEOUT = 900.0
_CHILD = Path(__file__).with_name("children") / "reference_child.py"


@dataclass(frozen=True)
class Answer:
    """What transformers makes of one prompt."""

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    margins: tuple[float, ...]


@dataclass(frozen=True)
class Golden:
    """The answers by shape and prompt, and what they were made with.

    Attributes:
        transformers: Version of transformers.
        torch: Version of torch.
        checkpoints: Digest of the checkpoint of each shape.
        answers: Answers by shape, then by prompt name.
        numbers: Embeddings and first-token logits by prompt name.
        tied: Answers of the tied checkpoint, in the same way.
    """

    transformers: str
    torch: str
    checkpoints: Mapping[Shape, str]
    answers: Mapping[Shape, Mapping[str, Answer]]
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    tied: Mapping[Shape, Mapping[str, Answer]] = field(default_factory=dict)

    def known(self, variant: Variant) -> Mapping[str, Answer]:
        """Return the answers of a variant by prompt name."""
        return (self.tied if variant.weights is Weights.TIED else self.answers)[variant.shape]

    def check_current(self, weights: Weights = Weights.RANDOM) -> None:
        """Raise when the checkpoint or the cases are not those the answers were made with.

        Args:
            weights: Which weights the checkpoint holds.

        Raises:
            CheckFailed: The golden file is stale.
        """
        for shape in Shape:
            stale = self.checkpoints[shape] != digest(checkpoint_files(Variant(shape, weights)))
            names = {prompt.name for prompt in all_prompts()}
            if stale or names != set(self.answers[shape]):
                raise CheckFailed(
                    f"the golden file is of another checkpoint or other cases ({shape.value})",
                    hint="run: nox -s reference",
                )


def generate(
    python: Path,
    cache: Path,
    *,
    weights: Weights = Weights.RANDOM,
    cases: tuple[Case, ...] = GOLDEN_CASES,
    progress: Callable[[str], None] = lambda _: None,
) -> Golden:
    """Ask transformers for every prompt in both config shapes.

    Args:
        python: Interpreter of the reference environment.
        cache: Where checkpoints are written.
        weights: Which weights the checkpoints hold.
        cases: What to ask.
        progress: Told what is being done.

    Raises:
        CheckFailed: transformers failed, a margin is below the floor, or the shapes disagree.
    """
    answers: dict[Shape, dict[str, Answer]] = {}
    versions: dict[str, str] = {}
    for shape in Shape:
        progress(f"transformers answers, {weights.value} weights, config shape {shape.value}")
        outcome = run_job(
            python,
            _CHILD,
            {
                "checkpoint": str(write_checkpoint(Variant(shape, weights), cache)),
                "kind": "answers",
                "prompts": [
                    {**prompt.document(), "new_tokens": case.new_tokens}
                    for case in cases
                    for prompt in case.prompts
                ],
            },
            env={"HF_HUB_OFFLINE": "1"},
            timeout=TIMEOUT,
        )
        if outcome.status != 0 or outcome.result is None:
            raise CheckFailed(f"the reference run failed: {outcome.last_error}")
        versions = outcome.result["versions"]
        answers[shape] = {
            name: Answer(
                tuple(entry["prompt_ids"]),
                tuple(entry["tokens"]),
                tuple(round(margin, 4) for margin in entry["margins"]),
            )
            for name, entry in outcome.result["prompts"].items()
        }
    golden = Golden(
        versions["transformers"],
        versions["torch"],
        {shape: digest(checkpoint_files(Variant(shape, weights))) for shape in Shape},
        answers,
    )
    check_margins(golden)
    return golden


def check_margins(golden: Golden) -> None:
    """Raise where a golden token is decided by less than the floor.

    Raises:
        CheckFailed: A margin is too small; the prompt has to be worded differently.
    """
    for shape, answers in golden.answers.items():
        for name, answer in answers.items():
            least = min(answer.margins)
            if least < MARGIN_FLOOR:
                raise CheckFailed(
                    f"a token of prompt {name} ({shape.value}) is decided by {least:.4f} only",
                    hint=f"word the prompt or seed its pictures differently (floor {MARGIN_FLOOR})",
                )


def dump(golden: Golden) -> bytes:
    """Return the golden file's bytes, one prompt a line."""
    head = {"transformers": golden.transformers, "torch": golden.torch, "floor": MARGIN_FLOOR}
    lines = [json.dumps(head)[:-1] + ","]
    for shape in Shape:
        lines.append(
            f'"{shape.value}": {{"checkpoint": "{golden.checkpoints[shape]}", "prompts": {{'
        )
        entries = [
            f"{json.dumps(name)}: "
            + json.dumps(
                {
                    "prompt_ids": answer.prompt_ids,
                    "tokens": answer.tokens,
                    "margins": answer.margins,
                }
            )
            for name, answer in golden.answers[shape].items()
        ]
        lines.append(",\n".join(entries))
        lines.append("}}" + ("," if shape is not list(Shape)[-1] else "}"))
    return ("\n".join(lines) + "\n").encode()


def load(file: Path) -> Golden:
    """Read a golden file.

    Raises:
        BadInput: The file is missing or is not one.
    """
    try:
        document = json.loads(file.read_bytes())
        return Golden(
            document["transformers"],
            document["torch"],
            {shape: document[shape.value]["checkpoint"] for shape in Shape},
            {
                shape: {
                    name: Answer(
                        tuple(entry["prompt_ids"]), tuple(entry["tokens"]), tuple(entry["margins"])
                    )
                    for name, entry in document[shape.value]["prompts"].items()
                }
                for shape in Shape
            },
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"no golden file at {file}: {error}", hint="run: nox -s reference") from None
