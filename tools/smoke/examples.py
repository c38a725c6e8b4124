"""Upstream's offline examples of the carried tree, run on the tiny checkpoint.

They name the published model; here the hub's cache holds the tiny checkpoint under that name, so
that the scripts run as they stand.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.errors import BadInput
from tools.smoke import tokenizer
from tools.smoke.cases import Frames
from tools.smoke.checkpoint import Variant, checkpoint_files, publish
from tools.smoke.engine import shorten, variables
from tools.smoke.environment import Environment, engine_plan, environment
from tools.smoke.jobs import Outcome, run_job
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.tree import Tree
from tools.upstream.index import Index

CHILD = Path(__file__).with_name("children") / "example_child.py"
MODEL = "LGAI-EXAONE/EXAONE-4.5-33B"
NAME = "exaone4_5"
RUN = "examples"
TIMEOUT = 900.0
# The picture that upstream's examples look at, and others to look at together.
PICTURES = {
    "cherry_blossom.jpg": Frames("blossom", 140, 196),
    "second.jpg": Frames("second", 112, 140),
    "third.jpg": Frames("third", 168, 84),
}
_REVISION = "0" * 40


@dataclass(frozen=True)
class Example:
    """One way to run an example.

    Args:
        name: What the report calls it.
        scripts: Where releases have the script, the newest place first.
        arguments: Its arguments.
        answers: How many answers there must be.
        images: How many pictures each prompt must hold.
    """

    name: str
    scripts: tuple[str, ...]
    arguments: tuple[str, ...]
    answers: int
    images: int


_ONE = (
    "examples/generate/multimodal/vision_language_offline.py",
    "examples/offline_inference/vision_language.py",
)
_MANY = (
    "examples/generate/multimodal/vision_language_multi_image_offline.py",
    "examples/offline_inference/vision_language_multi_image.py",
)
EXAMPLES = (
    Example("one image", _ONE, ("-m", NAME, "--num-prompts", "2"), answers=2, images=1),
    Example("two images", _MANY, ("-m", NAME, "-n", "2"), answers=1, images=2),
)


def run_examples(
    release: str,
    *,
    tree: Tree,
    wheel: Path,
    cache: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> SmokeReport:
    """Run the examples of a carried tree on its CPU wheel.

    Args:
        release: The release, such as ``v0.32.0``.
        tree: The carried tree.
        wheel: Its wheel.
        cache: The cache directory.
        progress: Told, in one line, what is being done.

    Raises:
        BadInput: The tree has no such example, as one that was made from a wheel.
        Unavailable, EnvironmentLacks, Busy: As :func:`tools.smoke.environment.environment`.
    """
    began = time.monotonic()
    index = Index.configured(cache, progress)
    plan = engine_plan(release, device="cpu", wheel=wheel, transformers="release", index=index)
    checks = []
    with environment(plan, cache, progress) as place, tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        publish_model(home / "hub")
        for example in EXAMPLES:
            progress(f"{plan.label}: example of {example.name}")
            file = home / "example.py"
            file.write_bytes(find(tree, example))
            started = time.monotonic()
            outcome = start(example, file, place, home)
            spent = time.monotonic() - started
            checks.append(check(example, outcome, spent))
    return SmokeReport(
        release=release,
        device="cpu",
        stock=False,
        wheel=wheel.name,
        wheel_sha256=plan.wheel_sha256,
        versions={},
        checks=tuple(checks),
        seconds=round(time.monotonic() - began, 1),
    )


def find(tree: Tree, example: Example) -> bytes:
    """Return an example's script.

    Raises:
        BadInput: The tree has none.
    """
    for path in example.scripts:
        content = tree.read(path)
        if content is not None:
            return content
    raise BadInput(
        f"this tree has no example {example.scripts[0]}", "take it from the sdist or from git"
    )


def publish_model(hub: Path) -> None:
    """Lay the tiny checkpoint, with its chat template, where the hub's client looks for MODEL."""
    repository = hub / f"models--{MODEL.replace('/', '--')}"
    publish(checkpoint_files(Variant(chat=True)), repository / "snapshots" / _REVISION)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(_REVISION, encoding="utf-8")


def start(example: Example, file: Path, place: Environment, home: Path) -> Outcome:
    """Run an example's script in an environment, with a hub cache and assets below ``home``."""
    env: Mapping[str, str] = {
        **variables(place),
        "HF_HUB_CACHE": str(home / "hub"),
        "VLLM_ASSETS_CACHE": str(home / "assets"),
        # The examples ask for longer contexts than the tiny checkpoint has positions.
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    }
    job: dict[str, Any] = {
        "script": str(file),
        "arguments": list(example.arguments),
        "assets": str(home / "assets" / "vllm_public_assets"),
        "pictures": {name: picture.document() for name, picture in PICTURES.items()},
    }
    return run_job(place.python, CHILD, job, env=env, timeout=TIMEOUT)


def check(example: Example, outcome: Outcome, seconds: float) -> Check:
    """Return the verdict on what an example did."""
    problem = fault(example, outcome)
    verdict = Verdict.FAILED if problem else Verdict.PASSED
    answers = (outcome.result or {"answers": []})["answers"]
    figure = f"{sum(len(answer['tokens']) for answer in answers)} tokens"
    return Check(RUN, example.name, verdict, shorten(problem or figure), round(seconds, 2))


def fault(example: Example, outcome: Outcome) -> str:
    """Return "" where an example answered what it had to, else what is wrong."""
    if outcome.result is None:
        return outcome.last_error
    answers = outcome.result["answers"]
    if len(answers) != example.answers:
        return f"{len(answers)} answers, not {example.answers}"
    for answer in answers:
        pairs = itertools.pairwise(answer["prompt_ids"])
        images = sum(pair == (tokenizer.IMAGE, tokenizer.END_VISION) for pair in pairs)
        if images != example.images:
            return f"{images} pictures in the prompt, not {example.images}"
        if not answer["tokens"]:
            return "an answer without a token"
    return ""
