"""The watch over a small upstream: what is done, what is not done again, and who is told."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.carry.conftest import Workshop, workshop  # noqa: F401  (the fixture)
from tools.carry import Carried, Carrier
from tools.contract import Code, ContractReport, Finding, Severity
from tools.errors import BadInput, Busy, CheckFailed, EnvironmentLacks, Unavailable
from tools.maintain.stages import Line
from tools.maintain.watch import Plan, Watched, due_refs, inputs_digest, wanted_refs, watch
from tools.maintain.watched import (
    Need,
    Record,
    Result,
    Stage,
    StageRecord,
    State,
    read_state,
    write_state,
)
from tools.report.watch import watch_data, watch_notice, watch_text
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.upstream import Upstream, parse_ref
from tools.upstream.history import Offered
from tools.upstream.page import IndexUnreachable

BASE = b"def go():\n    return 1\n\n\nLAST = 1\n"
RELEASES = {
    "v1.0.0": BASE,
    "v1.0.1": b"import os\n" + BASE,
    "v1.2.0": BASE.replace(b"return 1", b"return 2"),  # the patch is in conflict
    "v1.3.0": b"import os\n" + BASE,
}


@dataclass
class Town:
    """An upstream, a series of one patch, and a line that notes what it is asked to do."""

    workshop: Workshop
    carrier: Carrier
    upstreams: dict[str, Upstream]
    file: Path
    asked: list[str] = field(default_factory=list)
    told: list[Record] = field(default_factory=list)
    findings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    failing: dict[str, Exception] = field(default_factory=dict)
    hostile: dict[str, Exception] = field(default_factory=dict)
    bad_smokes: frozenset[str] = frozenset()
    unchecked: frozenset[str] = frozenset()

    def _note(self, stage: str, ref: str) -> None:
        self.asked.append(f"{stage} {ref}")
        if f"{stage} {ref}" in self.failing:
            raise self.failing[f"{stage} {ref}"]

    def line(self) -> Line:
        def carry(upstream: Upstream) -> Carried:
            self._note("carry", upstream.ref.name)
            return self.carrier.carry(upstream)

        def contract(carried: Carried) -> ContractReport:
            ref = carried.upstream.ref.name
            self._note("contract", ref)
            unchecked = ("torch: away",) if ref in self.unchecked else ()
            return ContractReport(self.findings.get(ref, ()), ("m.py",), (), unchecked)

        def build(carried: Carried) -> Path:
            self._note("build", carried.upstream.ref.name)
            return Path(f"{carried.upstream.ref.name}.whl")

        def smoke(carried: Carried, wheel: Path) -> SmokeReport:
            ref = carried.upstream.ref.name
            self._note("smoke", ref)
            verdict = Verdict.FAILED if ref in self.bad_smokes else Verdict.PASSED
            check = Check("published", "text", verdict, "other tokens")
            return SmokeReport(ref, "cpu", False, wheel.name, "0" * 64, {}, (check,), 1.0)

        return Line(carry, contract, build, smoke)

    def offered(self) -> list[Offered]:
        return [
            Offered(found.ref, found.commit if found.ref.version is None else "", found.source)
            for found in self.upstreams.values()
        ]

    def obtain(self, row: Offered) -> Upstream:
        if row.ref.name in self.hostile:
            raise self.hostile[row.ref.name]
        return self.upstreams[row.ref.name]

    def watch(
        self,
        until: Stage = Stage.SMOKE,
        tell: Mapping[str, Callable[[Record], None]] | None = None,
        **options: bool,
    ) -> Watched:
        self.asked.clear()
        return watch(
            self.file,
            Plan(self.offered(), until, inputs_digest(self.carrier), **options),
            self.obtain,
            self.line(),
            tell={"webhook": self.told.append} if tell is None else tell,
            notify=lambda _line: None,
        )

    def edit(self) -> None:
        """Change the series and nothing that it does."""
        (patch,) = self.carrier.series.patches
        again = replace(patch, body=f"{patch.body}\nMore.")
        self.carrier = self.workshop.carrier(again)


def _add_two(work: Path) -> None:
    (work / "m.py").write_bytes(BASE.replace(b"return 1", b"return 1 + 2"))


@pytest.fixture
def town(workshop: Workshop, tmp_path: Path) -> Town:  # noqa: F811
    upstreams = {name: workshop.release(name, {"m.py": text}) for name, text in RELEASES.items()}
    patch = workshop.patch("0001-add", "v1.0.0", _add_two)
    return Town(workshop, workshop.carrier(patch), upstreams, tmp_path / "watch.json")


def finding(text: str, severity: Severity = Severity.ERROR) -> Finding:
    return Finding(Code.UNKNOWN_KEYWORD, "m.py", 3, text, severity=severity)


def test_each_ref_goes_as_far_as_it_can_and_nothing_is_done_twice(town: Town) -> None:
    done = town.watch()
    assert [stage.value for stage in done.worked[0].stages] == [
        "carry",
        "contract",
        "build",
        "smoke",
    ]
    assert town.asked == [
        "carry v1.0.0", "contract v1.0.0", "build v1.0.0", "smoke v1.0.0",
        "carry v1.0.1", "contract v1.0.1", "build v1.0.1",
        "carry v1.2.0",
        "carry v1.3.0", "contract v1.3.0", "build v1.3.0", "smoke v1.3.0",
    ]  # fmt: skip
    assert [record.ref for record in done.standing] == ["v1.2.0"]
    assert [record.ref for record in town.told] == ["v1.2.0"]
    (need,) = town.told[0].needs
    assert (need.about, need.advice) == ("0001-add", "python -m tools resolve v1.2.0")
    before = town.file.read_bytes()
    again = town.watch()
    assert again.worked == ()
    assert town.asked == []
    assert len(town.told) == 1
    assert [record.ref for record in again.standing] == ["v1.2.0"], "it stands until it is mended"
    assert town.file.read_bytes() == before


def test_the_engine_runs_where_something_changed_or_always(town: Town) -> None:
    done = town.watch()
    (smoked,) = [w.record.stages[Stage.SMOKE] for w in done.worked if w.record.ref == "v1.0.1"]
    assert smoked.result is Result.SKIPPED
    assert "no finding changed" in smoked.summary
    town.file.unlink()
    town.watch(smoke_unchanged=True)
    assert "smoke v1.0.1" in town.asked


def test_each_minor_release_is_run_once_whatever_changed(town: Town) -> None:
    """What no contract sees, such as the CPU engine's kernels, changes between them."""
    alike = {"v1.4.0": RELEASES["v1.3.0"], "v1.4.1": RELEASES["v1.3.0"]}
    for name, text in alike.items():
        town.upstreams[name] = town.workshop.release(name, {"m.py": text})
    town.watch()
    assert "smoke v1.4.0" in town.asked
    assert "smoke v1.4.1" not in town.asked


def test_a_later_run_goes_on_where_the_earlier_one_was_told_to_end(town: Town) -> None:
    town.watch(Stage.CARRY)
    assert all(entry.startswith("carry") for entry in town.asked)
    town.watch(Stage.CONTRACT)
    done_at = [entry for entry in town.asked if entry.startswith("contract")]
    assert done_at == ["contract v1.0.0", "contract v1.0.1", "contract v1.3.0"]


def test_a_mended_series_takes_up_what_asked_for_a_person_and_nothing_else(town: Town) -> None:
    town.watch()
    mended = town.workshop.patch(
        "0001-add@v1.2.0", "v1.2.0", lambda work: (work / "m.py").write_bytes(
            RELEASES["v1.2.0"].replace(b"return 2", b"return 2 + 2"))
    )  # fmt: skip
    town.carrier = town.workshop.carrier(*town.carrier.series.patches, mended)
    done = town.watch()
    assert [w.record.ref for w in done.worked] == ["v1.2.0"]
    assert done.standing == ()
    assert done.worked[0].record.needs == ()


def test_a_conflict_that_is_recorded_as_expected_asks_nobody(town: Town) -> None:
    town.watch()
    expected = {("0001-add", "v1.2.0"): "run() is gone there"}
    inputs = inputs_digest(town.carrier, expected)
    assert inputs != inputs_digest(town.carrier)
    done = watch(
        town.file,
        Plan(town.offered(), Stage.SMOKE, inputs, expected),
        lambda row: town.upstreams[row.ref.name],
        town.line(),
        tell={"webhook": town.told.append},
        notify=lambda _line: None,
    )
    assert [w.record.ref for w in done.worked] == ["v1.2.0"]
    assert done.standing == ()
    held = done.worked[0].record.stages
    assert list(held) == [Stage.CARRY], "half a series is neither checked nor built"
    assert (held[Stage.CARRY].result, held[Stage.CARRY].needs) == (Result.SKIPPED, ())


def test_a_new_warning_is_to_look_at_and_an_error_to_mend(town: Town) -> None:
    warned = finding("grew", Severity.WARNING)
    town.findings = {"v1.0.0": (warned,), "v1.0.1": (warned, finding("new", Severity.WARNING)),
                     "v1.3.0": (finding("gone"),)}  # fmt: skip
    done = town.watch(Stage.CONTRACT)
    by_ref = {worked.record.ref: worked.record for worked in done.worked}
    assert by_ref["v1.0.0"].needs == ()
    assert [(n.text, n.blocking) for n in by_ref["v1.0.1"].needs] == [("m.py:3 new", False)]
    assert not by_ref["v1.0.1"].blocked
    assert [(n.text, n.blocking) for n in by_ref["v1.3.0"].needs] == [("m.py:3 gone", True)]
    assert [record.ref for record in done.standing] == ["v1.2.0", "v1.3.0"]


def test_what_the_machine_lacks_is_tried_again_and_asks_nobody(town: Town) -> None:
    town.failing = {"build v1.0.1": Unavailable("no wheel of 1.1.0")}
    town.unchecked = frozenset({"v1.3.0"})
    done = town.watch()
    lacking = {w.record.ref: w.record.stages for w in done.worked}
    assert lacking["v1.0.1"][Stage.BUILD] == StageRecord(Result.LACKING, "no wheel of 1.1.0")
    assert lacking["v1.3.0"][Stage.CONTRACT].result is Result.LACKING
    assert [record.ref for record in done.standing] == ["v1.2.0"]
    town.failing, town.unchecked = {}, frozenset()
    again = town.watch()
    assert [w.record.ref for w in again.worked] == ["v1.0.1", "v1.3.0"]
    assert [e for e in town.asked if not e.startswith("carry")] == [
        "build v1.0.1",
        "contract v1.3.0",
    ]
    assert len(town.told) == 1


def test_a_wheel_that_cannot_be_built_and_a_smoke_that_fails_ask_for_a_person(town: Town) -> None:
    town.failing = {"build v1.0.0": CheckFailed("m.py is not upstream's", "look at it")}
    town.bad_smokes = frozenset({"v1.3.0"})
    done = town.watch()
    needs = {record.ref: record.needs[0] for record in done.standing}
    assert (needs["v1.0.0"].stage, needs["v1.0.0"].advice) == (Stage.BUILD, "look at it")
    assert (needs["v1.3.0"].about, needs["v1.3.0"].text) == ("published text", "other tokens")
    assert "smoke v1.0.0" not in town.asked


def test_without_a_network_nothing_is_noted_of_the_ref(town: Town) -> None:
    town.failing = {"build v1.0.0": IndexUnreachable("away")}
    with pytest.raises(IndexUnreachable):
        town.watch()
    (record,) = read_state(town.file).records
    assert list(record.stages) == [Stage.CARRY, Stage.CONTRACT]
    town.failing = {}
    town.watch()
    assert "contract v1.0.0" not in town.asked


def test_a_commit_has_no_wheel_and_a_moved_branch_is_compared_with_its_last_commit(
    town: Town,
) -> None:
    town.upstreams = {"v1.0.0": town.upstreams["v1.0.0"]}
    head = replace(town.upstreams["v1.0.0"], ref=parse_ref("main"), source="git")
    moved = town.workshop.release("v1.1.9", {"m.py": RELEASES["v1.2.0"]})
    plan = Plan((), Stage.SMOKE, inputs_digest(town.carrier))

    def see(upstream: Upstream) -> Watched:
        rows = [*town.offered(), Offered(parse_ref("main"), upstream.commit, "git")]
        found = {"v1.0.0": town.upstreams["v1.0.0"], "main": upstream}
        return watch(
            town.file, replace(plan, refs=rows), lambda row: found[row.ref.name], town.line(),
            tell={"webhook": town.told.append}, notify=lambda _line: None,
        )  # fmt: skip

    first = see(head).worked[-1].record
    assert first.stages[Stage.BUILD].result is Result.SKIPPED
    second = see(replace(head, commit=moved.commit, tree=moved.tree))
    assert [w.record.ref for w in second.worked] == ["main"]
    assert second.worked[0].record.blocked
    assert see(replace(head, commit=moved.commit, tree=moved.tree)).worked == ()
    assert [record.ref for record in second.state.records] == ["v1.0.0", "main", "main"]
    third = town.workshop.release("v1.1.10", {"m.py": RELEASES["v1.3.0"]})
    kept = see(replace(head, commit=third.commit, tree=third.tree)).state.records
    assert [record.commit for record in kept[1:]] == [moved.commit, third.commit]
    assert State(kept).current == (kept[0], kept[2])
    assert not Watched((), State(kept)).standing, "the branch moved on to what is in order"


def test_a_person_who_could_not_be_told_is_told_later(town: Town) -> None:
    def away(_record: Record) -> None:
        raise Unavailable("the webhook is away")

    plan = Plan(town.offered(), Stage.CARRY, inputs_digest(town.carrier))
    obtain: Callable[[Offered], Upstream] = lambda row: town.upstreams[row.ref.name]  # noqa: E731
    done = watch(
        town.file, plan, obtain, town.line(), tell={"webhook": away}, notify=lambda _line: None
    )
    assert [record.ref for record in done.untold] == ["v1.2.0"]
    assert len(done.worked) == 4, "the rest is done"
    town.watch(Stage.CARRY)
    assert [record.ref for record in town.told] == ["v1.2.0"]


def test_a_channel_that_is_away_does_not_make_the_others_repeat_themselves(town: Town) -> None:
    """The webhook was posted to after every ref and again every night while GitHub said 403."""
    posts: list[str] = []
    tries: list[str] = []

    def refused(record: Record) -> None:
        tries.append(record.ref)
        raise CheckFailed("GitHub answered 403")

    town.findings = {ref: (finding("gone"),) for ref in ("v1.0.0", "v1.0.1", "v1.3.0")}
    channels = {"webhook": lambda record: posts.append(record.ref), "github": refused}
    done = town.watch(Stage.CONTRACT, channels)
    assert posts == tries == list(RELEASES), "each once a run"
    assert [record.ref for record in done.untold] == list(RELEASES)
    town.watch(Stage.CONTRACT, channels)
    town.edit()
    again = town.watch(Stage.CONTRACT, channels)
    assert len(again.worked) == len(RELEASES)
    assert posts == list(RELEASES), "what was posted is posted no more"
    assert tries == list(RELEASES) * 3
    later: list[str] = []
    done = town.watch(Stage.CONTRACT, {**channels, "github": lambda r: later.append(r.ref)})
    assert (later, done.untold) == (list(RELEASES), ())
    assert posts == list(RELEASES)


def test_an_edit_of_the_series_tells_only_what_is_new(town: Town) -> None:
    town.watch()
    assert [record.ref for record in town.told] == ["v1.2.0"]
    town.edit()
    town.failing = {"carry v1.2.0": KeyboardInterrupt()}  # type: ignore[dict-item]
    with pytest.raises(KeyboardInterrupt):
        town.watch()
    town.failing = {}
    done = town.watch()
    assert [w.record.ref for w in done.worked] == ["v1.2.0"]
    assert done.untold == ()
    assert len(town.told) == 1, "the same need is no news"


def test_a_need_that_came_back_after_it_was_mended_is_told_again(town: Town) -> None:
    """A branch moves: what was told of it before it was in order is news again."""
    start = replace(town.upstreams["v1.0.0"], ref=parse_ref("main"), source="git")
    broken = (finding("gone"),)
    for at, (found, told) in enumerate(((broken, 1), (broken, 1), ((), 1), (broken, 2))):
        made = town.workshop.release(f"v0.0.{at}", {"m.py": BASE + b"A = %d\n" % at})
        town.upstreams = {"main": replace(start, commit=made.commit, tree=made.tree)}
        town.findings = {"main": found}
        assert len(town.watch(Stage.CONTRACT).worked) == 1
        assert len(town.told) == told


def test_a_state_of_before_channels_is_read_and_nothing_in_it_is_told_again(town: Town) -> None:
    town.watch()
    document = json.loads(town.file.read_bytes())
    for row in document["refs"]:
        del row["told_to"]
        for stage in row["stages"].values():
            del stage["remedy"]
    town.file.write_text(json.dumps(document))
    assert town.watch().worked == ()
    town.edit()
    done = town.watch(tell={"webhook": town.told.append})
    assert [w.record.ref for w in done.worked] == ["v1.2.0"]
    assert (len(town.told), done.untold) == (1, ())


def test_a_ref_that_cannot_be_had_does_not_keep_the_watch_from_later_ones(town: Town) -> None:
    """A hostile sdist, or a release gone from the index, once ended every watch there."""
    town.hostile = {
        "v1.0.0": BadInput("vllm-1.0.0.tar.gz: '../x' is refused", "do not use it"),
        "v1.0.1": Unavailable("there is no v1.0.1"),
    }
    done = town.watch(Stage.CARRY)
    assert [w.record.ref for w in done.worked] == list(RELEASES)
    assert town.asked == ["carry v1.2.0", "carry v1.3.0"]
    first, second = (w.record.stages[Stage.CARRY] for w in done.worked[:2])
    assert (first.result, first.needs[0].advice) == (Result.FAILED, "do not use it")
    assert (second.result, second.needs) == (Result.LACKING, ())
    assert [record.ref for record in done.standing] == ["v1.0.0", "v1.2.0"]
    assert [record.ref for record in town.told] == ["v1.0.0", "v1.2.0"]
    town.watch(Stage.CARRY)
    assert len(town.told) == 2
    town.hostile = {"v1.0.1": IndexUnreachable("away")}
    with pytest.raises(IndexUnreachable):
        town.watch(Stage.CARRY)
    town.hostile = {}
    town.watch(Stage.CARRY)
    records = read_state(town.file).records
    assert [record.ref for record in records] == list(RELEASES), "one record each"
    assert all(record.commit for record in records)


def test_what_this_machine_lacks_is_told_from_what_upstream_has_not(town: Town) -> None:
    town.failing = {
        "build v1.0.0": Unavailable("no wheel of 1.0.0", "wait"),
        "smoke v1.3.0": EnvironmentLacks("uv is not installed", "install uv"),
    }
    done = town.watch()
    assert [(record.ref, stage) for record, stage in done.lacking] == [("v1.3.0", Stage.SMOKE)]
    held = done.lacking[0][0].stages[Stage.SMOKE]
    assert (held.result, held.remedy) == (Result.LACKING, "install uv")
    town.failing = {}
    assert town.watch().lacking == ()


def test_a_second_watch_says_so_and_ends(town: Town) -> None:
    with FileLock(f"{town.file}.lock"), pytest.raises(Busy, match="another run holds the watch"):
        town.watch()
    assert town.asked == []
    assert Busy.exit_code == 5


def test_a_run_cut_short_anywhere_ends_in_the_same_state(town: Town) -> None:
    """Every stage of every ref is a place to stop at; the file is the same afterwards."""
    town.watch()
    whole, order = town.file.read_bytes(), list(town.asked)
    for place in order:
        town.file.unlink()
        town.failing = {place: KeyboardInterrupt()}  # type: ignore[dict-item]
        with pytest.raises(KeyboardInterrupt):
            town.watch()
        stopped = set(town.asked[:-1])
        town.failing = {}
        town.watch()
        assert town.file.read_bytes() == whole, place
        twice = stopped & set(town.asked)
        assert all(entry.startswith(("carry", "build")) for entry in twice), "found again, not done"
    assert not list(town.file.parent.glob(".watch.json.*"))


def test_leftovers_of_a_kill_go(town: Town) -> None:
    left = town.file.with_name(".watch.json.abc")
    left.write_text("half")
    town.watch(Stage.CARRY)
    assert not left.exists()


NEED = Need(Stage.CARRY, "0001-x", "in conflict", "resolve", blocking=True)
RECORDS = st.builds(
    Record,
    ref=st.sampled_from(["v1.0.0", "v1.2.0", "main"]),
    commit=st.sampled_from(["a" * 40, "b" * 40]),
    source=st.sampled_from(["index", "git"]),
    inputs=st.just("0" * 64),
    stages=st.dictionaries(
        st.sampled_from(list(Stage)),
        st.builds(
            StageRecord,
            st.sampled_from(list(Result)),
            st.text(),
            st.dictionaries(st.text(), st.text(), max_size=3),
            st.sampled_from([(), (NEED,)]),
            st.sampled_from(["", "install uv"]),
        ),
    ),
    told=st.booleans(),
    told_to=st.dictionaries(st.sampled_from(["", "webhook", "github"]), st.text(), max_size=3),
)


@given(st.lists(RECORDS, max_size=6))
def test_a_state_is_read_as_it_was_written(records: list[Record]) -> None:
    import tempfile  # noqa: PLC0415

    state = State()
    for record in records:
        state = state.put(record)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "state.json"
        write_state(file, state)
        assert read_state(file) == state
    assert len({(record.ref, record.commit) for record in state.records}) == len(state.records)
    assert sum(record.ref == "main" for record in state.records) <= 2


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 9, "refs": []}', '{"format": 1, "refs": [{"ref": 1}]}']
)
def test_what_is_no_state_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(BadInput, match=r"state\.json"):
        read_state(tmp_path / "state.json")


def test_the_refs_of_a_watch_start_and_end_where_asked(
    monkeypatch: pytest.MonkeyPatch, town: Town
) -> None:
    rows = [*town.offered(), Offered(parse_ref("main"), "a" * 40, "git")]
    monkeypatch.setattr("tools.maintain.watch.offered", lambda *_a, **_k: tuple(rows))
    found = wanted_refs(None, "auto", "v1.0.1", "v1.2.0")  # type: ignore[arg-type]
    assert [row.ref.name for row in found] == ["v1.0.1", "v1.2.0", "main"]
    with pytest.raises(BadInput, match="main is no release"):
        wanted_refs(None, "auto", "main")  # type: ignore[arg-type]
    plan = Plan(found, Stage.CARRY, "")
    assert due_refs(town.file, plan) == list(found)


def test_all_forms_show_the_same(town: Town) -> None:
    town.findings = {"v1.0.1": (finding("`x` | <b>", Severity.WARNING),)}
    done = town.watch()
    console = Console(width=200, record=True)
    console.print(watch_text(done))
    text = console.export_text()
    data = json.loads(json.dumps(watch_data(done)))
    assert data["blocked"] == ["v1.2.0"]
    assert [row["ref"] for row in data["needs"]] == ["v1.0.1", "v1.2.0"]
    assert "python -m tools resolve v1.2.0" in text
    assert "m.py:3 `x` | <b>" in text
    notices = [watch_notice(record) for record in town.told]
    assert [notice.key for notice in notices] == ["watch/v1.0.1", "watch/v1.2.0"]
    assert "1 to look at" in notices[0].title
    assert "\\`x\\` \\| \\<b\\>" in notices[0].body, "nothing that a finding says becomes Markdown"
    assert "python -m tools resolve v1.2.0" in notices[1].body
    console.print(watch_text(town.watch()))
    assert "nothing new upstream" in console.export_text()
