"""Whole carried trees: every file compiles, and what may stand once stands once.

``EVERY_RELEASE=1`` takes all releases from v0.11.0 on (a few minutes), else one of each window.
"""

import os
import re

import pytest

from tools.cli.common import Project
from tools.git import GitTree
from tools.maintain import releases_since
from tools.smoke.verify import engine_releases
from tools.upstream.index import Index

pytestmark = [
    pytest.mark.network,
    # Of upstream's own strings, by whichever name this Python warns of them.
    pytest.mark.filterwarnings("ignore:invalid escape sequence"),
]

WINDOWS = ("v0.11.0", "v0.19.1", "v0.23.0", "v0.32.0", "v0.33.0")
REGISTRY = "vllm/model_executor/models/registry.py"
DOCUMENT = "docs/models/supported_models.md"


@pytest.fixture
def project(real_releases: object) -> Project:
    return Project()


def _refs() -> tuple[str, ...]:
    if not os.environ.get("EVERY_RELEASE"):
        return WINDOWS
    return tuple(releases_since(Project().store, "v0.11.0"))


@pytest.mark.parametrize("ref", _refs())
def test_the_whole_carried_tree_compiles_and_says_nothing_twice(project: Project, ref: str) -> None:
    carried = project.carrier.carry(project.obtain(ref), keep=True)
    assert not carried.conflicts
    tree = GitTree(project.store.git, carried.commit)
    count = 0
    for path in tree.paths("vllm/"):
        if path.endswith(".py"):
            source = tree.read(path)
            assert source is not None
            compile(source, path, "exec", dont_inherit=True)
            count += 1
    assert count > 900
    registry = (tree.read(REGISTRY) or b"").decode()
    for name in ("Exaone4_5_ForConditionalGeneration", "Exaone4_5_MTP"):
        assert len(re.findall(rf'^\s*"{name}": ', registry, re.MULTILINE)) == 1
    rows = re.findall(
        rb"^\| `?Exaone4_5_ForConditionalGeneration`? ", tree.read(DOCUMENT) or b"", re.MULTILINE
    )
    assert len(rows) == 1


@pytest.mark.skipif(not os.environ.get("EVERY_RELEASE"), reason="EVERY_RELEASE=1 runs it")
def test_every_series_that_a_release_gets_is_verified_on_every_change(project: Project) -> None:
    refs = engine_releases(Index.configured(project.settings.cache), "cpu")
    series = {
        one.upstream.ref.name: frozenset(o.name for o in one.outcomes if o.commit)
        for one in project.carrier.carry_each(map(project.obtain, refs))
    }
    verified = {series[ref] for ref in project.settings.verify_on_change}
    assert {ref for ref, patches in series.items() if patches not in verified} == set()
