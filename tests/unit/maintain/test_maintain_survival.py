"""How long patches live over a small upstream, and what their headers may say."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.carry.conftest import WHO, Workshop, workshop  # noqa: F401  (the fixture)
from tools.carry import Outcome, PatchOutcome
from tools.errors import BadInput
from tools.git import Commit
from tools.maintain.survival import End, Survival, check_fields, survive
from tools.report.survival import survival_data, survival_page, survival_text
from tools.series import Patch
from tools.upstream import Upstream

TABLE = b'TABLE = {\n    "a": 1,\n    "b": 2,\n    "d": 4,\n}\n'
MOVED = TABLE.replace(b'"a": 1', b'"a": 10').replace(b'"d": 4', b'"e": 5')
# Ten days from one to the next.
RELEASES = {
    "v1.0.0": {"m.py": TABLE},
    "v1.1.0": {"m.py": b"import os\n" + TABLE},
    "v1.2.0": {"m.py": MOVED},  # syntax is needed
    "v1.3.0": {"keep.py": b""},  # the file is gone: conflict
    "v1.4.0": {"m.py": MOVED.replace(b'    "e"', b'    "c": 3,\n    "e"')},  # upstream has it
}
DAY = 86_400


def _add_c(work: Path) -> None:
    file = work / "m.py"
    for name in (b'    "d"', b'    "e"'):
        file.write_bytes(file.read_bytes().replace(name, b'    "c": 3,\n' + name))


@pytest.fixture
def releases(workshop: Workshop) -> list[Upstream]:  # noqa: F811
    found = []
    for number, (name, files) in enumerate(RELEASES.items()):
        upstream = workshop.release(name, files)
        who = replace(WHO, when=WHO.when + number * 10 * DAY)
        commit = workshop.git.write_commit(Commit(upstream.tree, (), who, WHO, b"dated\n"))
        workshop.git.update_ref(f"refs/upstream/index/{name}", commit)
        workshop.releases[name] = commit
        found.append(replace(upstream, commit=commit))
    return found


def follow(workshop: Workshop, releases: list[Upstream], *patches: Patch) -> Survival:  # noqa: F811
    return survive(workshop.carrier(*patches), releases, "v1.0.0")


def test_a_life_is_on_text_then_on_syntax_until_a_person_is_needed(
    workshop: Workshop,  # noqa: F811
    releases: list[Upstream],
) -> None:
    patch = workshop.patch("0001-add", "v1.0.0", _add_c, fields="Forwarded: no\n")
    (life,) = follow(workshop, releases, patch).lives
    assert (life.text.releases, life.text.days) == (2, 20)
    assert (life.whole.releases, life.whole.days) == (3, 30)
    assert (life.end, life.ended) == (End.CONFLICT, "v1.3.0")
    assert life.born.ref == "v1.0.0"


def test_a_variant_and_its_patch_live_apart(
    workshop: Workshop,  # noqa: F811
    releases: list[Upstream],
) -> None:
    """The variant is the nearer one at v1.2.0, but the patch itself did not die there."""
    first = workshop.patch("0001-add", "v1.0.0", _add_c)
    variant = workshop.patch("0001-add@v1.2.0", "v1.2.0", _add_c)
    old, new = follow(workshop, releases, first, variant).lives
    assert (old.file, old.whole.releases, old.ended) == ("0001-add.patch", 3, "v1.3.0")
    assert (new.file, new.text.releases, new.ended) == ("0001-add@v1.2.0.patch", 1, "v1.3.0")
    assert new.text.days == 10


def test_what_is_alive_has_lived_until_the_newest_release(
    workshop: Workshop,  # noqa: F811
    releases: list[Upstream],
) -> None:
    patch = workshop.patch("0001-new", "v1.0.0", lambda work: (work / "x.py").write_bytes(b"1\n"))
    (life,) = follow(workshop, releases, patch).lives
    assert (life.end, life.ended) == (End.ALIVE, "")
    assert (life.text.releases, life.text.days) == (5, 40)


def test_what_no_supported_release_needs_may_go(
    workshop: Workshop,  # noqa: F811
    releases: list[Upstream],
) -> None:
    gone = workshop.patch("0001-add", "v1.0.0", _add_c, fields="Only-If: exists m.py\n")
    kept = workshop.patch("0002-new", "v1.0.0", lambda work: (work / "x.py").write_bytes(b"1\n"))
    carrier = workshop.carrier(gone, kept)
    assert survive(carrier, releases, "v1.2.0").droppable == ()
    (found,) = survive(carrier, releases, "v1.3.0").droppable
    assert found.patch == "0001-add"
    assert "on all 2 releases from v1.3.0 on" in found.why
    with pytest.raises(BadInput, match="no releases"):
        survive(carrier, [], "v1.0.0")


def patch_with(workshop: Workshop, *fields: str) -> Patch:  # noqa: F811
    workshop.release("v1.0.0", RELEASES["v1.0.0"])
    lines = "".join(f"{field}\n" for field in fields)
    return workshop.patch("0001-add", "v1.0.0", _add_c, fields=lines)


def rows(*outcomes: Outcome) -> list[tuple[str, PatchOutcome]]:
    return [
        (f"v1.{number}.0", PatchOutcome("0001-add", "0001-add.patch", "", outcome, "a rule"))
        for number, outcome in enumerate(outcomes)
    ]


CLEAN, UP, NOT = Outcome.CLEAN, Outcome.UPSTREAMED, Outcome.NOT_NEEDED


@pytest.mark.parametrize(
    ("fields", "outcomes", "messages"),
    [
        (("Forwarded: no",), (CLEAN, CLEAN), ()),
        (("Forwarded: https://host.invalid/1", "Applied-Upstream: v1.1.0"), (CLEAN, UP), ()),
        (("Forwarded: yes", "Applied-Upstream: v1.1.0"), (CLEAN, NOT), ()),
        (("Forwarded: yes", "Applied-Upstream: #12"), (CLEAN, CLEAN), ()),
        ((), (CLEAN,), ("is missing: say no",)),
        (("Forwarded: maybe",), (CLEAN,), ("'maybe' is not",)),
        (("Forwarded: no", "Applied-Upstream: v1.1.0"), (CLEAN, UP), ("says no, but",)),
        (("Forwarded: yes", "Applied-Upstream: v1.1.0"), (CLEAN, CLEAN), ("v1.1.0 still needs",)),
        (("Forwarded: yes", "Applied-Upstream: v1.2.0"), (CLEAN, UP, UP), ("v1.1.0 has it",)),
        (("Forwarded: no",), (CLEAN, UP), ("the carry finds it in v1.1.0",)),
        (
            ("Forwarded: yes", "Applied-Upstream: v1.1.0", "Applied-Upstream: #3"),
            (CLEAN, UP),
            ("names 2 places",),
        ),
    ],
)
def test_fields_are_compared_with_the_carry(
    workshop: Workshop,  # noqa: F811
    fields: tuple[str, ...],
    outcomes: tuple[Outcome, ...],
    messages: tuple[str, ...],
) -> None:
    found = check_fields(patch_with(workshop, *fields), rows(*outcomes))
    assert len(found) == len(messages)
    for one, message in zip(found, messages, strict=True):
        assert message in one.text


@given(st.lists(st.sampled_from(list(Outcome)), min_size=1, max_size=8), st.integers(0, 8))
def test_a_true_field_stays_true_when_releases_before_it_are_looked_at(
    outcomes: list[Outcome], applied: int
) -> None:
    """What is untrue on a run of releases is untrue on every longer run."""
    from tools.git import Person  # noqa: PLC0415

    named = (("Forwarded", "yes"), ("Applied-Upstream", f"v1.{applied}.0"))
    patch = Patch(
        "0001-a.patch", "0001-a", Person("A", "a@b", 0), "s", "", "v1.0.0", named, (), (), b""
    )
    found = [bool(check_fields(patch, rows(*outcomes[:end]))) for end in range(len(outcomes) + 1)]
    assert found == sorted(found)


def test_all_forms_show_the_same(workshop: Workshop, releases: list[Upstream]) -> None:  # noqa: F811
    patch = workshop.patch("0001-add", "v1.0.0", _add_c)
    found = follow(workshop, releases, patch)
    console = Console(width=120, record=True)
    console.print(survival_text(found))
    text, page, data = console.export_text(), survival_page(found), survival_data(found)
    for shown in (text, page):
        assert "conflict at v1.3.0" in shown
        assert "is missing: say no" in shown
    assert data["lives"][0]["whole"] == {"releases": 3, "days": 30}
    assert data["releases"][3]["conflict"] == 1
    assert [one["field"] for one in data["untrue"]] == ["Forwarded", "Applied-Upstream"]
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", ""), "nothing beside it is needed"
    assert page.count('class="structural"') >= 2, "in the bars of the trend and of the life"
