"""Properties of a carry over generated trees and patches: idempotence, and order.

A generated release is the base with some of its entries, lines and files changed at random. Each
generated patch does one thing that the others do not touch.
"""

import random
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.carry import Carried, Carrier, Outcome
from tools.carry.export import mailbox
from tools.git import REGULAR, Commit, Entry, Git, Person
from tools.overlay import Overlay
from tools.series import Patch, Series, Step, parse_patch
from tools.upstream import Upstream, parse_ref

WHO = Person("Upstream", "upstream@invalid", 1_600_000_000)
KEYS = [f"Model{n}" for n in range(10)]
MODULES = range(4)
PROPERTY = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@dataclass(frozen=True)
class Module:
    """A module with a dict, a list, a class and a function, each of which may be edited."""

    keys: tuple[str, ...] = tuple(KEYS)
    names: tuple[str, ...] = tuple(KEYS[::2])
    parameters: tuple[str, ...] = ("self", "config")
    body: tuple[str, ...] = ("self.a = config.a", "self.b = config.b", "return self.a")
    extra: tuple[str, ...] = ()
    one_line: bool = False

    def render(self) -> bytes:
        if self.one_line:
            names = f"NAMES = [{', '.join(map(repr, self.names))}]"
        else:
            names = "NAMES = [\n" + "".join(f'    "{n}",\n' for n in self.names) + "]"
        return "\n".join(
            [
                "import os",
                "",
                "TABLE = {",
                *(f'    "{key}": ("{key.lower()}", "{key}"),' for key in self.keys),
                "}",
                names,
                "",
                "",
                "class Runner:",
                f"    def load({', '.join(self.parameters)}):",
                *(f"        {line}" for line in self.body),
                "",
                *self.extra,
                "",
            ]
        ).encode()


def _insert(items: tuple[str, ...], item: str, at: int) -> tuple[str, ...]:
    return (*items[:at], item, *items[at:])


def _edit(module: Module, kind: str, name: str, at: int) -> Module:
    """Do one edit that brings ``name`` in."""
    fields = {
        "key": lambda: {"keys": _insert(module.keys, name, at % len(module.keys))},
        "name": lambda: {"names": _insert(module.names, name, at % len(module.names))},
        "parameter": lambda: {"parameters": (*module.parameters, f"{name.lower()}=None")},
        "line": lambda: {
            "body": _insert(module.body, f"self.{name.lower()} = 1", at % (len(module.body) - 1))
        },
        "function": lambda: {"extra": (*module.extra, "", f"def {name.lower()}():", "    pass")},
    }
    return Module(**{**vars(module), **fields[kind]()})


EDITS = st.tuples(
    st.sampled_from(["key", "name", "parameter", "line", "function"]), st.integers(0, 9)
)


@st.composite
def drifted(draw: st.DrawFn) -> Module:
    """What upstream made of a module: neighbours gone, others new, a list in another form."""
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    keys = [key for key in KEYS if rng.random() > 0.25] or KEYS[:1]
    names = [key for key in KEYS[::2] if rng.random() > 0.25] or KEYS[:1]
    for _ in range(rng.randrange(3)):
        keys.insert(rng.randrange(len(keys) + 1), f"Up{rng.randrange(1000)}")
        names.insert(rng.randrange(len(names) + 1), f"Up{rng.randrange(1000)}")
    return Module(
        keys=tuple(dict.fromkeys(keys)),
        names=tuple(dict.fromkeys(names)),
        parameters=("self", "config", "prefix") if rng.random() > 0.5 else ("self", "config"),
        body=("self.z = 0", *Module().body) if rng.random() > 0.5 else Module().body,
        extra=("", "def added():", "    return 1") if rng.random() > 0.5 else (),
        one_line=rng.random() > 0.7,
    )


@dataclass
class World:
    """A store with releases and patches that are made of objects alone."""

    git: Git
    bases: dict[str, str] = field(default_factory=dict)
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    def tree(self, modules: dict[int, Module]) -> str:
        edits = {}
        for number, module in modules.items():
            path = f"vllm/m{number}.py".encode()
            edits[path] = Entry(path, REGULAR, self.git.write_blob(module.render()))
        return self.git.edit_tree(self.git.write_tree({}), edits)

    def release(self, name: str, tree: str) -> Upstream:
        commit = self.git.write_commit(Commit(tree, (), WHO, WHO, f"{name}\n".encode()))
        self.bases[name] = commit
        return Upstream(parse_ref(name), commit, tree, "index", "sdist", {})

    def patch(self, name: str, base: str, tree: str) -> Patch:
        """Return the patch from a base tree to another, written on release ``v1.0.0``."""
        message = f"Edit {name}\n\nWhy.\n\nBase: v1.0.0\n".encode()
        parent = self.git.write_commit(Commit(base, (), WHO, WHO, b"base\n"))
        commit = self.git.write_commit(Commit(tree, (parent,), WHO, WHO, message))
        return parse_patch(f"{name}.patch", mailbox(self.git, commit, context=1)[0])

    def carrier(self, patches: list[Patch]) -> Carrier:
        series = Series(tuple(Step(patch.name, (patch,)) for patch in patches))
        return Carrier(self.git, series, Overlay(()), self.bases.__getitem__)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(Git.create(tmp_path / "store"))


def _onto(carried: Carried) -> Upstream:
    upstream = carried.upstream
    return Upstream(upstream.ref, carried.commit, carried.tree, "index", "sdist", {})


@PROPERTY
@given(target=drifted(), edits=st.lists(EDITS, min_size=1, max_size=4))
def test_carrying_onto_the_carried_tree_changes_nothing(
    world: World, target: Module, edits: list[tuple[str, int]]
) -> None:
    base = Module()
    world.release("v1.0.0", world.tree({0: base}))
    patches = []
    now = base
    for number, (kind, at) in enumerate(edits, 1):
        after = _edit(now, kind, f"Exa{number}", at)
        patches.append(
            world.patch(f"{number:04d}-edit", world.tree({0: now}), world.tree({0: after}))
        )
        now = after
    carrier = world.carrier(patches)
    first = carrier.carry(world.release("v2.0.0", world.tree({0: target})))
    again = carrier.carry(_onto(first), keep=False)
    stopped = {outcome.name for outcome in first.conflicts}
    for outcome in again.outcomes:
        if outcome.name not in stopped:
            assert outcome.outcome is Outcome.UPSTREAMED, (outcome, target.render().decode())
    if not stopped:
        assert again.tree == first.tree


@PROPERTY
@given(data=st.data(), targets=st.lists(drifted(), min_size=4, max_size=4))
def test_patches_of_different_files_in_any_order_give_the_same_tree(
    world: World, data: st.DataObject, targets: list[Module]
) -> None:
    base = {number: Module() for number in MODULES}
    tree = world.tree(base)
    world.release("v1.0.0", tree)
    patches = []
    for number in MODULES:
        kind, at = data.draw(EDITS)
        after = base | {number: _edit(base[number], kind, f"Exa{number}", at)}
        patches.append(world.patch(f"{number + 1:04d}-edit", tree, world.tree(after)))
    upstream = world.release("v2.0.0", world.tree(dict(enumerate(targets))))
    order = data.draw(st.permutations(patches))
    straight = world.carrier(patches).carry(upstream, keep=False)
    other = world.carrier(order).carry(upstream, keep=False)
    assert other.tree == straight.tree
    assert {o.name: o.outcome for o in other.outcomes} == {
        o.name: o.outcome for o in straight.outcomes
    }
    # Each edit is there once, and nothing else came.
    for outcome in straight.outcomes:
        assert outcome.outcome is not Outcome.UPSTREAMED


@PROPERTY
@given(target=drifted(), places=st.lists(st.integers(0, 9), min_size=2, max_size=2))
def test_patches_of_different_containers_in_any_order_give_the_same_tree(
    world: World, target: Module, places: list[int]
) -> None:
    """Two patches of one file: in the second order each is written on what is then before it."""
    base = Module()
    world.release("v1.0.0", world.tree({0: base}))
    upstream = world.release("v2.0.0", world.tree({0: target}))
    trees = []
    for kinds in (("key", "parameter"), ("parameter", "key")):
        patches = []
        now = base
        for number, kind in enumerate(kinds, 1):
            after = _edit(now, kind, f"Exa{kind}", places[0])
            patches.append(
                world.patch(f"{number:04d}-{kind}", world.tree({0: now}), world.tree({0: after}))
            )
            now = after
        carried = world.carrier(patches).carry(upstream, keep=False)
        trees.append((carried.tree, sorted(o.outcome for o in carried.outcomes)))
    assert trees[0] == trees[1]
