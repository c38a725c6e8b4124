"""Engine environments as real wheels and upload dates ask for them, and the reference itself."""

import itertools
import sys
from pathlib import Path

import pytest

from tools.smoke import golden, numeric
from tools.smoke.checkpoint import Shape
from tools.smoke.environment import engine_plan
from tools.smoke.reference import NUMBERS_FILE, TIED_FILE, TOKENS_FILE, write_reference
from tools.upstream.index import Index

pytestmark = pytest.mark.network
ROOT = Path(__file__).parents[2]


def quiet(_line: str) -> None:
    pass


@pytest.mark.parametrize(
    ("release", "torch", "before"),
    [("v0.13.0", "2.9.1", "2025-12-20"), ("v0.32.0", "2.13.0", "2026-10-19")],
)
@pytest.mark.skipif(sys.platform != "linux", reason="the CPU wheels are Linux's")
def test_a_stock_cpu_wheel_gets_its_torch_and_its_time(
    real_releases: Path, release: str, torch: str, before: str
) -> None:
    index = Index.configured(real_releases, quiet)
    plan = engine_plan(release, device="cpu", wheel=None, transformers="release", index=index)
    assert plan.overrides[0] == f"torch=={torch}"
    assert len(plan.overrides) == 3
    assert plan.before == f"{before}T00:00:00Z"
    assert Path(plan.requirements[0]).is_file()
    assert len(plan.wheel_sha256) == 64


@pytest.mark.engine
def test_transformers_still_answers_what_the_golden_files_say(
    real_releases: Path, tmp_path: Path
) -> None:
    write_reference(tmp_path, real_releases, quiet)
    for file, shape in itertools.product((TOKENS_FILE, TIED_FILE), Shape):
        kept, made = (golden.load(root / file).answers[shape] for root in (ROOT, tmp_path))
        for name, answer in kept.items():
            again = made[name]
            assert (again.prompt_ids, again.tokens) == (answer.prompt_ids, answer.tokens)
            assert again.margins == pytest.approx(answer.margins, abs=1e-3)
    numbers, anew = (numeric.load(root / NUMBERS_FILE).numbers for root in (ROOT, tmp_path))
    for name, expected in numbers.items():
        assert numeric.relative_error(expected.embeddings, anew[name].embeddings) < 1e-5
        assert numeric.relative_error(expected.logits, anew[name].logits) < 1e-5
