"""The contract of carried trees: what is checked, what is kept, and when it is checked again."""

from pathlib import Path

import pytest

from tests.unit.carry.conftest import Workshop, workshop  # noqa: F401  (the fixture)
from tools.carry import Carrier
from tools.contract import ContractReport
from tools.contract import check as checker
from tools.errors import CheckFailed
from tools.maintain.contracts import ContractWish, carried_contract, check_each
from tools.overlay import Overlay, OverlayFile
from tools.upstream import Upstream

TARGET = "vllm/models/ours.py"
OURS = b"from vllm.layers import build\n\n\ndef run(x):\n    return build(x, 1)\n"
BASE = {
    "vllm/__init__.py": b"",
    "vllm/models/__init__.py": b"",
    "vllm/layers.py": b"def build(size, depth):\n    return size\n",
    "vllm/models/theirs.py": b"from vllm.layers import gone\n",
}
BROKEN = BASE | {"vllm/layers.py": b"def build(size, depth, width):\n    return size\n"}


def _overlay() -> Overlay:
    return Overlay((OverlayFile("ours.py", TARGET, "", OURS, (), ()),))


@pytest.fixture
def carrying(workshop: Workshop) -> tuple[Carrier, list[Upstream]]:  # noqa: F811
    """A carrier of the overlay alone, a release that it fits and one that it does not."""
    upstreams = [workshop.release("v1.0.0", BASE), workshop.release("v1.1.0", BROKEN)]
    return workshop.carrier(overlay=_overlay()), upstreams


def _report(carrier: Carrier, upstream: Upstream, cache: Path) -> ContractReport | None:
    return carrier.look(upstream, lambda carried, tree: carried_contract(cache, carried, tree))


def _codes(report: ContractReport | None) -> list[str]:
    assert report is not None
    return [finding.code.code for finding in report.findings]


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that checks a tree."""

    def check(*_args: object, **_options: object) -> ContractReport:
        raise AssertionError("the tree was checked again")

    monkeypatch.setattr(checker, "check", check)


def test_the_carried_tree_is_checked_overlay_included(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    carrier, (fits, breaks) = carrying
    assert _codes(_report(carrier, fits, tmp_path)) == []
    assert _codes(_report(carrier, breaks, tmp_path)) == ["CT202"]


def test_a_checked_tree_is_not_checked_again(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    carrier, (_, breaks) = carrying
    first = _report(carrier, breaks, tmp_path)
    request.getfixturevalue("never")
    assert _report(carrier, breaks, tmp_path) == first


def test_another_tree_is_checked(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    carrier, (fits, breaks) = carrying
    _report(carrier, fits, tmp_path)
    request.getfixturevalue("never")
    with pytest.raises(AssertionError, match="checked again"):
        _report(carrier, breaks, tmp_path)


def test_what_the_index_could_not_say_is_asked_again(
    workshop: Workshop,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a network the rest is checked and reported, and nothing is kept."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    files = BASE | {"requirements/common.txt": b"einops\n"}
    ours = OverlayFile("ours.py", TARGET, "", b"import einops\n", (), ())
    upstream = workshop.release("v1.0.0", files)
    carrier = workshop.carrier(overlay=Overlay((ours,)))
    report = _report(carrier, upstream, tmp_path / "cache")
    assert report is not None
    assert [line.partition(":")[0] for line in report.unchecked] == ["einops"]
    assert not list((tmp_path / "cache").rglob("reports/*.json"))


def test_a_ref_without_the_overlay_has_nothing_to_check(
    workshop: Workshop,  # noqa: F811
    tmp_path: Path,
    never: None,
) -> None:
    upstream = workshop.release("v1.0.0", {"vllm/__init__.py": b""})
    assert _report(workshop.carrier(), upstream, tmp_path) == ContractReport((), ())


def test_half_a_series_is_not_checked(
    workshop: Workshop,  # noqa: F811
    tmp_path: Path,
    never: None,
) -> None:
    def change(work: Path) -> None:
        (work / "vllm/layers.py").write_bytes(BASE["vllm/layers.py"] + b"other = 1\n")

    workshop.release("v1.0.0", BASE)
    gone = workshop.release("v1.1.0", {"vllm/__init__.py": b""})
    carrier = workshop.carrier(workshop.patch("0001-x", "v1.0.0", change), overlay=_overlay())
    assert _report(carrier, gone, tmp_path) is None
    with pytest.raises(CheckFailed, match=r"v1\.1\.0"):
        list(check_each(carrier, [gone], ContractWish(), tmp_path, lambda _line: None))


def test_refs_are_checked_as_wished(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    carrier, upstreams = carrying

    def codes(wish: ContractWish) -> list[set[str]]:
        done = check_each(carrier, upstreams, wish, tmp_path, lambda _line: None)
        return [set(_codes(report)) for report in done]

    theirs = ("vllm/models/theirs.py",)
    assert codes(ContractWish()) == [set(), {"CT202"}]
    assert codes(ContractWish(stock=True)) == [set(), set()]
    assert codes(ContractWish(stock=True, package=theirs)) == [{"CT102"}, {"CT102"}]
    assert codes(ContractWish(baseline=upstreams[0].commit)) == [set(), {"CT202", "CT305"}]


def test_findings_are_dated_within_the_history(
    carrying: tuple[Carrier, list[Upstream]], tmp_path: Path
) -> None:
    carrier, upstreams = carrying
    wish = ContractWish(True, ("vllm/models/theirs.py",), history=tuple(upstreams))
    done = list(check_each(carrier, upstreams, wish, tmp_path, lambda _line: None))
    assert [[finding.since for finding in report.findings] for report in done] == [
        [None],
        ["v1.0.0"],
    ]
