"""The series on a new base: what is written anew, what is recorded, what goes, and what stays."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.carry.conftest import Workshop, workshop  # noqa: F401  (the fixture)
from tools.carry import Carrier, Outcome, read_resolutions
from tools.maintain.payload import Payload, _signed, compare, payload
from tools.maintain.rebase import Action, Move, Rebased, rebase
from tools.maintain.refresh import refresh
from tools.maintain.resolve import lay_out
from tools.maintain.rewrite import with_applied
from tools.merge.lines import hunks
from tools.series import parse_patch, read_series
from tools.upstream import Upstream, parse_ref

TABLE = b'TABLE = {\n    "a": 1,\n    "b": 2,\n    "d": 4,\n}\n'
RUN = b"def run(x):\n    y = x + 1\n    return y\n"
# The neighbour of the new row changed: text conflicts, syntax does not.
MOVED = TABLE.replace(b'"d": 4', b'"dd": 44').replace(b'"b": 2', b'"b": 22')


def _add_c(work: Path) -> None:
    file = work / "table.py"
    file.write_bytes(file.read_bytes().replace(b'    "d"', b'    "c": 3,\n    "d"'))


def _double(work: Path) -> None:
    file = work / "run.py"
    file.write_bytes(file.read_bytes().replace(b"x + 1", b"(x + 1) * 2"))


class Bench:
    """A series in a directory, and the releases that it serves."""

    def __init__(self, workshop: Workshop, patches: Path) -> None:  # noqa: F811
        self.workshop = workshop
        self.patches = patches
        patches.mkdir()
        (patches / "series").write_text("# ours\n")

    def release(self, name: str, **files: bytes) -> Upstream:
        content = {"table": TABLE, "run": RUN} | files
        return self.workshop.release(name, {f"{k}.py": v for k, v in content.items()})

    def patch(
        self,
        file: str,
        base: str,
        change: Callable[[Path], object],
        fields: str = "",
        tree: str | None = None,
    ) -> None:
        self.workshop.patch(
            file, base, change, fields=f"Forwarded: not-needed\n{fields}", tree=tree
        )
        self.workshop.user_git(
            self.workshop.scratch / file, "format-patch", "-1", "--full-index", "-U1",
            "--output", str(self.patches / f"{file}.patch"),
        )  # fmt: skip
        with (self.patches / "series").open("a") as listing:
            listing.write(f"{file}.patch\n")

    def carrier(self, patches: Path | None = None) -> Carrier:
        place = patches or self.patches
        empty = self.workshop.carrier()
        return replace(empty, series=read_series(place), kept=read_resolutions(place))

    def rebase(
        self,
        upstream: Upstream,
        supported: Sequence[Upstream],
        expected: dict[tuple[str, str], str] | None = None,
        every: bool = False,
    ) -> Rebased:
        return rebase(
            self.carrier(), self.patches, upstream, supported, expected or {}, every=every
        )

    def write(self, done: Rebased) -> None:
        for name, content in done.files.items():
            if content is None:
                (self.patches / name).unlink()
            else:
                (self.patches / name).write_bytes(content)


@pytest.fixture
def bench(workshop: Workshop, tmp_path: Path) -> Bench:  # noqa: F811
    return Bench(workshop, tmp_path / "patches")


def _only(done: Rebased) -> Move:
    (move,) = done.moves
    return move


def test_what_needed_syntax_is_written_on_the_new_base(bench: Bench) -> None:
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0", table=MOVED)
    bench.patch("0001-c", "v1.0.0", _add_c, "Skip-If: exists no.py\n")
    before = [c.tree for c in bench.carrier().carry_each([old, new])]
    done = bench.rebase(new, [old, new])
    move = _only(done)
    assert move.outcome.outcome is Outcome.STRUCTURAL
    assert (move.action, move.same_payload) == (Action.REFRESHED, True)
    assert [str(line) for line in move.comparison.drift] == [
        '-    "b": 2,', '-    "d": 4,', '+    "b": 22,', '+    "dd": 44,',
    ]  # fmt: skip
    assert list(done.files) == ["0001-c.patch"]
    bench.write(done)
    (patch,) = bench.carrier().series.patches
    assert (patch.base, patch.field("Skip-If")) == ("v1.1.0", ("exists no.py",))
    carried = list(bench.carrier().carry_each([old, new]))
    assert [c.tree for c in carried] == before
    assert carried[1].outcomes[0].outcome is Outcome.CLEAN
    assert bench.rebase(new, [old, new]).files == {}


def test_lines_in_another_order_are_another_payload(bench: Bench) -> None:
    """Normed and then projected is not projected and then normed."""
    norm, proj = b"    x = norm(x)\n", b"    x = proj(x)\n"
    trees = [
        bench.release(f"v9.0.{at}", run=RUN.replace(b"    y", lines + b"    y", 1)).tree
        for at, lines in enumerate((b"", norm + proj, proj + norm))
    ]
    git = bench.workshop.git
    found = compare(payload(git, trees[0], trees[1]), payload(git, trees[0], trees[2]))
    assert found.before != found.after
    assert [str(line) for line in found.lost] == [str(line) for line in found.gained]
    assert len(found.lost) == 1, "what moved is shown"


def test_lines_in_another_file_are_another_payload(bench: Bench) -> None:
    git = bench.workshop.git
    base = bench.workshop.release("v9.0.0", {"a.py": RUN, "b.py": RUN}).tree
    added = RUN.replace(b"    y", b"    x += 1\n    y", 1)
    a = bench.workshop.release("v9.0.1", {"a.py": added, "b.py": RUN}).tree
    b = bench.workshop.release("v9.0.2", {"a.py": RUN, "b.py": added}).tree
    found = compare(payload(git, base, a), payload(git, base, b))
    assert found.before != found.after
    assert [str(line) for line in (*found.lost, *found.gained)] == ["!file a.py", "!file b.py"]


def test_a_followed_rename_is_shown_to_a_person(bench: Bench) -> None:
    old = bench.release("v1.0.0")
    new = bench.workshop.release("v1.1.0", {"table.py": TABLE, "moved.py": RUN})
    bench.patch("0001-run", "v1.0.0", _double)
    move = _only(bench.rebase(new, [old, new]))
    assert (move.outcome.outcome, move.same_payload) == (Outcome.CLEAN, False)
    assert [str(line) for line in move.comparison.gained] == ["!file moved.py"]


@given(st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"    c\n"]), min_size=1, max_size=5))
def test_a_payload_does_not_depend_on_what_stands_around(lines: list[bytes]) -> None:
    """Also where blank lines stand on one side or the other, and a diff may cut either."""
    added = [*lines, b"end\n"]
    found = set()
    for before, after in (([], []), ([b"x\n"], [b"y\n"]), ([b"x\n", b"\n"], [b"\n", b"y\n"])):
        (hunk,) = hunks([*before, *after], [*before, *added, *after])
        assert hunk.a0 == hunk.a1
        put = [*before, *added, *after][hunk.b0 : hunk.b1]
        found.add(Payload(tuple(_signed([], put)), ()).digest)
    assert len(found) == 1


def test_what_text_carries_stays_unless_all_is_asked_for(bench: Bench) -> None:
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0", run=b"")
    bench.patch("0001-c", "v1.0.0", _add_c)
    assert bench.rebase(new, [old, new]).files == {}
    done = bench.rebase(new, [old, new], every=True)
    assert _only(done).action is Action.REFRESHED
    assert done.proved == ("v1.0.0", "v1.1.0")


def test_an_older_release_is_not_robbed_of_what_the_new_one_has(bench: Bench) -> None:
    """On the new base half of the patch is there already: written on it, it would lack that."""

    def both(work: Path) -> None:
        _add_c(work)
        _double(work)

    old = bench.release("v1.0.0")
    new = bench.release("v1.1.0", table=MOVED, run=RUN.replace(b"x + 1", b"(x + 1) * 2"))
    bench.patch("0001-both", "v1.0.0", both)
    done = bench.rebase(new, [old, new])
    move = _only(done)
    assert (move.action, move.same_payload) == (Action.KEPT, False)
    assert move.note == "stays on its base: written on v1.1.0, v1.0.0 would get another tree"
    assert done.changed == (move,)
    assert done.files == {}
    assert _only(bench.rebase(new, [new])).action is Action.REFRESHED


def test_what_is_upstream_is_told_so_with_the_first_release_that_has_it(bench: Bench) -> None:
    with_c = TABLE.replace(b'    "d"', b'    "c": 3,\n    "d"')
    supported = [bench.release("v1.0.0")]
    supported += [bench.release(f"v1.{n}.0", table=with_c) for n in (1, 2, 3)]
    bench.patch("0001-c", "v1.0.0", _add_c, "Skip-If: exists no.py\n")
    before = (bench.patches / "0001-c.patch").read_bytes()
    done = bench.rebase(supported[2], supported)
    assert (_only(done).action, _only(done).note) == (Action.RECORDED, "upstream since v1.1.0")
    content = done.files["0001-c.patch"]
    field = b"Applied-Upstream: v1.1.0\n"
    assert b"Forwarded: not-needed\n" + field + b"Skip-If: exists no.py\n" in content
    assert content.replace(field, b"") == before
    bench.write(done)
    again = bench.rebase(supported[3], supported)
    assert again.files == {}
    assert _only(again).note == "upstream since v1.1.0"


def test_a_patch_goes_only_when_no_supported_release_needs_it(bench: Bench) -> None:
    with_c = TABLE.replace(b'    "d"', b'    "c": 3,\n    "d"')
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0", table=with_c)
    bench.patch("0001-c", "v1.0.0", _add_c)
    bench.patch("0002-run", "v1.0.0", _double, tree=bench.carrier().carry(old).tree)
    assert bench.rebase(new, [old, new]).moves[0].action is Action.RECORDED
    done = bench.rebase(new, [new])
    assert [m.action for m in done.moves] == [Action.DROPPED, Action.KEPT]
    assert done.moves[0].note == "upstream since v1.1.0; no release from v1.1.0 on needs it"
    assert done.files == {"0001-c.patch": None, "series": b"# ours\n0002-run.patch\n"}
    bench.write(done)
    assert bench.carrier().carry(new).outcomes[0].outcome is Outcome.CLEAN


def test_what_a_later_patch_was_written_on_stays_with_it(bench: Bench) -> None:
    """The later one's blobs are those of its base with the earlier patch."""
    with_c = TABLE.replace(b'    "d"', b'    "c": 3,\n    "d"')
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0", table=with_c)
    bench.patch("0001-c", "v1.0.0", _add_c)
    bench.patch(
        "0002-more",
        "v1.0.0",
        lambda work: (work / "table.py").write_bytes((work / "table.py").read_bytes() + b"x = 1\n"),
        tree=bench.carrier().carry(old).tree,
    )
    done = bench.rebase(new, [new])
    assert done.moves[0].action is Action.RECORDED
    assert done.moves[0].note.endswith(
        "stays: without it 0002-more.patch would not fit v1.0.0 any more"
    )
    bench.write(done)
    assert bench.carrier().carry(new).conflicts == ()


def test_patches_that_were_written_on_one_another_go_together(bench: Bench) -> None:
    with_c = TABLE.replace(b'    "d"', b'    "c": 3,\n    "d"')
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0", table=with_c + b"x = 1\n")
    bench.patch("0001-c", "v1.0.0", _add_c)
    bench.patch(
        "0002-more",
        "v1.0.0",
        lambda work: (work / "table.py").write_bytes((work / "table.py").read_bytes() + b"x = 1\n"),
        tree=bench.carrier().carry(old).tree,
    )
    bench.patch("0003-run", "v1.0.0", _double, tree=bench.carrier().carry(old).tree)
    done = bench.rebase(new, [new])
    assert [m.action for m in done.moves] == [Action.DROPPED, Action.DROPPED, Action.KEPT]
    bench.write(done)
    assert bench.carrier().carry(new).outcomes[0].name == "0003-run"


def test_what_a_commit_yet_to_be_released_needs_stays(bench: Bench) -> None:
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0")
    bench.patch("0001-c", "v1.0.0", _add_c, "Only-If: exists nightly.py\n")
    done = bench.rebase(new, [old, new])
    assert (_only(done).action, done.files) == (Action.KEPT, {})
    # But not what was written for releases that are out of support.
    assert _only(bench.rebase(new, [new])).action is Action.DROPPED


def test_a_variant_of_releases_out_of_support_goes_alone(bench: Bench) -> None:
    old = bench.release("v1.0.0", table=TABLE.replace(b"TABLE", b"OLD"))
    new, newer = bench.release("v2.0.0"), bench.release("v2.1.0")
    bench.patch("0001-c", "v2.0.0", _add_c)
    bench.patch("0001-c@v1.0.0", "v1.0.0", _add_c)
    assert bench.rebase(newer, [old, new, newer]).files == {}
    done = bench.rebase(newer, [new, newer])
    assert done.files == {"0001-c@v1.0.0.patch": None, "series": b"# ours\n0001-c.patch\n"}
    assert _only(done).action is Action.KEPT
    assert _only(done).note == "without 0001-c@v1.0.0.patch"


def test_with_a_conflict_the_rest_is_done(bench: Bench) -> None:
    old = bench.release("v1.0.0")
    new = bench.release("v1.1.0", table=MOVED, run=RUN.replace(b"x + 1", b"compute(x)"))
    bench.patch("0001-run", "v1.0.0", _double)
    bench.patch("0002-c", "v1.0.0", _add_c, tree=bench.carrier().carry(old).tree)
    done = bench.rebase(new, [old, new])
    assert [m.action for m in done.moves] == [Action.CONFLICT, Action.REFRESHED]
    assert [m.outcome.name for m in done.conflicts] == ["0001-run"]
    assert list(done.files) == ["0002-c.patch"]
    recorded = {("0001-run", "v1.1.0"): "run() is another there"}
    assert bench.rebase(new, [old, new], recorded).conflicts == ()


def test_a_kept_resolution_becomes_a_variant_at_a_release(bench: Bench, tmp_path: Path) -> None:
    """It was made at a release candidate; at the release there is a base to write it on."""
    later = RUN.replace(b"x + 1", b"compute(x)")
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0", run=later)
    bench.patch("0001-run", "v1.0.0", _double)
    candidate = replace(new, ref=parse_ref("v1.1.0rc1"))
    stop = bench.carrier().stop(candidate)
    assert stop is not None
    path = lay_out(bench.workshop.git, stop, tmp_path / "build").checkout.path
    solved = RUN.replace(b"x + 1", b"compute(x) * 2")
    (path / "run.py").write_bytes(solved)
    refresh(bench.carrier(), candidate, path, bench.patches)
    done = bench.rebase(new, [old, new])
    move = _only(done)
    assert (move.action, move.same_payload) == (Action.VARIANT, False)
    assert move.note == "solved by a person at v1.1.0rc1; written on v1.1.0 beside the others"
    assert list(done.files) == ["0001-run@v1.1.0.patch", "series"]
    bench.write(done)
    carried = bench.carrier().carry(new)
    assert carried.outcomes[0].outcome is Outcome.CLEAN
    assert bench.workshop.git.object(f"{carried.commit}:run.py")[2] == solved
    assert bench.carrier().carry(old).outcomes[0].file == "0001-run.patch"


def test_on_what_is_no_release_nothing_is_written(bench: Bench) -> None:
    old, new = bench.release("v1.0.0"), bench.release("v1.1.0", table=MOVED)
    with_c = bench.release("v1.2.0", table=TABLE.replace(b'    "d"', b'    "c": 3,\n    "d"'))
    bench.patch("0001-c", "v1.0.0", _add_c)
    for upstream, outcome in ((new, Outcome.STRUCTURAL), (with_c, Outcome.UPSTREAMED)):
        done = bench.rebase(replace(upstream, ref=parse_ref("main")), [old])
        assert (_only(done).outcome.outcome, done.files) == (outcome, {})


def test_a_field_is_added_where_the_message_ends_and_not_where_the_diff_says_so(
    bench: Bench,
) -> None:
    bench.release("v1.0.0")

    def quote(work: Path) -> None:
        (work / "run.py").write_bytes(RUN + b"# Base: v0.0.1\n# Forwarded: no\n")

    bench.patch("0001-quote", "v1.0.0", quote)
    content = (bench.patches / "0001-quote.patch").read_bytes()
    crlf = content.replace(b"\nForwarded: not-needed\n", b"\r\nForwarded: not-needed\r\n")
    for text in (content, crlf):
        made = with_applied(text, "v1.1.0")
        patch = parse_patch("0001-quote.patch", made)
        assert patch.field("Applied-Upstream") == ("v1.1.0",)
        assert made.count(b"Applied-Upstream") == 1
        assert patch.diff == parse_patch("0001-quote.patch", text).diff
