"""What holds for every merge, on sources made up here; the releases are used in integration."""

import re
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.merge_edits import edited, fragments
from tools.merge import FileMerge, merge_file

SOURCES = [
    dedent('''\
        """A module."""

        import os
        from typing import (
            Any,
            Literal,
        )

        KINDS = ("alpha", "beta", "gamma")
        Names = Literal["one", "two", "three"]  # said twice
        MODELS = {
            # [first]
            "Alpha": ("alpha", "AlphaModel"),
            "Beta": ("beta", "BetaModel"),  # a note
            # [second]
            "Gamma": (
                "gamma",
                "GammaModel",
            ),
        }


        def run(first, second=2, *rest, flag: bool = False, **more: Any):
            """Run it."""
            if first in [
                "alpha",
                "beta",
            ]:
                value = os.path.join(first, second)
            elif first == "gamma":
                value = None
            else:
                # nothing to do
                value = call(first, second, key=1)
            for item in rest:
                print(item)
            return value
        '''),
    dedent("""\
        class Left(Base):
            size = 1
            names = ["a", "b", "c"]

            def __init__(self, config, prefix=""):
                super().__init__()
                self.proj = Linear(config.size, config.size, bias=False, prefix=prefix)
                self.act = make(config)

            @property
            def width(self):
                return self.size * 2

            def forward(self, x):
                y = self.proj(x)
                with context(x) as z:
                    y = self.act(y)
                try:
                    return y, z
                except (ValueError, TypeError):
                    return None
                finally:
                    close()


        class Right(Base):
            size = 1

            def forward(self, x):
                y = self.proj(x)
                return self.act(y)
        """),
]


def merge(base: str, patched: str, target: str, path: str = "m.py") -> FileMerge:
    return merge_file(path, base.encode(), patched.encode(), target.encode())


@st.composite
def triples(draw: st.DrawFn, *, upstream: bool = True) -> tuple[str, str, str]:
    base = draw(st.sampled_from(SOURCES))

    def pick(number: int) -> int:
        return draw(st.integers(0, number - 1))

    patched = edited(base, pick, count=1 + pick(3), prefix="ours", upstream=False)
    target = edited(base, pick, count=pick(5), prefix="theirs", upstream=upstream)
    return base, patched, target


def parses(data: bytes) -> bool:
    try:
        compile(data, "<merged>", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


@settings(max_examples=40, deadline=None)
@given(triples())
def test_sources_that_parse_never_give_one_that_does_not(triple: tuple[str, str, str]) -> None:
    done = merge(*triple)
    assert bool(done.conflicts) != bool(done.files)
    assert all(parses(data) for data in done.files.values())


@settings(max_examples=40, deadline=None)
@given(triples())
def test_every_name_that_either_side_brought_is_there_once_and_only_once(
    triple: tuple[str, str, str],
) -> None:
    base, patched, target = triple
    done = merge(base, patched, target)
    if done.conflicts:
        return
    text = b"".join(done.files.values()).decode()
    for side in (patched, target):
        for number in range(5):
            for name in (f"ours{number}", f"theirs{number}"):
                assert not side.count(name) or text.count(name) == side.count(name)


@settings(max_examples=40, deadline=None)
@given(triples())
def test_a_second_merge_finds_everything_present(triple: tuple[str, str, str]) -> None:
    base, patched, target = triple
    done = merge(base, patched, target)
    if done.conflicts:
        return
    again = merge(base, patched, done.files["m.py"].decode())
    if not again.conflicts:
        assert again.files == done.files
        assert all(edit.present for edit in again.edits)


@settings(max_examples=20, deadline=None)
@given(triples())
def test_one_sided_merges_give_that_side(triple: tuple[str, str, str]) -> None:
    base, patched, target = triple
    for merged, want in (
        (merge(base, base, target), target),
        (merge(base, patched, base), patched),
        (merge(base, patched, patched), patched),
    ):
        assert not merged.conflicts
        assert merged.files == {"m.py": want.encode()}


@settings(max_examples=40, deadline=None)
@given(triples(upstream=False))
def test_both_orders_that_decide_agree(triple: tuple[str, str, str]) -> None:
    base, patched, target = triple
    one, other = merge(base, patched, target), merge(base, target, patched)
    if not one.conflicts and not other.conflicts:
        # What both insert at one place may stand in either order, and blank lines are layout.
        left, right = (sorted(re.findall(rb"\w+", x.files["m.py"])) for x in (one, other))
        assert left == right


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=60))
@pytest.mark.parametrize("path", ["m.py", "m.md", "m.txt"])
def test_arbitrary_bytes_raise_nothing(path: str, base: bytes, ours: bytes, theirs: bytes) -> None:
    done = merge_file(path, base, ours, theirs)
    assert bool(done.conflicts) != bool(done.files)


PIECES = b'x = [|]|(|)|def f():|\n|    |if x:|"""|\'|#|,|a|class C:|pass|@d|\\|\r\n|\xc3\xa9'.split(
    b"|"
)
SNIPPETS = st.lists(st.sampled_from([*PIECES, b"| a |", b"|--|"]), max_size=14).map(b"".join)


@settings(max_examples=100, deadline=None)
@given(SNIPPETS, SNIPPETS, SNIPPETS)
@pytest.mark.parametrize("path", ["m.py", "m.md"])
def test_broken_sources_raise_nothing(path: str, base: bytes, ours: bytes, theirs: bytes) -> None:
    done = merge_file(path, base, ours, theirs)
    assert bool(done.conflicts) != bool(done.files)


def test_fragments_are_cut_between_statements() -> None:
    source = "".join(f"x{k} = [\n    {k},\n]\n" for k in range(40))
    assert "".join(fragments(source, limit=20))[:30] == source[:30]
