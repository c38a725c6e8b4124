"""The smoke of one wheel: every case in every config shape, through a real engine.

Engine starts cost most, so a run puts as many cases as it can into one engine.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from tools.smoke.cases import CASES, Case, Prompt
from tools.smoke.checkpoint import Shape, Variant, Weights, next_token, write_checkpoint
from tools.smoke.engine import (
    EngineRun,
    StepResult,
    engine_arguments,
    generation,
    run_engine,
)
from tools.smoke.environment import Environment, engine_plan, environment
from tools.smoke.golden import Answer, Golden, load
from tools.smoke.results import Check, SmokeReport, Verdict, compare_tokens
from tools.upstream.index import Index

GOLDEN = Path("tests") / "golden" / "tokens.json"
# Up to v0.19.1 the CPU runner refuses speculative decoding.
CPU_SPECULATES_FROM = Version("0.20.0")
DRAFTS = "vllm:spec_decode_num_drafts"
DRAFTED = "vllm:spec_decode_num_draft_tokens"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
SPECULATIVE = {"method": "mtp", "num_speculative_tokens": 3}

Progress = Callable[[str], None]
Judge = Callable[["Run", Case, StepResult, Golden], Check]


@dataclass(frozen=True)
class Run:
    """One engine start: its checkpoint, its arguments, its cases.

    Args:
        name: What the report calls it.
        variant: The checkpoint.
        judge: What makes a verdict of a step.
        extra: Engine arguments besides the usual ones.
        cases: What it is asked.
        speculates: True when it needs speculative decoding.
    """

    name: str
    variant: Variant
    judge: Judge
    extra: Mapping[str, Any] = field(default_factory=dict)
    cases: tuple[Case, ...] = CASES
    speculates: bool = False


def golden_tokens(run: Run, case: Case, step: StepResult, golden: Golden) -> Check:
    """Pass a step whose prompt and answer tokens all are the golden ones."""
    known = golden.answers[run.variant.shape]
    return _check(run, case, step, _differences(step, known))


def same_tokens_drafted(run: Run, case: Case, step: StepResult, golden: Golden) -> Check:
    """Pass a step with the golden tokens for which drafts were counted."""
    problem = _differences(step, golden.answers[run.variant.shape])
    drafts = step.counters.get(DRAFTS, 0)
    if not problem and drafts <= 0:
        problem = "no draft was counted"
    return _check(run, case, step, problem, f"{drafts:.0f} drafts")


def all_accepted(run: Run, case: Case, step: StepResult, golden: Golden) -> Check:
    """Pass a step in which every draft token was accepted and each token follows the last."""
    del golden
    problem = ""
    for name, answer in step.answers.items():
        expected, token = [], answer.prompt_ids[-1]
        for _ in answer.tokens:
            token = next_token(token)
            expected.append(token)
        wrong = compare_tokens(tuple(expected), answer.tokens)
        problem = problem or (wrong and f"{name}: {wrong}")
    drafted, accepted = step.counters.get(DRAFTED, 0), step.counters.get(ACCEPTED, 0)
    if not problem and not drafted == accepted > 0:
        problem = f"{accepted:.0f} of {drafted:.0f} draft tokens accepted"
    return _check(run, case, step, problem, f"all {drafted:.0f} draft tokens accepted")


def _differences(step: StepResult, known: Mapping[str, Answer]) -> str:
    for name, answer in step.answers.items():
        if answer.prompt_ids != known[name].prompt_ids:
            wrong = compare_tokens(known[name].prompt_ids, answer.prompt_ids)
            return f"{name}: prompt: {wrong}"
        wrong = compare_tokens(known[name].tokens, answer.tokens)
        if wrong:
            return f"{name}: {wrong}"
    return ""


def _check(run: Run, case: Case, step: StepResult, problem: str, figure: str = "") -> Check:
    problem = step.error or problem
    verdict = Verdict.FAILED if problem else Verdict.PASSED
    return Check(run.name, case.name, verdict, problem or figure, round(step.seconds, 2))


ACCEPTANCE = Case(
    "acceptance",
    (Prompt("first", "[|user|]\nWhich is the first"), Prompt("second", "There are two")),
    # The first token comes from the prompt alone; the others are whole draws of four.
    new_tokens=25,
)
RUNS = (
    Run("published", Variant(Shape.PUBLISHED), golden_tokens),
    Run("saved", Variant(Shape.SAVED), golden_tokens),
    Run("extra layer type", Variant(Shape.PUBLISHED, extra_layer_type=True), golden_tokens),
    Run(
        "mtp",
        Variant(Shape.PUBLISHED),
        same_tokens_drafted,
        extra={"speculative_config": SPECULATIVE},
        speculates=True,
    ),
    Run(
        "mtp accepting",
        Variant(Shape.PUBLISHED, Weights.ACCEPTING),
        all_accepted,
        extra={"speculative_config": SPECULATIVE},
        cases=(ACCEPTANCE,),
        speculates=True,
    ),
)


def smoke(
    release: str,
    *,
    wheel: Path | None,
    device: str,
    root: Path,
    cache: Path,
    transformers: str = "release",
    runs: Sequence[Run] = RUNS,
    progress: Progress = lambda _: None,
) -> SmokeReport:
    """Ask every case of every run of a wheel, or of the stock wheel of a release.

    Args:
        release: The release, such as ``v0.32.0``.
        wheel: The wheel to check; None for upstream's, without our changes.
        device: ``cpu`` or ``cuda``.
        root: The repository's root, where the golden file lies.
        cache: The cache directory.
        transformers: See :func:`tools.smoke.environment.engine_plan`.
        runs: What to run.
        progress: Told, in one line, what is being done.

    Raises:
        CheckFailed: The golden file is stale.
        BadInput: The wheel or the golden file is none.
        Unavailable: The stock wheel or a package cannot be had.
        EnvironmentLacks: The environment cannot be installed.
        Busy: Another run holds the environments.
    """
    began = time.monotonic()
    golden = load(root / GOLDEN)
    golden.check_current()
    index = Index.configured(cache, progress)
    plan = engine_plan(release, device=device, wheel=wheel, transformers=transformers, index=index)
    checks: list[Check] = []
    versions: Mapping[str, str] = {}
    with environment(plan, cache, progress) as place:
        for run in runs:
            reason = unable(run, release, device)
            if reason:
                checks += [Check(run.name, c.name, Verdict.SKIPPED, reason) for c in run.cases]
                continue
            progress(f"{plan.label}: {run.name}")
            found = execute(run, place, device, cache)
            versions = found.versions or versions
            checks += [run.judge(run, c, found.steps[c.name], golden) for c in run.cases]
    return SmokeReport(
        release=release,
        device=device,
        stock=wheel is None,
        wheel=Path(plan.requirements[0]).name,
        wheel_sha256=plan.wheel_sha256,
        versions=versions,
        checks=tuple(checks),
        seconds=round(time.monotonic() - began, 1),
    )


def execute(run: Run, place: Environment, device: str, cache: Path) -> EngineRun:
    """Start the engine of a run and ask its cases."""
    checkpoint = write_checkpoint(run.variant, cache / "checkpoints")
    arguments = engine_arguments(str(checkpoint), device, **run.extra)
    return run_engine(place, arguments, [generation(case) for case in run.cases])


def unable(run: Run, release: str, device: str) -> str:
    """Return why a run cannot be made on this release and device, or ""."""
    old = Version(release.removeprefix("v")) < CPU_SPECULATES_FROM
    if run.speculates and device == "cpu" and old:
        return "the CPU runner of this release refuses speculative decoding"
    return ""
