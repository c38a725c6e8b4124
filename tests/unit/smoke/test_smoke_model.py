from pathlib import Path

import pytest

from tools.smoke import model
from tools.smoke.engine import Answered, EngineRun, StepResult
from tools.smoke.jobs import Server
from tools.smoke.judges import ACCEPTED, DRAFTED
from tools.smoke.results import Verdict

SERVER = Server(Path("/nowhere"), Path("/none.py"), preload=(), env={})

FIGURES = "3 of 4 draft tokens accepted, 2.00 times as fast"


def step(tokens: tuple[int, ...], seconds: float, **counters: float) -> StepResult:
    names = {"drafted": DRAFTED, "accepted": ACCEPTED}
    answers = {"text": Answered((1,), tokens)}
    return StepResult(answers, {names[k]: v for k, v in counters.items()}, seconds=seconds)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[StepResult]:
    """What each engine start answers to every step, in order."""
    queue: list[StepResult] = []

    def start(*_arguments: object, **_settings: object) -> EngineRun:
        found = queue.pop(0)
        return EngineRun({case.name: found for case in model.model_cases()}, {"vllm": "1"}, 1.0, "")

    monkeypatch.setattr(model, "run_engine", start)
    return queue


def verdicts(device: str = "cpu", *, speculates: bool = True) -> list[tuple[str, Verdict, str]]:
    _, checks = model.smoke_model(SERVER, "org/model", device, speculates=speculates)
    return [(c.run, c.verdict, c.detail) for c in checks if c.case == "text"]


def test_same_tokens_faster_is_reported_with_acceptance(engines: list[StepResult]) -> None:
    engines += [step((5, 6), 2.0), step((5, 6), 1.0, drafted=4, accepted=3)]
    assert verdicts() == [
        ("model", Verdict.PASSED, "2 tokens, 1.0 a second"),
        ("model mtp", Verdict.PASSED, FIGURES),
    ]


def test_other_tokens_with_drafts_are_told_beside_the_figures(engines: list[StepResult]) -> None:
    engines += [step((5, 6), 2.0), step((5, 7), 1.0, drafted=4, accepted=3)]
    assert verdicts()[1] == (
        "model mtp",
        Verdict.PASSED,
        f"{FIGURES}, without drafts other: wrong tokens at 1: 7 != 6",
    )


@pytest.mark.parametrize("counted", [{}, {"drafted": 4}])
def test_no_draft_or_none_accepted_fails(
    engines: list[StepResult], counted: dict[str, float]
) -> None:
    engines += [step((5, 6), 2.0), step((5, 6), 1.0, **counted)]
    verdict, detail = verdicts()[1][1:]
    assert verdict is Verdict.FAILED
    assert detail.startswith(f"0 of {len(counted) * 4} draft tokens accepted")


def test_a_model_that_does_not_fit_is_skipped_with_the_figure(engines: list[StepResult]) -> None:
    engines += [StepResult(skipped="needs 70.0 GiB, 40.0 GiB are free")] * 2
    assert [verdict for _, verdict, _ in verdicts("cuda")] == [Verdict.SKIPPED] * 2
    assert engines == []


def test_a_release_that_cannot_draft_is_asked_without(engines: list[StepResult]) -> None:
    engines += [step((5, 6), 2.0)]
    assert [v for _, v, _ in verdicts(speculates=False)] == [Verdict.PASSED, Verdict.SKIPPED]


def test_the_size_of_a_local_checkpoint_is_that_of_its_weights(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    (tmp_path / "config.json").write_bytes(b"{}")
    assert model.weight_bytes(str(tmp_path)) == 5
    assert model.weight_bytes("org/model") == 0


def test_only_a_name_that_is_no_directory_is_asked_of_the_hub(tmp_path: Path) -> None:
    assert [model.hub_id(m) for m in ("", str(tmp_path), "org/model")] == ["", "", "org/model"]
