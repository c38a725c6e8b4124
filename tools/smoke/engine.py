"""One vLLM engine in its environment: how it is started, what it answered, what stopped it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tools.smoke.environment import Environment
from tools.smoke.jobs import Outcome, Server

CHILD = Path(__file__).with_name("children") / "engine_child.py"
START_SECONDS = 1500.0
# The child's exit status when a step raised and its error is in the result.
STEP_FAILED = 3
ERROR_LENGTH = 240
# The worker in the engine's own process, by a name that the CPU platform of v0.20.0 to v0.22.1
# does not replace: there it puts every worker into another process.
IN_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
# One process, no network, no telemetry; the CPU engine's cache is sized in GB.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
VARIABLES = {
    **OFFLINE,
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


@dataclass(frozen=True)
class Answered:
    """What the engine made of one prompt."""

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class StepResult:
    """What came of one step.

    Attributes:
        answers: By prompt name; empty when the step failed.
        counters: How far each counter of drafts and cache hits went up.
        data: What a step that is no generation found.
        error: The one line that says why it failed, or "".
        skipped: Why it could not run here at all, or "".
        seconds: How long it took.
    """

    answers: Mapping[str, Answered] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    skipped: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class EngineRun:
    """What came of the steps given to one engine.

    Attributes:
        steps: By step name; a step that could not run has the error that prevented it.
        versions: Versions of vLLM, transformers and torch in the environment.
        start_seconds: How long the (first) start took.
        log: The last run's log.
    """

    steps: Mapping[str, StepResult]
    versions: Mapping[str, str]
    start_seconds: float
    log: str


@dataclass(frozen=True)
class Needs:
    """What a GPU machine must have; where it has less, nothing is started and steps are skipped.

    Attributes:
        weight_bytes: Size of the weights, that free memory has to exceed by ``headroom``.
        hub_id: Where the weights lie on the hub: it is asked for their size.
        headroom: How much memory a model takes for each byte of weights.
        devices: How many GPUs.
    """

    weight_bytes: int = 0
    hub_id: str = ""
    headroom: float = 1.15
    devices: int = 1


class Starter(Protocol):
    """What starts an engine for each job."""

    def run(
        self, job: Mapping[str, Any], *, env: Mapping[str, str] | None = None, timeout: float
    ) -> Outcome:
        """Do one job and return its outcome."""
        ...


def engine_arguments(checkpoint: str, device: str, **extra: Any) -> dict[str, Any]:
    """Return the arguments of ``vllm.LLM`` for the tiny checkpoint.

    Args:
        checkpoint: A directory, or a model id.
        device: ``cpu`` or ``cuda``. On the CPU, compilation is off, for it takes minutes; on CUDA
            compilation, graphs and attention backends are the release's own choice.
        extra: Arguments to add or replace.
    """
    arguments: dict[str, Any] = {
        "model": checkpoint,
        "dtype": "float32",
        "max_model_len": 1024,
        "max_num_seqs": 8,
        "limit_mm_per_prompt": {"image": 5, "video": 2},
        "disable_log_stats": False,
        "seed": 0,
    }
    arguments |= {"enforce_eager": True} if device == "cpu" else {"gpu_memory_utilization": 0.4}
    return arguments | extra


def variables(place: Environment, *, online: bool = False) -> dict[str, str]:
    """Return the variables of an engine: what it compiles goes away with its environment.

    Args:
        place: The environment.
        online: Whether it may ask the hub. The hub's client reads that when it is imported.
    """
    kept = place.root / "caches"
    directories = {
        "VLLM_CACHE_ROOT": kept / "vllm",
        "TORCHINDUCTOR_CACHE_DIR": kept / "inductor",
        "TRITON_CACHE_DIR": kept / "triton",
    }
    usual = {**VARIABLES, **{name: str(path) for name, path in directories.items()}}
    return {name: value for name, value in usual.items() if not (online and name in OFFLINE)}


def engines(place: Environment, device: str, *, online: bool = False) -> Server:
    """Return the server that starts engines in an environment.

    On the CPU it imports vLLM once for all of them. A process that has touched CUDA must not be
    forked, and importing vLLM may touch it.
    """
    preload = ("vllm",) if device == "cpu" else ()
    return Server(place.python, CHILD, preload=preload, env=variables(place, online=online))


def run_engine(
    server: Starter,
    arguments: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    *,
    timeout: float = START_SECONDS,
    needs: Needs | None = None,
    more: Mapping[str, str] | None = None,
) -> EngineRun:
    """Start an engine and run the steps, with a new start after a step that failed.

    Args:
        server: Starts engines.
        arguments: Of ``vllm.LLM``.
        steps: Steps in the form of the child script, each with a name of its own.
        timeout: Seconds for each start with its steps.
        needs: What the GPU must have, None where none is used.
        more: Variables to set besides the usual ones.
    """
    waiting, needed = list(steps), asdict(needs) if needs else None
    done: dict[str, StepResult] = {}
    versions: Mapping[str, str] = {}
    start_seconds = 0.0
    log = ""
    while waiting:
        job = {"engine": dict(arguments), "steps": waiting, "needs": needed}
        outcome = server.run(job, env=more, timeout=timeout)
        result = outcome.result or {"versions": versions, "start": {}, "steps": {}}
        versions, log = result["versions"], outcome.log
        done |= {name: _step(answer) for name, answer in result["steps"].items()}
        waiting = [step for step in waiting if step["name"] not in done]
        started = "seconds" in result["start"]
        if started:
            start_seconds = start_seconds or result["start"]["seconds"]
        if result["start"].get("skipped"):
            reason = result["start"]["skipped"]
            done |= {step["name"]: StepResult(skipped=reason) for step in waiting}
            break
        if not waiting or (started and outcome.status == STEP_FAILED):
            continue
        error = shorten(result["start"].get("error") or _cause(outcome, timeout))
        # An engine that does not start fails every step; one that dies, the step it died in.
        for step in waiting[:1] if started else waiting:
            done[step["name"]] = StepResult(error=error)
        waiting = waiting[1:] if started else []
    return EngineRun(done, versions, start_seconds, log)


def _cause(outcome: Outcome, timeout: float) -> str:
    if outcome.status is None:
        return f"no result after {timeout:.0f} s"
    if outcome.status < 0:
        return f"ended by signal {-outcome.status}: {outcome.last_error}"
    return f"exit status {outcome.status}: {outcome.last_error}"


def _step(answer: Mapping[str, Any]) -> StepResult:
    return StepResult(
        answers={
            name: Answered(tuple(entry["prompt_ids"]), tuple(entry["tokens"]))
            for name, entry in answer.get("prompts", {}).items()
        },
        counters=answer.get("counters", {}),
        data=answer.get("data", {}),
        error=shorten(answer.get("error", "")),
        seconds=answer["seconds"],
    )


def shorten(error: str) -> str:
    """Return an error cut at a length that fits a table."""
    return error if len(error) <= ERROR_LENGTH else error[: ERROR_LENGTH - 1] + "…"
