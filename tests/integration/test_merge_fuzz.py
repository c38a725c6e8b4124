"""Merges of random edits to fragments of real releases.

``MERGE_FUZZ_EXAMPLES`` says how many; 20,000 take a few minutes.
"""

import os
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.merge_edits import edited, fragments
from tools.cli.common import Project
from tools.git import GitTree
from tools.merge import merge_file

pytestmark = pytest.mark.network

EXAMPLES = int(os.environ.get("MERGE_FUZZ_EXAMPLES", "300"))
RELEASES = ("v0.10.2", "v0.19.1", "v0.33.0")
FILES = (
    "vllm/model_executor/models/registry.py",
    "vllm/model_executor/models/exaone4.py",
    "vllm/model_executor/models/qwen2_5_vl.py",
    "vllm/config/speculative.py",
    "vllm/transformers_utils/config.py",
    "vllm/v1/spec_decode/eagle.py",
    "vllm/v1/worker/gpu_model_runner.py",
    "vllm/engine/arg_utils.py",
    "tests/models/registry.py",
)


@pytest.fixture(scope="module")
def pieces(shared_cache: Path) -> list[str]:
    """Runs of top-level statements from files that patches of this kind touch."""
    patch = pytest.MonkeyPatch()
    patch.setenv("VLLM_EXAONE_CACHE", str(shared_cache))
    project = Project()
    patch.undo()
    found: list[str] = []
    for ref in RELEASES:
        tree = GitTree(project.store.git, project.obtain(ref).commit)
        for path in FILES:
            data = tree.read(path)
            found += fragments(data.decode()) if data else []
    project.store.close()
    assert len(found) > 50
    return found


def drawn(pieces: list[str], seed: int, *, upstream: bool) -> tuple[bytes, bytes, bytes]:
    """Return base, patched and target; one number says it all, so an example is small to keep."""
    pick = random.Random(seed).randrange
    base = pieces[pick(len(pieces))]
    patched = edited(base, pick, count=1 + pick(3), prefix="ours", upstream=False)
    target = edited(base, pick, count=pick(6), prefix="theirs", upstream=upstream)
    return base.encode(), patched.encode(), target.encode()


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=False,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 2**64 - 1), upstream=st.booleans())
def test_random_edits_of_real_code(pieces: list[str], seed: int, upstream: bool) -> None:
    b, o, t = drawn(pieces, seed, upstream=upstream)
    done = merge_file("m.py", b, o, t)
    assert bool(done.conflicts) != bool(done.files)
    assert merge_file("m.py", b, b, t).files == {"m.py": t}
    assert merge_file("m.py", b, o, b).files == {"m.py": o}
    assert merge_file("m.py", b, t, t).files == {"m.py": t}
    if not done.conflicts:
        merged = done.files["m.py"]
        compile(merged, "<merged>", "exec", dont_inherit=True)
        for side in (o, t):
            for name in set(re.findall(rb"(?:ours|theirs)\d", side)):
                assert merged.count(name) == side.count(name)
    if not upstream:
        other = merge_file("m.py", b, t, o)
        if not done.conflicts and not other.conflicts:
            words = [sorted(re.findall(rb"\w+", x.files["m.py"])) for x in (done, other)]
            assert words[0] == words[1]


def test_both_sides_see_the_same_outcome(pieces: list[str]) -> None:
    """Where look-alikes are beyond doubt from one side alone, the other side may conflict.

    Strictly the same cannot be asked of syntax, which brings a patch to a target and not the
    target's history to the patch: of the series' 35 merges by syntax on real releases 16 conflict
    with patch and release exchanged.
    """
    one_sided = 0
    for seed in range(EXAMPLES):
        b, o, t = drawn(pieces, seed, upstream=False)
        ways = merge_file("m.py", b, o, t), merge_file("m.py", b, t, o)
        one_sided += bool(ways[0].conflicts) != bool(ways[1].conflicts)
    assert one_sided <= EXAMPLES // 200
