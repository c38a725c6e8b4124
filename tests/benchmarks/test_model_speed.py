"""The overlay's modules against upstream's own: at most 1.05 times the processor time.

pytest-benchmark cannot reach into an engine environment; the child process measures instead, one
call of each module in turn.
"""

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.carried_wheel import carried_wheel
from tools.cli.common import note
from tools.smoke import tokenizer
from tools.smoke.cases import LONG
from tools.smoke.checkpoint import Variant, write_checkpoint
from tools.smoke.engine import engine_arguments, variables
from tools.smoke.environment import engine_plan, environment
from tools.smoke.jobs import run_job
from tools.smoke.runs import usable_cores
from tools.upstream.index import Index

pytestmark = [pytest.mark.network, pytest.mark.engine]
ROOT = Path(__file__).parents[2]
CHILD = ROOT / "tools" / "smoke" / "children" / "speed_child.py"
# Upstream has the model, and the overlay is measured beside it.
RELEASE = "v0.32.0"
LIMIT = 1.05
# Patches of each picture, in height and width: a small one and a wide one, of several windows.
GRIDS = [[10, 14], [4, 40]]
STEPS = (
    {"name": "tiny tower", "kind": "tower", "published": False, "turns": 200},
    {"name": "published tower", "kind": "tower", "published": True, "turns": 30},
    {"name": "drafter", "kind": "drafter", "turns": 300},
)


@pytest.fixture(scope="module")
def measured(
    shared_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, Any]]:
    wheel = carried_wheel(RELEASE, tmp_path_factory.mktemp("build"), shared_cache).wheel
    index = Index.configured(shared_cache, note)
    plan = engine_plan(RELEASE, device="cpu", wheel=wheel, transformers="release", index=index)
    checkpoint = write_checkpoint(Variant(), shared_cache / "checkpoints")
    common = {
        "overlay": str(ROOT / "vllm_exaone"),
        "grids": GRIDS,
        "checkpoint": str(checkpoint),
        "vocabulary": tokenizer.VOCABULARY,
        "text": LONG.prompts[0].text,
    }
    with environment(plan, shared_cache, note) as place:
        outcome = run_job(
            place.python,
            CHILD,
            {
                "engine": engine_arguments(str(checkpoint), "cpu"),
                "steps": [{**step, **common} for step in STEPS],
            },
            env={**variables(place), "VLLM_CPU_OMP_THREADS_BIND": str(usable_cores()[0])},
            timeout=3600,
        )
    assert outcome.result is not None, outcome.log[-4000:]
    steps: Mapping[str, Mapping[str, Any]] = outcome.result["steps"]
    return steps


@pytest.mark.timeout(4500)
@pytest.mark.parametrize("name", [step["name"] for step in STEPS])
def test_the_overlay_is_as_fast_as_upstream(
    measured: Mapping[str, Mapping[str, Any]], name: str, record_property: Any
) -> None:
    found = measured[name]
    upstream, ours = found["spent"][0::2], found["spent"][1::2]
    # Whatever else the machine does hits both calls of a pair.
    ratio = statistics.median(o / u for o, u in zip(ours, upstream, strict=True))
    figures = {
        "median of a pair's ratio": ratio,
        "ratio of medians": statistics.median(ours) / statistics.median(upstream),
        "ratio of the fastest": min(ours) / min(upstream),
        "upstream, ms": 1000 * statistics.median(upstream),
    }
    for figure, value in figures.items():
        record_property(figure, round(value, 4))
    # Other numbers would be another computation, whose speed says nothing.
    assert found["difference"] < 1e-5
    assert ratio <= LIMIT, figures
