import json

import pytest
from rich.console import Console

from tools.report.verified import (
    causes,
    symptoms,
    verified_data,
    verified_markdown,
    verified_table,
)
from tools.smoke.results import Check, Verdict
from tools.smoke.verified import Cell, CellName, CellState, Facts, Standing
from tools.smoke.verify import Verification

PASSED = Check("published", "text", Verdict.PASSED)
WRONG = [
    Check("published", case, Verdict.FAILED, f"{case}: wrong tokens at {place}: 1 != 2")
    for place, case in enumerate(("image", "video"))
]
ERROR = Check("mtp", "text", Verdict.FAILED, "TypeError: f() | g()")
SKIPPED = Check("mtp", "image", Verdict.SKIPPED, "refused")


WRONGLY = "**wrong answers to images and videos, without a word**"


def cell(*checks: Check, error: str = "") -> Cell:
    passed = not error and all(check.verdict is not Verdict.FAILED for check in checks)
    date, versions = "2026-05-04T03:02:01Z", {"transformers": "5.8.0"}
    facts = Facts("a", "b", "5.8.0")
    return Cell(facts, date, "c0ffee", "x.whl", versions, passed, 60.0, checks, error)


def found(
    release: str,
    held: Cell | None,
    *,
    kind: str = "carried",
    state: CellState = CellState.CURRENT,
    reason: str = "",
) -> Verification:
    return Verification(CellName(release, "cpu", kind, "release"), Standing(state, reason), held)


def test_wrong_tokens_are_one_cause_and_errors_are_named() -> None:
    assert causes(cell(PASSED, *WRONG, ERROR)) == "wrong tokens (2); TypeError: f() | g() (1)"
    assert causes(cell(PASSED, SKIPPED)) == ""


def test_causes_beyond_the_second_are_counted_and_long_ones_cut() -> None:
    many = [Check("r", str(n), Verdict.FAILED, f"{n}" * 200) for n in range(4)]
    told = causes(cell(*many))
    assert told.endswith("2 other causes")
    assert len(told) < 300


def test_the_cause_is_what_a_validator_says_and_not_its_preface() -> None:
    told = "p.ValidationError: 1 validation error for ModelConfig Value error, no such type"
    assert causes(cell(Check("r", "text", Verdict.FAILED, told))) == "no such type (1)"


def test_a_cell_that_could_not_run_says_why() -> None:
    assert causes(cell(error="no wheel")) == "no wheel"


def test_the_readme_table_has_stock_beside_carried() -> None:
    stock = [found("v1", cell(PASSED, *WRONG, ERROR), kind="stock")]
    carried = [found("v1", cell(PASSED, SKIPPED)), found("v2", cell(PASSED))]
    told = f"{WRONGLY}, TypeError: f() \\| g(): 1 pass, 3 fail"
    assert verified_markdown(stock, carried).splitlines() == [
        "| release | transformers | stock wheel | carried wheel |",
        "|---|---|---|---|",
        f"| v1 | 5.8.0 | {told} | 1 pass, 1 skipped |",
        "| v2 | 5.8.0 | not run | 1 pass |",
    ]


def test_a_known_fault_is_said_in_words_and_an_unknown_one_quoted() -> None:
    def failing(*details: str) -> Cell:
        return cell(*(Check("r", d, Verdict.FAILED, d) for d in details))

    number = "x.ValidationError: num_speculative_tokens must be provided with"
    assert symptoms(failing("never seen", number)) == (
        "MTP has no default number of drafts, never seen"
    )
    # Two are named, the gravest first.
    norm = "'X' object has no attribute 'input_norm'"
    size = "'Exaone4_5_Config' object has no attribute 'vocab_size'"
    assert symptoms(failing(number, size, "embeddings 1.1e+00 (five)", norm)) == (
        f"{WRONGLY}, stops at images and videos (`input_norm`)"
    )
    assert symptoms(cell(PASSED, SKIPPED)) == ""
    assert symptoms(cell(error="no wheel")) == "no wheel"


def test_a_stale_cell_counts_for_nothing_in_the_readme() -> None:
    stale = found("v1", cell(PASSED), state=CellState.STALE, reason="the wheel changed")
    (row,) = verified_markdown([], [stale]).splitlines()[2:]
    assert row.endswith("| stale (the wheel changed) |")
    assert "pass" not in row


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (found("v1", None, state=CellState.MISSING), ["v1", "missing"]),
        (found("v1", cell(PASSED, *WRONG)), ["current", "1/2/0", "wrong tokens (2)"]),
        (found("v1", cell(PASSED), state=CellState.STALE, reason="why"), ["stale", "why"]),
    ],
)
def test_the_table_and_the_data_show_each_state(item: Verification, shown: list[str]) -> None:
    console = Console(width=200, record=True)
    console.print(verified_table([item]))
    text = console.export_text()
    assert all(word in text for word in shown)
    (row,) = json.loads(json.dumps(verified_data([item])))
    assert row["state"] == item.standing.state.value
    assert row["proved"] is False


def test_what_is_current_and_passed_is_proved() -> None:
    (row,) = verified_data([found("v1", cell(PASSED))])
    assert (row["proved"], row["checks"]["passed"], row["causes"]) == (True, 1, "")
