import contextlib
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tools.errors import BadInput, CheckFailed
from tools.smoke import judges, numeric, run_sets, smoke
from tools.smoke.checkpoint import Shape, Variant, Weights
from tools.smoke.engine import EngineRun, StepResult
from tools.smoke.environment import Environment, Plan
from tools.smoke.golden import load
from tools.smoke.runs import Run

ROOT = Path(__file__).parents[3]
GOLDEN = smoke.load_golden(ROOT)
RUNS = [*run_sets.CHECKPOINT_RUNS, *run_sets.SERVED_RUNS]


def run(name: str) -> Run:
    return next(run for run in RUNS if run.name == name)


def test_an_unknown_set_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(BadInput, match="'other' is no set of runs") as caught:
        run_sets.run_set("other")
    assert "checkpoints, served" in caught.value.hint
    assert run_sets.run_set("served") is run_sets.SERVED_RUNS


def test_run_and_probe_names_are_unique_in_each_set() -> None:
    for runs in run_sets.RUN_SETS.values():
        assert len({run.name for run in runs}) == len(runs)
        for one in runs:
            assert len({probe.name for probe in one.probes}) == len(one.probes)


def test_drafting_runs_and_late_features_are_skipped_where_they_cannot_be() -> None:
    old, new = Version("0.19.1"), Version("0.32.0")
    for one in RUNS:
        cannot = "speculative_config" in one.extra or one.variant.quantised
        assert bool(one.unable(old, "cpu")) == cannot
        assert one.unable(new, "cpu") == ""
    assert run("encoder only").unable(Version("0.13.0"), "cpu").startswith("v0.14.0 is the first")


def test_the_tied_checkpoint_is_judged_by_its_own_answers() -> None:
    for shape in Shape:
        tied = GOLDEN.known(Variant(shape, Weights.TIED))
        plain = GOLDEN.known(Variant(shape))
        assert tied.keys() == plain.keys()
        assert all(tied[name].prompt_ids == plain[name].prompt_ids for name in tied)
        assert all(tied[name].tokens != plain[name].tokens for name in tied)


def test_every_request_of_a_served_run_goes_to_a_checkpoint_with_a_template() -> None:
    for one in run_sets.SERVED_RUNS:
        assert one.served
        assert one.variant.chat
        for probe in one.probes:
            step: Any = probe.step(Path("/nowhere"))
            assert step["requests"]
            assert (step["kind"], step["name"]) == ("chat", probe.name)


def test_scripts_are_asked_whole_and_streamed_with_and_without_thought_and_call() -> None:
    whole, streamed = (probe.step(Path()) for probe in run("served script").probes)
    assert list(whole["requests"]) == list(streamed["requests"])
    assert list(whole["requests"]) == [
        "thinks", "thinks and calls", "answers", "answers and calls", "after a call",
    ]  # fmt: skip
    assert {r["stream"] for r in whole["requests"].values()} == {False}
    assert {r["stream"] for r in streamed["requests"].values()} == {True}


def numbers(embeddings: float, logits: float) -> StepResult:
    """Return golden numbers, each off by these relative errors."""

    def off(values: tuple[float, ...], error: float) -> list[float]:
        return [value * (1 + error) for value in values]

    return StepResult(
        data={
            name: {
                "embeddings": off(expected.embeddings, embeddings),
                "logits": off(expected.logits, logits),
            }
            for name, expected in GOLDEN.numbers.items()
        }
    )


@pytest.mark.parametrize(
    ("embeddings", "logits", "good"),
    [(0.0, 0.2, True), (0.0, 1.4, False), (2 * numeric.TOLERANCE, 0.0, False)],
)
def test_quantised_logits_may_be_off_and_embeddings_may_not(
    embeddings: float, logits: float, good: bool
) -> None:
    finding = judges.numbers_of_quantised(Variant(), numbers(embeddings, logits), GOLDEN)
    assert (finding.problem == "") == good


def test_an_encoder_alone_is_judged_by_its_embeddings() -> None:
    step = numbers(0.0, 0.0)
    for entry in step.data.values():
        entry["logits"] = []
    assert judges.embeddings_close(Variant(), step, GOLDEN).problem == ""
    assert judges.embeddings_close(Variant(), numbers(0.1, 0.0), GOLDEN).problem


def test_served_runs_get_servers_and_the_others_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starters: list[str] = []

    @contextlib.contextmanager
    def place(*_a: object, **_k: object) -> Any:
        yield Environment(Path("/nowhere"), "ab")

    @contextlib.contextmanager
    def engines(*_a: object, **_k: object) -> Any:
        yield "engines"

    def execute(run: Run, starter: object, *_: object) -> EngineRun:
        starters.append(starter if isinstance(starter, str) else type(starter).__name__)
        return EngineRun({p.name: StepResult(error="not asked") for p in run.probes}, {}, 0.0, "")

    monkeypatch.setattr(smoke, "environment", place)
    monkeypatch.setattr(smoke, "engines", engines)
    monkeypatch.setattr(smoke, "execute", execute)
    monkeypatch.setattr(smoke, "engine_plan", lambda *_a, **_k: Plan("v", "p", ("/w/x.whl",), "a"))
    smoke.smoke(
        "v0.32.0",
        wheel=None,
        device="cpu",
        root=ROOT,
        cache=tmp_path,
        runs=(run("lora"), run("served")),
    )
    assert starters == ["engines", "Servers"]


def test_golden_answers_of_another_checkpoint_are_stale() -> None:
    tied = load(ROOT / "tests" / "golden" / "tied.json")
    tied.check_current(Weights.TIED)
    with pytest.raises(CheckFailed, match="of another checkpoint"):
        tied.check_current()
