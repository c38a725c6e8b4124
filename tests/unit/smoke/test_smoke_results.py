import json

import pytest
from packaging.version import Version

from tools.smoke import judges, runs
from tools.smoke.checkpoint import Shape, Variant
from tools.smoke.engine import Answered, StepResult
from tools.smoke.golden import Answer, Golden
from tools.smoke.results import Check, SmokeReport, Verdict, compare_tokens
from tools.smoke.tensors import next_token

GOLDEN = Golden("5", "2", {}, {Shape.PUBLISHED: {"text": Answer((1, 2), (7, 8, 9), (1.0,) * 3)}})


def step(tokens: tuple[int, ...], prompt: tuple[int, ...] = (1, 2), **counts: float) -> StepResult:
    names = {"drafts": judges.DRAFTS, "drafted": judges.DRAFTED, "accepted": judges.ACCEPTED}
    counters = {names[short]: count for short, count in counts.items()}
    return StepResult({"text": Answered(prompt, tokens)}, counters)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((7, 8, 9), ""),
        ((7, 8, 5), "wrong tokens at 2: 5 != 9"),
        ((7, 8), "2 tokens, not 3"),
        ((), "0 tokens, not 3"),
    ],
)
def test_a_difference_says_where(found: tuple[int, ...], expected: str) -> None:
    assert compare_tokens((7, 8, 9), found) == expected


def test_other_prompt_tokens_are_a_fault_of_their_own() -> None:
    finding = judges.golden_tokens(Variant(), step((7, 8, 9), prompt=(1, 3)), GOLDEN)
    assert finding.problem == "text: in the prompt, wrong tokens at 1: 3 != 2"


def test_right_tokens_without_a_draft_are_a_fault() -> None:
    assert judges.golden_tokens_drafted(Variant(), step((7, 8, 9), drafts=0), GOLDEN).problem
    assert not judges.golden_tokens_drafted(Variant(), step((7, 8, 9), drafts=2), GOLDEN).problem


@pytest.mark.parametrize(("drafted", "accepted"), [(0, 0), (6, 5), (6, 0)])
def test_acceptance_below_one_is_a_fault(drafted: int, accepted: int) -> None:
    first = next_token(2)
    right = step((first, next_token(first)), drafted=drafted, accepted=accepted)
    assert "draft tokens accepted" in judges.all_accepted(Variant(), right, GOLDEN).problem


def test_full_acceptance_of_other_tokens_is_a_fault() -> None:
    assert (
        "wrong tokens"
        in judges.all_accepted(Variant(), step((5, 6), drafted=6, accepted=6), GOLDEN).problem
    )


def test_a_mutant_that_nothing_notices_is_a_fault() -> None:
    assert judges.noticed(Variant(), step((7, 8, 9)), GOLDEN).problem
    assert not judges.noticed(Variant(), step((7, 8, 1)), GOLDEN).problem


@pytest.mark.parametrize(
    ("error", "close", "far"), [(1e-6, True, False), (1e-3, False, False), (0.5, False, True)]
)
def test_drafter_tolerance(error: float, close: bool, far: bool) -> None:
    found = StepResult(data={"error": error, "positions": 9, "class": "X"})
    assert (judges.close_to_reference(Variant(), found, GOLDEN).problem == "") == close
    assert (judges.far_from_reference(Variant(), found, GOLDEN).problem == "") == far


@pytest.mark.parametrize(
    ("architecture", "number", "right"),
    [("Exaone4_5_MTP", 1, True), ("Exaone4_5_MTP", 3, False), ("ExaoneMoeMTP", 1, False)],
)
def test_default_drafts_are_the_models_own(architecture: str, number: int, right: bool) -> None:
    found = StepResult(data={"architectures": [architecture], "number": number})
    assert (judges.one_draft_by_default(Variant(), found, GOLDEN).problem == "") == right


def test_a_step_that_raised_fails_with_its_line() -> None:
    run = runs.RUNS[0]
    check = run.check(run.probes[0], StepResult(error="TypeError: x"), GOLDEN)
    assert (check.verdict, check.detail) == (Verdict.FAILED, "TypeError: x")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("ValueError: no 'mtp.*' tensors", Verdict.PASSED),
        ("ValueError: weights were not initialized from checkpoint", Verdict.PASSED),
        ("KeyError: x", Verdict.FAILED),
        ("", Verdict.FAILED),
    ],
)
def test_a_refusal_has_to_say_why(error: str, verdict: Verdict) -> None:
    run = next(run for run in runs.RUNS if run.refusals)
    check = run.check(run.probes[0], StepResult(error=error), GOLDEN)
    assert (check.verdict, bool(check.detail)) == (verdict, True)


def test_old_cpu_runners_skip_speculation_and_cuda_does_not() -> None:
    mtp = next(run for run in runs.RUNS if run.name == "mtp")
    assert "refuses speculative" in mtp.unable(Version("0.19.1"), "cpu")
    assert mtp.unable(Version("0.20.0"), "cpu") == ""
    assert mtp.unable(Version("0.19.1"), "cuda") == ""
    assert runs.RUNS[0].unable(Version("0.13.0"), "cpu") == ""


def test_two_workers_are_bound_to_their_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    run = next(run for run in runs.MODE_RUNS if run.name == "tensor parallel 2")
    monkeypatch.setattr(runs, "usable_cores", lambda: [2, 5, 7])
    assert run.variables("cpu") == {"VLLM_CPU_OMP_THREADS_BIND": "2|5,7"}
    assert run.variables("cuda") == {}
    assert runs.RUNS[0].variables("cpu") == {}
    monkeypatch.setattr(runs, "usable_cores", lambda: [2])
    assert "needs 2 cores" in run.unable(Version("0.32.0"), "cpu")


def test_a_run_sets_what_a_user_would_set_on_each_device() -> None:
    run = next(run for run in runs.MODE_RUNS if run.name == "second model runner")
    assert [run.variables(device) for device in ("cpu", "cuda")] == [dict(run.environment)] * 2
    assert run.environment == {"VLLM_USE_V2_MODEL_RUNNER": "1"}


def report(*verdicts: Verdict) -> SmokeReport:
    checks = tuple(Check("run", str(place), verdict) for place, verdict in enumerate(verdicts))
    return SmokeReport("v1.0.0", "cpu", False, "w.whl", "00", {}, checks, 1.0)


def test_nothing_checked_is_not_passed() -> None:
    assert not report().passed
    assert not report(Verdict.SKIPPED).passed
    assert not report(Verdict.PASSED, Verdict.FAILED).passed
    assert report(Verdict.PASSED, Verdict.SKIPPED).passed


def test_json_holds_every_check() -> None:
    document = json.loads(json.dumps(report(Verdict.PASSED, Verdict.FAILED).to_json()))
    assert [check["verdict"] for check in document["checks"]] == ["passed", "failed"]
    assert document["passed"] is False


def test_probe_names_are_unique_within_a_run() -> None:
    for run in (*runs.RUNS, *runs.MODE_RUNS, *runs.MUTANT_RUNS):
        names = [probe.name for probe in run.probes]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("release", "device", "step", "apart"),
    [
        ("0.22.1", "cpu", {"kind": "numbers"}, True),
        ("0.22.1", "cpu", {"kind": "generate", "mutant": "window off"}, True),
        ("0.22.1", "cpu", {"kind": "generate", "mutant": ""}, False),
        ("0.23.0", "cpu", {"kind": "drafter"}, False),
        ("0.19.1", "cpu", {"kind": "drafter"}, False),
        ("0.20.0", "cuda", {"kind": "drafter"}, False),
    ],
)
def test_who_looks_into_the_model_has_the_worker_in_its_process(
    release: str, device: str, step: dict[str, str], *, apart: bool
) -> None:
    run = runs.RUNS[0]
    arguments = run.engine(Version(release), device, [step])
    assert ("distributed_executor_backend" in arguments) == apart
    assert arguments.items() >= run.extra.items()


def test_an_expected_refusal_is_raised_in_the_engines_process() -> None:
    run = next(run for run in runs.RUNS if run.refusals)
    assert "distributed_executor_backend" in run.engine(
        Version("0.20.0"), "cpu", [{"kind": "generate"}]
    )
