"""The sets of runs by name: the usual one, modes, kinds of checkpoints, the served API, mutants."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.errors import BadInput
from tools.smoke import served
from tools.smoke.checkpoint import Shape, Variant, Weights
from tools.smoke.judges import (
    all_accepted,
    close_to_reference,
    embeddings_close,
    golden_tokens,
    golden_tokens_drafted,
    numbers_of_quantised,
)
from tools.smoke.runs import (
    ACCEPTANCE,
    ALL,
    GENERATIONS,
    MODE_RUNS,
    MUTANT_RUNS,
    RUNS,
    SPECULATIVE,
    Judge,
    Probe,
    Run,
    asks,
    drafts_alone,
    measures,
)

# Before, upstream takes FP8 weights on a CPU for a case of its GPU kernels. Other quantisations
# need processors with AVX-512 there.
_FP8_ON_CPU = "0.24.0"
_LORA = {"enable_lora": True, "max_lora_rank": 8}
_DRAFTER = drafts_alone("drafter", close_to_reference)
# Checkpoints and adapters that users have besides the published one.
CHECKPOINT_RUNS = (
    Run("tied", Variant(weights=Weights.TIED), (*GENERATIONS, _DRAFTER)),
    Run(
        "tied mtp",
        Variant(Shape.SAVED, Weights.TIED),
        (asks(ALL, golden_tokens_drafted),),
        extra=SPECULATIVE,
        speculates=True,
    ),
    Run(
        "quantised",
        Variant(Shape.PUBLISHED, quantised=True),
        (measures(numbers_of_quantised), _DRAFTER),
        since=_FP8_ON_CPU,
    ),
    Run(
        "quantised mtp",
        Variant(Shape.PUBLISHED, Weights.ACCEPTING, quantised=True),
        (asks(ACCEPTANCE, all_accepted),),
        extra=SPECULATIVE,
        speculates=True,
        since=_FP8_ON_CPU,
    ),
    Run("lora", Variant(Shape.PUBLISHED), (asks(ALL, golden_tokens), _DRAFTER), extra=_LORA),
    Run(
        "lora mtp",
        Variant(Shape.SAVED),
        (asks(ALL, golden_tokens_drafted),),
        extra={**SPECULATIVE, **_LORA},
        speculates=True,
    ),
    Run(
        "encoder only",
        Variant(Shape.PUBLISHED),
        (measures(embeddings_close),),
        # An instance that encodes for others: it hands its embeddings over in a directory. It has
        # no keys and values to cache, which older releases do not see by themselves.
        extra={
            "mm_encoder_only": True,
            "enable_prefix_caching": False,
            "ec_transfer_config": {
                "ec_connector": "ECExampleConnector",
                "ec_role": "ec_producer",
                "ec_connector_extra_config": {"shared_storage_path": "embeddings"},
            },
        },
        since="0.14.0",
    ),
)


def answers(name: str, judge: Judge, requests: Mapping[str, Mapping[str, Any]]) -> Probe:
    """Return the probe that sends chat requests to a server, one after another."""

    def step(_checkpoint: Path) -> Mapping[str, Any]:
        return {"kind": "chat", "name": name, "requests": dict(requests)}

    return Probe(name, step, judge)


def _scripted(name: str, *, streamed: bool) -> Probe:
    asked = {
        f"{'thinks' if thinks else 'answers'}{' and calls' if calls else ''}": served.scripted(
            thinks=thinks, calls=calls, streamed=streamed
        )
        for thinks in (True, False)
        for calls in (False, True)
    }
    asked["after a call"] = served.scripted(
        thinks=False, calls=False, streamed=streamed, after=True
    )
    requests = {name: one.request for name, one in asked.items()}
    return answers(name, served.as_scripted(asked), requests)


_SCRIPTED = Variant(Shape.PUBLISHED, Weights.SCRIPTED, chat=True)
_SCRIPTS = (_scripted("scripted", streamed=False), _scripted("scripted stream", streamed=True))
SERVED_RUNS = (
    Run(
        "served",
        Variant(Shape.PUBLISHED, chat=True),
        (
            answers("chat", served.golden_answers, served.golden_requests(streamed=False)),
            answers("stream", served.streamed_answers, served.golden_requests(streamed=True)),
        ),
        served=True,
    ),
    Run("served script", _SCRIPTED, _SCRIPTS, served=True),
    Run("served mtp", _SCRIPTED, _SCRIPTS, extra=SPECULATIVE, speculates=True, served=True),
)
RUN_SETS = {
    "usual": RUNS,
    "modes": MODE_RUNS,
    "checkpoints": CHECKPOINT_RUNS,
    "served": SERVED_RUNS,
    "mutants": MUTANT_RUNS,
}


def run_set(name: str) -> tuple[Run, ...]:
    """Return the runs of that name.

    Raises:
        BadInput: There are none.
    """
    if name not in RUN_SETS:
        raise BadInput(f"{name!r} is no set of runs", f"one of: {', '.join(RUN_SETS)}")
    return RUN_SETS[name]
