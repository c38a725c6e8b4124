"""How long merges of single files take."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tools.merge import merge_file, merge_text
from tools.merge.syntax import Source

ENTRIES = 400
BASE = b"MODELS = {\n" + b"".join(
    b'    "Model%dForCausalLM": ("model_%d", "Model%dForCausalLM"),\n' % (k, k, k)
    for k in range(ENTRIES)
) + b"}\n" + b"".join(
    b"\n\ndef run_%d(first, second=%d):\n    value = call(first, second)\n"
    b"    if value:\n        return [value, %d]\n    return None\n" % (k, k, k)
    for k in range(150)
)  # fmt: skip
ANCHOR = b'    "Model200ForCausalLM"'
PATCHED = BASE.replace(ANCHOR, b'    "New": ("new", "New"),\n' + ANCHOR)


def target(number: int, *, near: bool) -> bytes:
    """Upstream, different each time, so that nothing is answered from a cache."""
    data = BASE.replace(b"value = call", b"value = other_call_%d" % number)
    if near:
        data = data.replace(ANCHOR, b'    "Their%d": ("t", "T"),\n' % number + ANCHOR)
    return data


@pytest.mark.parametrize("near", [False, True], ids=["text", "structure"])
def test_merge_one_file(benchmark: BenchmarkFixture, near: bool) -> None:
    numbers = iter(range(10**6))

    def setup() -> tuple[tuple[str, bytes, bytes, bytes], dict[str, object]]:
        return ("m.py", BASE, PATCHED, target(next(numbers), near=near)), {}

    done = benchmark.pedantic(merge_file, setup=setup, rounds=20, warmup_rounds=1)
    assert not done.conflicts


def test_merge_lines(benchmark: BenchmarkFixture) -> None:
    numbers = iter(range(10**6))

    def setup() -> tuple[tuple[bytes, bytes, bytes], dict[str, object]]:
        return (BASE, PATCHED, target(next(numbers), near=False)), {}

    assert benchmark.pedantic(merge_text, setup=setup, rounds=20, warmup_rounds=1)


def test_parse_beside_a_near_file(benchmark: BenchmarkFixture) -> None:
    near = Source(BASE)
    assert benchmark(Source, PATCHED, near).parses
