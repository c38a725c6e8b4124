"""What the checker says about upstream's own EXAONE-4.5, whose breaks are known.

``EVERY_RELEASE=1`` takes every release of a window, else its ends.
"""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tools.contract import ContractReport
from tools.contract.check import check
from tools.contract.dependencies import WheelIndex
from tools.contract.since import bisect_since
from tools.git import GitTree
from tools.settings import CACHE_VARIABLE, Settings
from tools.tree import Tree
from tools.upstream import Store, obtain
from tools.upstream.index import Index

pytestmark = pytest.mark.network

MODULES = ["vllm/model_executor/models/exaone4_5*.py"]
INSIDE = ("v0.29.0", "v0.30.0", "v0.31.0") if os.environ.get("EVERY_RELEASE") else ()
GetTree = Callable[[str], Tree]
GetReport = Callable[[str], ContractReport]


@pytest.fixture(scope="module")
def stock(shared_cache: Path) -> Iterator[GetTree]:
    """Return a function that gives a release's tree from the store that tests share."""
    settings = Settings.load(environment=os.environ | {CACHE_VARIABLE: str(shared_cache)})
    with Store.open(settings) as store:
        yield lambda ref: GitTree(store.git, obtain(store, ref).commit)


@pytest.fixture(scope="module")
def report(stock: GetTree, shared_cache: Path) -> GetReport:
    """Return a function that gives the report of a stock release; each is checked once."""
    wheels = WheelIndex(Index.configured(shared_cache), shared_cache)
    return cache(lambda ref: check(stock(ref), modules=MODULES, dependencies=wheels))


def about(report: ContractReport, code: str) -> list[str]:
    assert report.unchecked == ()
    return [finding.message for finding in report.findings if finding.code.code == code]


@pytest.mark.parametrize(
    ("ref", "there"), [("v0.20.0", True), ("v0.21.0", True), ("v0.22.0", False)]
)
def test_the_processor_that_no_transformers_has(report: GetReport, ref: str, there: bool):
    nowhere = [text for text in about(report(ref), "CT103") if "in any version" in text]
    assert len(nowhere) == there
    assert all("transformers.models.exaone4_5 has no" in text for text in nowhere)


@pytest.mark.parametrize(("ref", "reads"), [("v0.20.0", 9), ("v0.21.0", 9), ("v0.22.0", 1)])
def test_the_drafters_reads_of_the_top_level_config(report: GetReport, ref: str, reads: int):
    found = about(report(ref), "CT231")
    assert len(found) == reads
    layers = [text for text in found if "reads `num_hidden_layers`" in text]
    assert len(layers) == (reads > 1)


@pytest.mark.parametrize(
    ("ref", "there"),
    [("v0.21.0", False), ("v0.22.0", True), ("v0.23.0", True), ("v0.24.0", False)],
)
def test_sequence_lengths_that_a_block_does_not_take(report: GetReport, ref: str, there: bool):
    found = about(report(ref), "CT201")
    assert len(found) == there
    assert all("does not take `sequence_lengths`" in text for text in found)


@pytest.mark.parametrize(
    ("ref", "there"),
    [
        ("v0.27.1", False),
        ("v0.28.0", True),
        *((ref, True) for ref in INSIDE),
        ("v0.32.0", True),
        ("v0.33.0", False),
    ],
)
def test_the_normalisation_switch_that_the_model_does_not_serve(
    report: GetReport, ref: str, there: bool
):
    found = about(report(ref), "CT221")
    assert len(found) == there
    assert all("supports_mm_device_do_normalize" in text for text in found)


@pytest.mark.parametrize(
    ("ref", "there"),
    [("v0.20.0", True), ("v0.23.0", True), *((r, True) for r in INSIDE), ("v0.33.0", False)],
)
def test_the_pruning_rate_that_nothing_sets(report: GetReport, ref: str, there: bool):
    found = [text for text in about(report(ref), "CT211") if "video_pruning_rate" in text]
    assert len(found) == there


def test_a_finding_is_dated_to_the_release_that_brought_it(stock: GetTree, report: GetReport):
    refs = ["v0.20.0", "v0.22.0", "v0.23.0"]
    releases = [(ref, lambda ref=ref: stock(ref)) for ref in refs]
    dated = bisect_since(report("v0.23.0"), releases, modules=MODULES)
    assert {f.code.code: f.since for f in dated.findings if f.since} == {
        "CT201": "v0.22.0",
        "CT211": "v0.20.0",
        "CT212": "v0.20.0",
    }
