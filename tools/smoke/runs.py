"""What the smoke runs: engine starts, the probes of each, and the verdict on what came back.

Engine starts cost most, so a run puts as many probes as it can into one engine.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from tools.smoke import numeric, tokenizer
from tools.smoke.cases import CASES, LONG, Case, Prompt, all_prompts
from tools.smoke.checkpoint import Shape, Variant, Weights
from tools.smoke.engine import IN_PROCESS, StepResult
from tools.smoke.golden import Golden
from tools.smoke.judges import (
    Finding,
    all_accepted,
    close_to_reference,
    far_from_reference,
    golden_tokens,
    golden_tokens_cached,
    golden_tokens_drafted,
    noticed,
    numbers_close,
    numbers_reported,
    one_draft_by_default,
)
from tools.smoke.results import Check, Verdict

# Up to v0.19.1 the CPU runner refuses speculative decoding.
CPU_SPECULATES_FROM = Version("0.20.0")
# From the first and before the second, the CPU platform puts every worker into another process.
WORKERS_APART = (Version("0.20.0"), Version("0.23.0"))


Judge = Callable[[Variant, StepResult, Golden], Finding]


@dataclass(frozen=True)
class Probe:
    """One step of a run and its judge.

    Args:
        name: What the report calls it.
        step: Makes the child's step from the checkpoint's directory.
        judge: Makes a finding of what came back without an error.
    """

    name: str
    step: Callable[[Path], Mapping[str, Any]]
    judge: Judge


@dataclass(frozen=True)
class Run:
    """One engine start: its checkpoint, its arguments, its probes.

    Args:
        name: What the report calls it.
        variant: The checkpoint.
        probes: What it is asked.
        extra: Engine arguments besides the usual ones.
        speculates: True when it needs speculative decoding.
        refusals: Where the engine must refuse to start, what its error has to say, one of them.
        workers: How many processes share the model; each needs a GPU, or on the CPU a core, and
            two of them are bound to half of the cores each.
        since: The first release that offers what it asks for, "" where all do.
        lacks_on_cpu: What it needs that no engine has on the CPU, "" where it needs no such thing.
        served: True when a server is asked, through the API.
        environment: Variables of the engine that a user would set for this.
    """

    name: str
    variant: Variant
    probes: tuple[Probe, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    speculates: bool = False
    refusals: tuple[str, ...] = ()
    workers: int = 1
    since: str = ""
    lacks_on_cpu: str = ""
    served: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def unable(self, release: Version, device: str) -> str:
        """Return why this release cannot make the run on this device and machine, or ""."""
        lacking = self.lacking(release, device)
        if not lacking and device == "cpu" and len(usable_cores()) < self.workers:
            return f"needs {self.workers} cores, {len(usable_cores())} are usable"
        return lacking

    def lacking(self, release: Version, device: str) -> str:
        """Return why this release cannot make the run on this device, whatever the machine."""
        if self.speculates and device == "cpu" and release < CPU_SPECULATES_FROM:
            return "the CPU runner of this release refuses speculative decoding"
        if self.since and release < Version(self.since):
            return f"v{self.since} is the first release that has it"
        return self.lacks_on_cpu if device == "cpu" else ""

    def engine(
        self, release: Version, device: str, steps: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the engine arguments of the run besides the usual ones.

        What looks into a running model, and an error that a worker raises, need the worker in the
        engine's own process.
        """
        inside = any(step["kind"] != "generate" or step.get("mutant") for step in steps)
        apart = device == "cpu" and WORKERS_APART[0] <= release < WORKERS_APART[1]
        if apart and not self.served and self.workers == 1 and (inside or self.refusals):
            return {"distributed_executor_backend": IN_PROCESS, **self.extra}
        return dict(self.extra)

    def variables(self, device: str) -> dict[str, str]:
        """Return the variables that the run needs besides the usual ones."""
        if device != "cpu" or self.workers < 2:
            return dict(self.environment)
        # vLLM binds workers to NUMA nodes of their own, which a small machine has not got.
        cores = usable_cores()
        half = len(cores) // 2
        halves = (cores[:half], cores[half:])
        bound = "|".join(",".join(map(str, half)) for half in halves)
        return {"VLLM_CPU_OMP_THREADS_BIND": bound, **self.environment}

    def check(self, probe: Probe, step: StepResult, golden: Golden) -> Check:
        """Return the verdict on one probe."""
        if self.refusals:
            refused = any(text in step.error for text in self.refusals)
            told = step.error or "the engine did not refuse"
            finding = Finding("" if refused else told, step.error)
        elif step.error:
            finding = Finding(step.error)
        else:
            finding = probe.judge(self.variant, step, golden)
        verdict = Verdict.FAILED if finding.problem else Verdict.PASSED
        detail = finding.problem or finding.figure
        return Check(self.name, probe.name, verdict, detail, round(step.seconds, 2))


def usable_cores() -> list[int]:
    """Return the cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def asks(case: Case, judge: Judge, *, name: str = "", mutant: str = "") -> Probe:
    """Return the probe that gives a case to the engine in one batch."""
    label = name or case.name

    def step(_checkpoint: Path) -> Mapping[str, Any]:
        return {
            "kind": "generate",
            "name": label,
            "mutant": mutant,
            "new_tokens": case.new_tokens,
            "prompts": [prompt.document() for prompt in case.prompts],
        }

    return Probe(label, step, judge)


def drafts_alone(name: str, judge: Judge, *, swap: bool = False) -> Probe:
    """Return the probe that holds the drafter against the plain one."""

    def step(checkpoint: Path) -> Mapping[str, Any]:
        return {
            "kind": "drafter",
            "name": name,
            "swap": swap,
            "vocabulary": tokenizer.VOCABULARY,
            "checkpoint": str(checkpoint),
            # No case starts like this, so nothing of it is in a prefix cache.
            "text": f"{name}: {CASES[0].prompts[0].text}",
        }

    return Probe(name, step, judge)


def drafts_by_default(judge: Judge) -> Probe:
    """Return the probe that asks for drafts and leaves their number out."""
    step = {"kind": "default drafts", "name": "default drafts"}
    return Probe("default drafts", lambda _checkpoint: step, judge)


def measures(judge: Judge) -> Probe:
    """Return the probe that compares embeddings and first-token logits with transformers'."""

    def step(_checkpoint: Path) -> Mapping[str, Any]:
        documents = [prompt.document() for prompt in numeric.PROMPTS]
        return {"kind": "numbers", "name": "numbers", "prompts": documents}

    return Probe("numbers", step, judge)


ALL = Case("all", all_prompts(CASES))
ACCEPTANCE = Case(
    "acceptance",
    (Prompt("first", "[|user|]\nWhich is the first"), Prompt("second", "There are two")),
    # One token from the prompt, then whole drafts of three and the token after them.
    new_tokens=25,
)
SPECULATIVE = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}
REPEATED = (
    asks(LONG, golden_tokens),
    asks(LONG, golden_tokens_cached, name="long again"),
)
GENERATIONS = tuple(asks(case, golden_tokens) for case in CASES)
RUNS = (
    Run(
        "published",
        Variant(Shape.PUBLISHED),
        (
            *GENERATIONS,
            *REPEATED,
            measures(numbers_close),
            drafts_alone("drafter", close_to_reference),
            drafts_by_default(one_draft_by_default),
        ),
        extra={"enable_prefix_caching": True},
    ),
    Run("saved", Variant(Shape.SAVED), (asks(ALL, golden_tokens),)),
    Run(
        "extra layer type",
        Variant(Shape.PUBLISHED, extra_layer_type=True),
        (asks(ALL, golden_tokens),),
    ),
    Run(
        "mtp",
        # The saved shape has vocabulary and hidden sizes in its text part alone.
        Variant(Shape.SAVED),
        (*(asks(case, golden_tokens_drafted) for case in CASES), *REPEATED),
        extra={**SPECULATIVE, "enable_prefix_caching": True},
        speculates=True,
    ),
    Run(
        "mtp accepting",
        Variant(Shape.PUBLISHED, Weights.ACCEPTING),
        (asks(ACCEPTANCE, all_accepted),),
        extra=SPECULATIVE,
        speculates=True,
    ),
    Run(
        "mtp one token",
        Variant(Shape.PUBLISHED, extra_layer_type=True),
        (asks(ALL, golden_tokens_drafted),),
        extra={"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}},
        speculates=True,
    ),
    Run(
        "mtp weights missing",
        Variant(Shape.PUBLISHED, Weights.UNDRAFTED),
        (asks(CASES[0], golden_tokens),),
        extra=SPECULATIVE,
        speculates=True,
        # Ours, and the loader's own check where upstream has the drafter.
        refusals=("no 'mtp.*' tensors", "not initialized from checkpoint"),
    ),
)
# Each is a mistake that a port can make; the child knows how to make it in a loaded model. Images
# trade places in a case of its own, where they have one size.
MUTANTS = {
    "rope on global layers": ALL,
    "vision window off": ALL,
    "key/value groups swapped": ALL,
    "normalisation skipped": ALL,
    "images in reverse order": next(case for case in CASES if case.name == "images"),
}
# What the default runs leave out: modes in which users run the model.
MODE_RUNS = (
    Run(
        "bfloat16",
        Variant(Shape.PUBLISHED),
        (measures(numbers_reported),),
        extra={"dtype": "bfloat16"},
    ),
    Run(
        "language only",
        Variant(Shape.PUBLISHED),
        (asks(CASES[0], golden_tokens),),
        extra={"limit_mm_per_prompt": {"image": 0, "video": 0}},
    ),
    Run(
        "chunked prefill",
        Variant(Shape.PUBLISHED),
        GENERATIONS,
        extra={"enable_chunked_prefill": True, "max_num_batched_tokens": 64},
    ),
    Run(
        "tensor parallel 2",
        Variant(Shape.PUBLISHED),
        GENERATIONS,
        extra={"tensor_parallel_size": 2},
        workers=2,
    ),
    Run(
        "encoder data parallel 2",
        Variant(Shape.PUBLISHED),
        GENERATIONS,
        extra={"tensor_parallel_size": 2, "mm_encoder_tp_mode": "data"},
        workers=2,
    ),
    Run(
        "mtp default number",
        Variant(Shape.PUBLISHED),
        (asks(ALL, golden_tokens_drafted),),
        # Without a number of tokens, the config's count of MTP layers decides: one.
        extra={"speculative_config": {"method": "mtp"}},
        speculates=True,
    ),
    Run("compiled", Variant(Shape.PUBLISHED), GENERATIONS, extra={"enforce_eager": False}),
    Run(
        "second model runner",
        Variant(Shape.PUBLISHED),
        GENERATIONS,
        since="0.23.0",
        lacks_on_cpu="Model Runner V2 requires Triton",
        environment={"VLLM_USE_V2_MODEL_RUNNER": "1"},
    ),
)
MUTANT_RUNS = (
    Run(
        "mutants",
        Variant(Shape.PUBLISHED),
        (
            asks(ALL, golden_tokens, name="no mutant"),
            *(asks(case, noticed, name=name, mutant=name) for name, case in MUTANTS.items()),
            drafts_alone("no drafter mutant", close_to_reference),
            drafts_alone("drafter inputs swapped", far_from_reference, swap=True),
        ),
        # Cached keys and values would be those of another mutant.
        extra={"enable_prefix_caching": False},
    ),
    Run(
        "mutant window",
        Variant(Shape.PUBLISHED, window=4096),
        (asks(ALL, noticed, name="sliding window off"),),
    ),
)
