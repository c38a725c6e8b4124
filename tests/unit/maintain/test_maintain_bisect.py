"""What turned an answer: over any run of answers, and over a small upstream with a history."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tools.carry import Carrier
from tools.errors import BadInput
from tools.maintain.bisect import Answer, bisect, search
from tools.maintain.questions import contract_question, outcome_question
from tools.overlay import Overlay, OverlayFile
from tools.report.bisect import bisection_data, bisection_text
from tools.series import Series, Step, parse_patch
from tools.settings import Settings
from tools.upstream import Store, Upstream, obtain

UserGit = Callable[..., str]


def run_of(bad: list[bool]) -> tuple[list[str], Callable[[str], Answer], list[str]]:
    names = [f"v{at}" for at in range(len(bad))]
    asked: list[str] = []

    def ask(name: str) -> Answer:
        asked.append(name)
        return Answer(bad[names.index(name)], "")

    return names, ask, asked


@given(st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_halving_finds_the_one_turn_and_asks_few(good: int, bad: int, every: bool) -> None:
    names, ask, asked = run_of([False] * good + [True] * bad)
    found = search(names, ask, every=every)
    assert (found.good, found.bad) == (f"v{good - 1}", f"v{good}")
    assert found.monotonic
    assert len(asked) == len(set(asked)), "nothing is asked twice"
    assert found.complete or len(asked) <= 2 + (good + bad).bit_length()
    if every:
        assert found.complete


@given(st.lists(st.booleans()), st.booleans())
def test_any_run_ends_between_a_good_and_a_bad_neighbour(middle: list[bool], every: bool) -> None:
    run = [False, *middle, True]
    names, ask, _ = run_of(run)
    found = search(names, ask, every=every)
    at = names.index(found.bad)
    assert names[at - 1] == found.good
    assert (run[at - 1], run[at]) == (False, True)
    if every:
        assert all(run[at:]), "the run of bad ones that the bad end is in"
        turns = sum(one != two for one, two in itertools.pairwise(run))
        assert len(found.turns) == turns
        assert found.monotonic == (turns == 1)


@pytest.mark.parametrize(
    ("run", "message"), [([True, True], "v0 is bad"), ([False, False], "v1 is good")]
)
def test_both_ends_are_verified(run: list[bool], message: str) -> None:
    names, ask, _ = run_of(run)
    with pytest.raises(BadInput, match=message):
        search(names, ask)


# A small upstream ---------------------------------------------------------------------------------

BASE = b"def go(a):\n    return a\n\n\nLAST = 1\n"
RENAMED = BASE.replace(b"go(a)", b"run(b, c)").replace(b"return a", b"return b, c")
# Each commit: subject, content, tag.
COMMITS = (
    ("Start (#1)", BASE, "v1.0.0"),
    ("Say more (#2)", b"import os\n" + BASE, "v1.1.0"),
    ("Speed up (#3)", b"import sys\n" + BASE, ""),
    ("Rename go (#4)", b"import sys\n" + RENAMED, ""),
    ("Prepare (#5)", b"import re\n" + RENAMED, "v1.2.0"),
    ("After (#6)", b"import io\n" + RENAMED, "v1.3.0"),
)
CLIENT = b"from vllm.m import ADDED, go\n\n\ndef ask():\n    return go(ADDED)\n"


def unasked() -> Upstream:
    """Stand for the bad end where a question must not look at it."""
    pytest.fail("the bad end was looked at")


class Following:
    """A git source of a project, and a series of one patch written on its first release."""

    def __init__(self, root: Path, user_git: UserGit) -> None:
        self.path = root / "upstream"
        (self.path / "vllm").mkdir(parents=True)
        user_git(self.path, "init", "-q", "-b", "main")
        for subject, content, tag in COMMITS:
            (self.path / "vllm/m.py").write_bytes(content)
            user_git(self.path, "add", "-A")
            user_git(self.path, "commit", "-qm", subject)
            if tag:
                user_git(self.path, "tag", tag)
        work = root / "work"
        user_git(root, "clone", "-q", "-b", "v1.0.0", str(self.path), str(work))
        (work / "vllm/m.py").write_bytes(
            BASE.replace(b"return a", b"return a + 1") + b"ADDED = 1\n"
        )
        user_git(work, "commit", "-qam", "Add one\n\nWhy.\n\nBase: v1.0.0")
        mail = user_git(work, "format-patch", "-1", "--stdout", "--full-index", "-U1").encode()
        self.cache = root / "cache"
        settings = Settings(root, "v1.0.0", str(self.path), 1, self.cache)
        self.store = Store.open(settings)
        client = OverlayFile("c.py", "vllm/c.py", "", CLIENT, (), ())
        self.carrier = Carrier(
            self.store.git,
            Series((Step("0001-add", (parse_patch("0001-add.patch", mail),)),)),
            Overlay((client,)),
            lambda ref: obtain(self.store, ref, "git").commit,
        )


@pytest.fixture
def following(tmp_path: Path, user_git: UserGit) -> Following:
    return Following(tmp_path, user_git)


def test_a_release_a_commit_and_a_pull_request_are_named(following: Following) -> None:
    store, carrier = following.store, following.carrier
    question = outcome_question(carrier, "0001-add", "", lambda: obtain(store, "v1.3.0", "git"))
    done = bisect(store, ("v1.0.0", "v1.3.0"), question, source="git", every=True)
    assert done.releases is not None
    assert (done.releases.good, done.releases.bad) == ("v1.1.0", "v1.2.0")
    assert done.releases.complete
    data = bisection_data(done)
    assert (data["subject"], data["pull_request"]) == ("Rename go (#4)", 4)
    assert data["releases"]["monotonic"]
    console = Console(width=120, record=True)
    console.print(bisection_text(done))
    text = console.export_text()
    assert "first bad release: v1.2.0, after v1.1.0" in text
    assert "Rename go (#4)" in text
    assert not store.git.refs("refs/carried/")


def test_commits_can_be_the_ends(following: Following, user_git: UserGit) -> None:
    question = outcome_question(following.carrier, "", "conflict", unasked)
    done = bisect(following.store, ("v1.1.0", "main"), question)
    assert done.releases is None
    assert done.culprit is not None
    assert done.culprit.pull_request == 4


def test_a_finding_of_the_contract_is_dated(following: Following) -> None:
    question = contract_question(following.carrier, following.cache, "CT102:go")
    done = bisect(following.store, ("v1.0.0", "v1.3.0"), question, source="git")
    assert done.releases is not None
    assert done.releases.bad == "v1.2.0"
    assert done.culprit is not None
    assert "CT102 vllm/c.py:1" in done.releases.answers["v1.2.0"].found
    stock = contract_question(following.carrier, following.cache, "CT102", stock=True)
    with pytest.raises(BadInput, match=r"v1\.3\.0 is good: no CT102"):
        bisect(following.store, ("v1.0.0", "v1.3.0"), stock, source="git")


def test_a_contract_without_a_patch_shows_what_it_mends(following: Following) -> None:
    ends = ("v1.0.0", "v1.3.0")
    with_it = contract_question(following.carrier, following.cache, "CT102:ADDED")
    done = bisect(following.store, ends, with_it, source="git")
    assert done.releases is not None
    assert done.releases.bad == "v1.2.0", "where the patch is in conflict"
    without = contract_question(following.carrier, following.cache, "CT102:ADDED", patch="0001-add")
    assert "without 0001-add" in without[0]
    with pytest.raises(BadInput, match=r"v1\.0\.0 is bad already: CT102 vllm/c\.py:1"):
        bisect(following.store, ends, without, source="git")


def test_a_contract_question_names_what_there_is(following: Following) -> None:
    with pytest.raises(BadInput, match="no patch '0002-x'"):
        contract_question(following.carrier, following.cache, "CT102", patch="0002-x")
    with pytest.raises(BadInput, match="no patch to leave out"):
        contract_question(following.carrier, following.cache, "CT102", patch="0001-add", stock=True)
    with pytest.raises(BadInput, match="no contract rule"):
        contract_question(following.carrier, following.cache, "CT1")


def test_a_place_that_was_bad_before_the_two_parted_is_told(
    following: Following, user_git: UserGit
) -> None:
    """A release branch that took a change back: no commit between the two turned the answer."""
    path = following.path
    user_git(path, "checkout", "-q", "-b", "old", "v1.2.0")
    (path / "vllm/m.py").write_bytes(COMMITS[2][1])
    user_git(path, "commit", "-qam", "Take it back (#7)")
    user_git(path, "tag", "v1.2.1")
    user_git(path, "checkout", "-q", "main")
    question = outcome_question(following.carrier, "0001-add", "conflict", unasked)
    done = bisect(following.store, ("v1.2.1", "v1.3.0"), question, source="git", every=True)
    assert done.releases is not None
    assert done.releases.bad == "v1.3.0"
    assert done.culprit is None
    assert "bad already at" in done.note


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [("v1.2.0", "v1.0.0", "is not before"), ("v1.0.0", "main", "not both releases")],
)
def test_wrong_ends_are_one_line(following: Following, good: str, bad: str, message: str) -> None:
    question = outcome_question(following.carrier, "0001-add", "conflict", unasked)
    with pytest.raises(BadInput, match=message):
        bisect(following.store, (good, bad), question, source="index")


@pytest.mark.parametrize(
    ("patch", "outcome", "message"),
    [
        ("", "", "nothing to ask"),
        ("0001-add", "broken", "no outcome"),
        ("0009-x", "clean", "no patch"),
    ],
)
def test_wrong_questions_are_one_line(
    following: Following, patch: str, outcome: str, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        outcome_question(following.carrier, patch, outcome, unasked)
