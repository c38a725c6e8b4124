"""What the checker says about upstream's own releases, whose breaks are known."""

import random
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import pytest

from tests.contract_mutations import Edited, Mutation, generate
from tools.contract import ContractReport
from tools.contract.check import check
from tools.contract.dependencies import WheelIndex
from tools.contract.since import bisect_since
from tools.git import GitTree
from tools.settings import Settings
from tools.tree import Tree
from tools.upstream import Store, obtain
from tools.upstream.index import Index

pytestmark = pytest.mark.network

MODULES = ["vllm/model_executor/models/exaone4_5*.py"]
CLIENT = [
    "vllm/model_executor/models/exaone4_5.py",
    "vllm/model_executor/models/exaone4_5_mtp.py",
]
GetTree = Callable[[str], Tree]


@pytest.fixture
def stock(real_releases: Path) -> Iterator[GetTree]:
    """Return a function that gives a release's tree from the store that tests share."""
    with Store.open(Settings.load()) as store:
        yield lambda ref: GitTree(store.git, obtain(store, ref).commit)


@pytest.fixture
def wheels(real_releases: Path) -> WheelIndex:
    return WheelIndex(Index.configured(real_releases), real_releases)


def about(report: ContractReport, code: str) -> list[str]:
    return [finding.message for finding in report.findings if finding.code.code == code]


@pytest.mark.parametrize(
    ("ref", "there"), [("v0.20.0", True), ("v0.21.0", True), ("v0.22.0", False)]
)
def test_the_processor_that_no_transformers_has(
    stock: GetTree, wheels: WheelIndex, ref: str, there: bool
):
    report = check(stock(ref), modules=MODULES, dependencies=wheels)
    assert report.unchecked == ()
    nowhere = [text for text in about(report, "CT103") if "in any version" in text]
    assert len(nowhere) == there
    assert all("transformers.models.exaone4_5 has no" in text for text in nowhere)


@pytest.mark.parametrize(("ref", "reads"), [("v0.20.0", 9), ("v0.21.0", 9), ("v0.22.0", 1)])
def test_the_drafters_reads_of_the_top_level_config(
    stock: GetTree, wheels: WheelIndex, ref: str, reads: int
):
    found = about(check(stock(ref), modules=MODULES, dependencies=wheels), "CT231")
    assert len(found) == reads
    layers = [text for text in found if "reads `num_hidden_layers`" in text]
    assert len(layers) == (reads > 1)


@pytest.mark.parametrize(
    ("ref", "there"),
    [("v0.21.0", False), ("v0.22.0", True), ("v0.23.0", True), ("v0.24.0", False)],
)
def test_sequence_lengths_that_a_block_does_not_take(stock: GetTree, ref: str, there: bool):
    found = about(check(stock(ref), modules=MODULES), "CT201")
    assert len(found) == there
    assert all("does not take `sequence_lengths`" in text for text in found)


@pytest.mark.parametrize(
    ("ref", "there"),
    [
        ("v0.27.1", False),
        ("v0.28.0", True),
        ("v0.29.0", True),
        ("v0.30.0", True),
        ("v0.31.0", True),
        ("v0.32.0", True),
        ("v0.33.0", False),
    ],
)
def test_the_normalisation_switch_that_the_model_does_not_serve(
    stock: GetTree, ref: str, there: bool
):
    found = about(check(stock(ref), modules=MODULES), "CT221")
    assert len(found) == there
    assert all("supports_mm_device_do_normalize" in text for text in found)


def test_a_finding_is_dated_to_the_release_that_brought_it(stock: GetTree):
    refs = ["v0.19.1", "v0.20.0", "v0.21.0", "v0.22.0", "v0.23.0"]
    releases = [(ref, lambda ref=ref: stock(ref)) for ref in refs]
    report = bisect_since(check(stock("v0.23.0"), modules=MODULES), releases, modules=MODULES)
    assert {f.code.code: f.since for f in report.findings} == {
        "CT201": "v0.22.0",
        "CT211": "v0.20.0",
        "CT212": "v0.20.0",
    }


def test_upstreams_own_models_have_true_findings(stock: GetTree):
    report = check(stock("v0.28.0"), modules=["vllm/model_executor/models/*.py"])
    known = {
        # Upstream fixed each later: the tower takes the metadata, the models serve the switch.
        ("CT201", "vllm/model_executor/models/glm_ocr.py"),
        ("CT221", "vllm/model_executor/models/opencua.py"),
        ("CT221", "vllm/model_executor/models/exaone4_5.py"),
    }
    assert known <= {(finding.code.code, finding.path) for finding in report.findings}
    assert len(report.errors) < 60


def chosen(mutations: list[Mutation], count: int, seed: int) -> list[Mutation]:
    """Return mutations of every kind in turn, drawn by a fixed seed."""
    draw = random.Random(seed)
    kinds: dict[str, list[Mutation]] = {}
    for mutation in mutations:
        kinds.setdefault(mutation.kind, []).append(mutation)
    for group in kinds.values():
        draw.shuffle(group)
    taken: list[Mutation] = []
    for kind in cycle(sorted(kinds)):
        if len(taken) == count or not any(kinds.values()):
            return taken
        if kinds[kind]:
            taken.append(kinds[kind].pop())
    return taken


def test_generated_breaks_in_base_classes_are_found(stock: GetTree):
    base = stock("v0.33.0")
    mutations = chosen(generate(base, CLIENT), 30, seed=1)
    assert len({mutation.kind for mutation in mutations}) >= 7
    clean = {finding.key for finding in check(base, modules=CLIENT, baseline=base).findings}
    missed = [
        mutation.label
        for mutation in mutations
        if all(
            finding.key in clean
            for finding in check(
                Edited(base, mutation.files), modules=CLIENT, baseline=base
            ).findings
        )
    ]
    assert len(missed) <= 2, missed
