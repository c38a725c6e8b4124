"""What the checker finds in upstream's own models, and of breaks that are made in base classes.

``EVERY_RELEASE=1`` makes 30 breaks, else one of each kind.
"""

import os
import random
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from tests.contract_mutations import Edited, Mutation, generate
from tools.contract.check import check
from tools.git import GitTree
from tools.settings import Settings
from tools.upstream import Store, obtain

pytestmark = pytest.mark.network

CLIENT = [
    "vllm/model_executor/models/exaone4_5.py",
    "vllm/model_executor/models/exaone4_5_mtp.py",
]
BREAKS, MISSED = (30, 2) if os.environ.get("EVERY_RELEASE") else (9, 1)


@pytest.fixture
def store(real_releases: Path) -> Iterator[Store]:
    with Store.open(Settings.load()) as opened:
        yield opened


def test_upstreams_own_models_have_true_findings(store: Store):
    tree = GitTree(store.git, obtain(store, "v0.28.0").commit)
    report = check(tree, modules=["vllm/model_executor/models/*.py"])
    known = {
        ("CT201", "vllm/model_executor/models/glm_ocr.py"),  # takes the metadata from v0.29.0 on
        ("CT221", "vllm/model_executor/models/exaone4_5.py"),  # serves the switch in v0.33.0
        ("CT221", "vllm/model_executor/models/opencua.py"),  # not yet
    }
    assert known <= {(finding.code.code, finding.path) for finding in report.findings}
    assert len(report.errors) < 30


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


def test_generated_breaks_in_base_classes_are_found(store: Store):
    base = GitTree(store.git, obtain(store, "v0.33.0").commit)
    mutations = chosen(generate(base, CLIENT), BREAKS, seed=1)
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
    assert len(missed) <= MISSED, missed
