"""How long a check takes: under 5 s for a few modules, under 60 s for all of upstream's models."""

from pathlib import Path
from typing import Any

import pytest

from tools.contract.check import check
from tools.git import GitTree
from tools.settings import Settings
from tools.upstream import Store, obtain

pytestmark = pytest.mark.network


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("vllm/model_executor/models/exaone4_5*.py", 5),
        ("vllm/model_executor/models/*.py", 60),
    ],
)
def test_a_release_is_checked_in_seconds(
    benchmark: Any, real_releases: Path, pattern: str, limit: int
):
    with Store.open(Settings.load()) as store:
        tree = GitTree(store.git, obtain(store, "v0.33.0").commit)
        list(tree.paths())
        benchmark.pedantic(lambda: check(tree, modules=[pattern]), rounds=1)
    assert benchmark.stats.stats.max < limit
