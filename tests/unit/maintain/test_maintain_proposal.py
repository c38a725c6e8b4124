"""Who may merge a rebase, and how it is put to those who must look."""

from dataclasses import replace
from pathlib import Path

import pytest

from tools.carry import Carried, Outcome, PatchOutcome
from tools.contract.findings import Code, ContractReport, Finding
from tools.maintain.payload import Comparison, Line
from tools.maintain.proposal import Contracts, Proposal, Smoked, smokes_of, supported_releases
from tools.maintain.rebase import Action, Move, Rebased
from tools.merge import Conflict, Site
from tools.report.rebase import code, rebase_data, rebase_markdown, rebase_page
from tools.smoke.results import Check, Verdict
from tools.smoke.verified import Cell, CellName, Verified
from tools.upstream import Upstream, parse_ref

COMMIT = "c" * 40
CARRIED = Carried(
    Upstream(parse_ref("v1.1.0"), "u" * 40, "t" * 40, "index", "sdist", {}),
    COMMIT,
    "t" * 40,
    (),
    (),
)
SAME = Comparison("aa", "aa", (), (), (Line("-", b"old neighbour\n"),))
OTHER = Comparison("aa", "bb", (Line("+", b"x = 1\n"),), (), ())
CLEAN = PatchOutcome("0001-a", "0001-a.patch", "d", Outcome.CLEAN, "merged by text")
HALF = ContractReport((), ("m.py",), (), ("torch: the index is away",))
NAME = CellName("v1.1.0", "cpu", "carried", "release")
CELL = Cell({}, "2026-11-30T00:00:00Z", COMMIT, "w.whl", {}, True, 1.0, ())


def _proposal(
    *moves: Move, findings: tuple[Finding, ...] = (), fresh: tuple[Finding, ...] = ()
) -> Proposal:
    rebased = Rebased(CARRIED, moves or (Move(CLEAN, Action.KEPT, SAME),), {}, ("v1.0.0",))
    report = ContractReport(findings, ("m.py",))
    return Proposal(rebased, Contracts(report, "v1.0.0", fresh), (Smoked(NAME, CELL, True),))


def _finding(code: Code) -> Finding:
    return Finding(code, "m.py", 1, "a | b `c` @everyone <script>")


def _conflict(reason: str) -> Move:
    outcome = replace(
        CLEAN,
        outcome=Outcome.CONFLICT,
        rule=reason,
        conflicts=(Conflict(reason, Site("a.py", "f", 3), None),),
    )
    return Move(outcome, Action.CONFLICT)


def test_what_only_drifted_needs_no_one() -> None:
    assert _proposal().mergeable_unattended
    assert _proposal(Move(CLEAN, Action.REFRESHED, SAME)).mergeable_unattended
    upstreamed = replace(CLEAN, outcome=Outcome.UPSTREAMED)
    assert _proposal(Move(upstreamed, Action.RECORDED)).mergeable_unattended


@pytest.mark.parametrize(
    ("proposal", "reason"),
    [
        (_proposal(Move(CLEAN, Action.KEPT, OTHER)), "0001-a does something else now"),
        (_proposal(Move(CLEAN, Action.DROPPED)), "0001-a leaves the series"),
        (_proposal(Move(CLEAN, Action.VARIANT, SAME)), "0001-a has a new variant"),
        (_proposal(findings=(_finding(Code.SYNTAX),)), "1 contract errors"),
        (_proposal(fresh=(_finding(Code.BASE_SIGNATURE),)), "1 new contract warnings"),
        (replace(_proposal(), contracts=None), "the contract was not checked"),
        (
            replace(_proposal(), smokes=(Smoked(NAME, replace(CELL, passed=False), True),)),
            "the smoke fails on cpu",
        ),
        (replace(_proposal(), smokes=()), "no smoke of this very tree is on record"),
        (
            replace(_proposal(), smokes=(Smoked(NAME, CELL, False),)),
            "no smoke of this very tree is on record",
        ),
        (
            replace(_proposal(), contracts=Contracts(HALF, "v1.0.0", ())),
            "the contract was checked in part: torch: the index is away",
        ),
    ],
)
def test_a_person_must_look_at_the_rest(proposal: Proposal, reason: str) -> None:
    assert proposal.reasons == (reason,)
    assert rebase_data(proposal)["mergeable_unattended"] is False
    assert reason in rebase_markdown(proposal)
    assert reason in rebase_page(proposal)


def test_a_conflict_that_was_expected_is_no_reason() -> None:
    move = _conflict("the class is gone")
    assert _proposal(move).failed
    assert _proposal(replace(move, expected="it is not there")).mergeable_unattended


def test_old_findings_and_an_old_smoke_are_told_but_no_reason() -> None:
    warning = _finding(Code.BASE_SIGNATURE)
    proposal = replace(
        _proposal(findings=(warning,)),
        smokes=(
            Smoked(NAME, CELL, True),
            Smoked(replace(NAME, device="cuda"), replace(CELL, passed=False), False),
        ),
    )
    assert proposal.mergeable_unattended
    assert "**failed** on 2026-11-30T00:00:00Z, of another carried commit" in rebase_markdown(
        proposal
    )


def test_what_upstream_wrote_cannot_leave_its_place_in_a_text() -> None:
    """It comes from elsewhere: a table's bar, a mention, markup, a fence, a line's end."""
    evil = "x | y\n\n# Approved @team `` `a` <script>alert(1)</script> [x](http://e.invalid)"
    move = _conflict(evil)
    drift = Comparison("aa", "aa", (), (), (Line("+", b"```\n</details> @team\n"),))
    finding = replace(_finding(Code.BASE_SIGNATURE), message=evil, hint=evil)
    proposal = _proposal(move, Move(CLEAN, Action.KEPT, drift, note=evil), fresh=(finding,))
    text = rebase_markdown(proposal)
    assert "\n# Approved" not in text
    for line in text.splitlines():
        if "@team" in line and not line.startswith("    "):
            before = line.split("@team")[0]
            assert before.count("```") % 2 == 1, line
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows), rows
    page = rebase_page(proposal)
    assert "<script>alert" not in page


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", "`a`"),
        ("a|b", "`a\\|b`"),
        ("`a", "`` `a ``"),
        ("a``b", "```a``b```"),
        ("a\nb\x00c\udc80", "`a b\\x00c\\udc80`"),
        ("", ""),
    ],
)
def test_code_spans(text: str, expected: str) -> None:
    assert code(text) == expected


def test_smokes_of_this_release_are_shown_with_what_failed() -> None:
    failed = replace(
        CELL, passed=False, checks=(Check("published", "video", Verdict.FAILED, "wrong tokens"),)
    )
    record = Verified(
        {
            NAME: failed,
            replace(NAME, release="v1.0.0"): CELL,
            replace(NAME, kind="stock"): CELL,
            replace(NAME, device="cuda"): replace(CELL, commit="d" * 40),
        }
    )
    proposal = _proposal()
    found = smokes_of(record, proposal.rebased)
    assert [(s.name.device, s.current) for s in found] == [("cpu", True), ("cuda", False)]
    text = rebase_markdown(replace(proposal, smokes=found))
    assert "`published` `video`: `wrong tokens`" in text


def test_a_long_drift_is_cut() -> None:
    drift = tuple(Line("+", b"line %d\n" % number) for number in range(50))
    text = rebase_markdown(_proposal(Move(CLEAN, Action.KEPT, replace(SAME, drift=drift))))
    assert "line 39" in text
    assert "line 40" not in text
    assert "... and 10 lines more" in text


def test_the_oldest_supported_must_be_a_release(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="oldest-ref is no release: main"):
        supported_releases(None, "main")  # type: ignore[arg-type]
