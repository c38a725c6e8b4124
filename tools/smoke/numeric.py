"""Numbers, not only tokens: vision embeddings and first-token logits against transformers.

Embeddings are kept as eight random projections of each row, which keeps the golden file small and
the relative error what it is: a projection onto random signs preserves lengths in the mean.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.errors import BadInput, CheckFailed
from tools.smoke.cases import IMAGE_TEXT, VIDEO_TEXT, Frames, Prompt
from tools.smoke.checkpoint import Shape, Variant, checkpoint_files, digest, write_checkpoint
from tools.smoke.jobs import run_job

TOLERANCE = 1e-4
TIMEOUT = 900.0
_CHILD = Path(__file__).with_name("children") / "reference_child.py"


def _pictures(name: str, *sizes: tuple[int, int]) -> Prompt:
    images = tuple(Frames(f"{name}-{place}", *size) for place, size in enumerate(sizes))
    return Prompt(name, f"{IMAGE_TEXT * len(images)} What is it?", images)


# Sides are multiples of 28, so no resizing (which differs between libraries) gets in between.
PROMPTS = (
    _pictures("smallest", (56, 56)),
    _pictures("one window", (112, 112)),
    _pictures("wide", (56, 560)),
    _pictures("tall", (560, 56)),
    _pictures("no multiple of the window", (252, 196)),
    _pictures("five", (84, 84), (56, 140), (140, 112), (84, 84), (196, 56)),
    Prompt(
        "two clips",
        f"{VIDEO_TEXT} and {VIDEO_TEXT}: which is longer?",
        (),
        (Frames("brief", 112, 84, 2), Frames("long", 84, 140, 8)),
    ),
)


@dataclass(frozen=True)
class Numbers:
    """What the model makes of one prompt.

    Attributes:
        embeddings: The projected rows of the vision tower's output, one after another.
        logits: The logits of the first token.
    """

    embeddings: tuple[float, ...]
    logits: tuple[float, ...]


@dataclass(frozen=True)
class GoldenNumbers:
    """transformers' numbers, and what they were made with."""

    transformers: str
    checkpoint: str
    numbers: Mapping[str, Numbers]

    def check_current(self) -> None:
        """Raise when the checkpoint or the prompts are not those the numbers were made with.

        Raises:
            CheckFailed: The file is stale.
        """
        names = {prompt.name for prompt in PROMPTS}
        if self.checkpoint != digest(checkpoint_files(Variant())) or names != set(self.numbers):
            raise CheckFailed(
                "the golden numbers are of another checkpoint or other prompts",
                hint="run: nox -s reference",
            )


def relative_error(expected: Sequence[float], found: Sequence[float]) -> float:
    """Return the length of the difference over the expected length; infinite for other sizes."""
    if len(expected) != len(found) or not expected:
        return math.inf
    distance = math.dist(expected, found) / math.hypot(*expected)
    return distance if math.isfinite(distance) else math.inf


def generate(python: Path, cache: Path) -> GoldenNumbers:
    """Ask transformers for the numbers of every prompt.

    Raises:
        CheckFailed: transformers failed.
    """
    job = {
        "kind": "numbers",
        "checkpoint": str(write_checkpoint(Variant(Shape.PUBLISHED), cache)),
        "prompts": [prompt.document() for prompt in PROMPTS],
    }
    outcome = run_job(python, _CHILD, job, env={"HF_HUB_OFFLINE": "1"}, timeout=TIMEOUT)
    if outcome.status != 0 or outcome.result is None:
        raise CheckFailed(f"the reference run failed: {outcome.last_error}")
    numbers = {name: parse(entry) for name, entry in outcome.result["prompts"].items()}
    version = outcome.result["versions"]["transformers"]
    return GoldenNumbers(version, digest(checkpoint_files(Variant())), numbers)


def parse(entry: Mapping[str, Sequence[float]]) -> Numbers:
    """Return the numbers in a child's result."""
    return Numbers(tuple(entry["embeddings"]), tuple(entry["logits"]))


def dump(golden: GoldenNumbers) -> bytes:
    """Return the golden file's bytes, one prompt a line, seven digits a number."""
    head = {"transformers": golden.transformers, "checkpoint": golden.checkpoint}
    lines = [
        f"{json.dumps(name)}: {{{_row('embeddings', n.embeddings)}, {_row('logits', n.logits)}}}"
        for name, n in golden.numbers.items()
    ]
    return (json.dumps(head)[:-1] + ',\n"numbers": {\n' + ",\n".join(lines) + "\n}}\n").encode()


def _row(name: str, values: Sequence[float]) -> str:
    return f'"{name}": [{",".join(f"{value:.7g}" for value in values)}]'


def load(file: Path) -> GoldenNumbers:
    """Read a golden file of numbers.

    Raises:
        BadInput: The file is missing or is not one.
    """
    try:
        document = json.loads(file.read_bytes())
        numbers = {name: parse(entry) for name, entry in document["numbers"].items()}
        return GoldenNumbers(document["transformers"], document["checkpoint"], numbers)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"no golden numbers at {file}: {error}", hint="run: nox -s reference"
        ) from None
