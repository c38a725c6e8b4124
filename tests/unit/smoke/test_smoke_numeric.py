import dataclasses
import math
from pathlib import Path

import pytest

from tools.errors import BadInput, CheckFailed
from tools.smoke import judges, numeric
from tools.smoke.checkpoint import Variant
from tools.smoke.engine import StepResult
from tools.smoke.golden import Golden
from tools.smoke.numeric import Numbers
from tools.smoke.tensors import VISION

FILE = Path(__file__).parents[3] / "tests" / "golden" / "numbers.json"
KEPT = numeric.load(FILE)


def found(factor: float) -> tuple[StepResult, Golden]:
    data = {
        name: {"embeddings": [v * factor for v in n.embeddings], "logits": list(n.logits)}
        for name, n in KEPT.numbers.items()
    }
    return StepResult(data=data), Golden("5", "2", {}, {}, KEPT.numbers)


def test_checked_in_numbers_are_current_and_what_dump_writes() -> None:
    KEPT.check_current()
    assert numeric.dump(KEPT) == FILE.read_bytes()


@pytest.mark.parametrize("change", [{"checkpoint": "0" * 64}, {"numbers": {}}])
def test_other_checkpoint_or_prompts_make_them_stale(change: dict[str, object]) -> None:
    with pytest.raises(CheckFailed, match="golden numbers"):
        dataclasses.replace(KEPT, **change).check_current()


def test_each_media_token_has_its_eight_projections() -> None:
    pixels = (VISION.patch * VISION.merge) ** 2
    for prompt in numeric.PROMPTS:
        rows = sum(f.height * f.width // pixels for f in prompt.images)
        rows += sum(f.height * f.width // pixels * f.frames // 2 for f in prompt.videos)
        assert len(KEPT.numbers[prompt.name].embeddings) == 8 * rows


@pytest.mark.parametrize(
    ("expected", "values", "error"),
    [
        ((3.0, 4.0), (3.0, 4.0), 0.0),
        ((3.0, 4.0), (3.0, 4.5), 0.1),
        ((3.0, 4.0), (3.0,), math.inf),
        ((3.0, 4.0), (3.0, math.nan), math.inf),
        ((), (), math.inf),
    ],
)
def test_relative_error(
    expected: tuple[float, ...], values: tuple[float, ...], error: float
) -> None:
    assert numeric.relative_error(expected, values) == pytest.approx(error)


def test_numbers_beyond_the_tolerance_fail_in_float32_and_are_told_in_bfloat16() -> None:
    for factor, close in ((1.0, True), (1 + 2 * numeric.TOLERANCE, False)):
        step, golden = found(factor)
        assert (judges.numbers_close(Variant(), step, golden).problem == "") == close
        reported = judges.numbers_reported(Variant(), step, golden)
        assert reported.problem == ""
        assert "embeddings" in reported.figure


def test_numbers_that_are_none_fail_even_in_bfloat16() -> None:
    step, golden = found(math.nan)
    assert "inf" in judges.numbers_reported(Variant(), step, golden).problem


@pytest.mark.parametrize("content", [b"", b"{}", b'{"numbers": {"a": {}}}', b"[]"])
def test_a_file_of_no_numbers_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "numbers.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match="no golden numbers"):
        numeric.load(file)


def test_parse_keeps_the_order() -> None:
    assert numeric.parse({"embeddings": [2, 1], "logits": [3]}) == Numbers((2, 1), (3,))
