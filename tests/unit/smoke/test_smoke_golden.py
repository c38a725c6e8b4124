import dataclasses
from pathlib import Path

import pytest

from tools.errors import BadInput, CheckFailed
from tools.smoke import golden
from tools.smoke.cases import CASES, Frames, all_prompts
from tools.smoke.checkpoint import Shape
from tools.smoke.tensors import VISION

FILE = Path(__file__).parents[3] / "tests" / "golden" / "tokens.json"


@pytest.fixture(scope="module")
def checked_in() -> golden.Golden:
    return golden.load(FILE)


def test_checked_in_file_is_what_dump_writes(checked_in: golden.Golden) -> None:
    assert golden.dump(checked_in) == FILE.read_bytes()


def test_every_golden_token_has_a_margin_above_the_floor(checked_in: golden.Golden) -> None:
    golden.check_margins(checked_in)
    for answers in checked_in.answers.values():
        assert all(len(a.margins) == len(a.tokens) for a in answers.values())


def test_a_margin_below_the_floor_is_refused(checked_in: golden.Golden) -> None:
    answer = golden.Answer((1,), (2,), (golden.MARGIN_FLOOR / 2,))
    thin = dataclasses.replace(checked_in, answers={Shape.PUBLISHED: {"text": answer}})
    with pytest.raises(CheckFailed, match="prompt text"):
        golden.check_margins(thin)


def test_another_checkpoint_makes_the_file_stale(checked_in: golden.Golden) -> None:
    stale = dataclasses.replace(checked_in, checkpoints=dict.fromkeys(Shape, "0" * 64))
    with pytest.raises(CheckFailed, match="another checkpoint"):
        stale.check_current()


def test_a_missing_answer_makes_the_file_stale(checked_in: golden.Golden) -> None:
    fewer = {shape: dict(list(a.items())[1:]) for shape, a in checked_in.answers.items()}
    with pytest.raises(CheckFailed, match="other cases"):
        dataclasses.replace(checked_in, answers=fewer).check_current()


def test_shapes_have_the_same_answers(checked_in: golden.Golden) -> None:
    assert checked_in.answers[Shape.PUBLISHED] == checked_in.answers[Shape.SAVED]


def test_no_two_prompts_have_the_same_answer(checked_in: golden.Golden) -> None:
    answers = [answer.tokens for answer in checked_in.answers[Shape.PUBLISHED].values()]
    assert len(set(answers)) == len(answers)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"transformers": 1}'])
def test_a_file_that_is_none_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tokens.json"
    file.write_bytes(content)
    with pytest.raises(BadInput, match="no golden file"):
        golden.load(file)


def test_pictures_are_larger_than_a_vision_window() -> None:
    for prompt in all_prompts():
        for frames in (*prompt.images, *prompt.videos):
            assert max(frames.height, frames.width) > VISION.window


def test_pixels_follow_from_the_seed_and_fill_every_frame() -> None:
    clip = Frames("a", 30, 40, 2)
    assert clip.pixels() == Frames("a", 30, 40, 2).pixels()
    assert clip.pixels() != Frames("b", 30, 40, 2).pixels()
    assert len(clip.pixels()) == 2 * 30 * 40 * 3


def test_two_images_have_one_size_so_that_they_can_trade_places() -> None:
    (prompt,) = next(case for case in CASES if case.name == "images").prompts
    left, right = prompt.images
    assert (left.height, left.width) == (right.height, right.width)
