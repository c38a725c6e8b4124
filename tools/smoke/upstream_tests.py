"""Upstream's own tests of what the series touches, on the stock and on the carried wheel.

A test that needs a GPU or the hub fails on both alike; what counts is that carrying changes no
outcome but adds its own. Each wheel is tested with the tests of its own tree.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tools.errors import BadInput, CheckFailed
from tools.smoke.engine import variables
from tools.smoke.environment import engine_plan, environment
from tools.smoke.jobs import Outcome, run_job
from tools.tree import Tree
from tools.upstream.index import Index

CHILD = Path(__file__).with_name("children") / "pytest_child.py"
# Model registry, configuration, speculative decoding and multimodal processing. What a release has
# of them is run; media files and their decoders are not ours.
SELECTED = (
    "tests/models/test_registry.py",
    "tests/config",
    "tests/test_config.py",
    "tests/v1/spec_decode",
    "tests/spec_decode",
    "tests/multimodal",
    "tests/transformers_utils",
)
LEFT_OUT = (
    "tests/multimodal/media",
    "tests/multimodal/test_audio.py",
    "tests/multimodal/test_video.py",
)
# Every model imported or inspected in a process of its own takes hours: our family is enough.
KEYWORDS = "not test_registry_ or Exaone or Qwen2_5_VL or Qwen2VL"
PACKAGES = ("pytest", "pytest-asyncio", "pytest-timeout", "tblib", "anthropic")
TEST_SECONDS = 300
RUN_SECONDS = 5400.0
# What the series adds goes by these names.
OURS = ("Exaone4_5", "exaone4_5")

Progress = Callable[[str], None]


class Change(Enum):
    """How one test's outcomes on two wheels differ."""

    OTHER_OUTCOME = "another outcome"
    MISSING = "missing on the carried wheel"
    UNEXPECTED = "new, and not ours"
    FAILING = "ours, and does not pass"


@dataclass(frozen=True)
class Ran:
    """What upstream's tests gave on one wheel.

    Attributes:
        outcomes: ``passed``, ``failed`` or ``skipped`` by test.
        reasons: Why a test failed, in one line.
        died: The test in which the run ended early, or "".
    """

    outcomes: Mapping[str, str]
    reasons: Mapping[str, str]
    died: str = ""

    def count(self, outcome: str) -> int:
        """Return how many tests had an outcome."""
        return sum(found == outcome for found in self.outcomes.values())


@dataclass(frozen=True)
class Difference:
    """One test that carrying changed.

    Attributes:
        test: Its id.
        change: How.
        detail: The outcomes, and why it failed.
    """

    test: str
    change: Change
    detail: str


@dataclass(frozen=True)
class Comparison:
    """Upstream's tests on both wheels of a release."""

    release: str
    stock: Ran
    carried: Ran

    @property
    def ours(self) -> tuple[str, ...]:
        """Tests that only the carried tree has."""
        return tuple(sorted(set(self.carried.outcomes) - set(self.stock.outcomes)))

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What carrying changed that it must not change."""
        found = [
            Difference(test, change, self._detail(test))
            for test in sorted({*self.stock.outcomes, *self.carried.outcomes})
            if (change := self._change(test)) is not None
        ]
        return tuple(found)

    def _change(self, test: str) -> Change | None:
        before, after = self.stock.outcomes.get(test), self.carried.outcomes.get(test)
        if after is None:
            return Change.MISSING
        if before is None:
            if not any(name in test for name in OURS):
                return Change.UNEXPECTED
            return None if after == "passed" else Change.FAILING
        return None if before == after else Change.OTHER_OUTCOME

    def _detail(self, test: str) -> str:
        sides = (("stock", self.stock), ("carried", self.carried))
        parts = [f"{name} {ran.outcomes.get(test, 'missing')}" for name, ran in sides]
        reasons = [ran.reasons[test] for _, ran in sides if test in ran.reasons]
        return "; ".join([*parts, *reasons])


def upstream_tests(
    release: str,
    *,
    stock: Tree,
    carried: Tree,
    wheel: Path,
    cache: Path,
    progress: Progress = lambda _: None,
) -> Comparison:
    """Run upstream's tests on the stock and on the carried CPU wheel.

    Args:
        release: The release, such as ``v0.32.0``.
        stock: Upstream's tree.
        carried: The carried tree.
        wheel: The carried wheel.
        cache: The cache directory.
        progress: Told, in one line, what is being done.

    Raises:
        BadInput: The tree holds none of the tests, as one that was made from a wheel.
        CheckFailed: pytest did not run them to their end.
        Unavailable, EnvironmentLacks, Busy: As :func:`tools.smoke.environment.environment`.
    """
    index = Index.configured(cache, progress)
    found = []
    for name, tree, built in (("stock", stock, None), ("carried", carried, wheel)):
        plan = engine_plan(release, device="cpu", wheel=built, transformers="release", index=index)
        plan = replace(
            plan, label=f"{plan.label}-tests", requirements=(*plan.requirements, *PACKAGES)
        )
        with environment(plan, cache, progress) as place, tempfile.TemporaryDirectory() as scratch:
            selected = write_tests(tree, Path(scratch))
            progress(f"upstream's tests on the {name} wheel of {release}")
            outcome = run_job(
                place.python,
                CHILD,
                {"root": scratch, "arguments": arguments(selected)},
                env=variables(place),
                timeout=RUN_SECONDS,
            )
        found.append(parse(outcome))
        if found[-1].died:
            raise CheckFailed(
                f"{release}: pytest ended in {found[-1].died} on the {name} wheel",
                outcome.last_error,
            )
    return Comparison(release, *found)


def write_tests(tree: Tree, directory: Path) -> list[str]:
    """Write a tree's tests and their configuration; return which selected paths there are.

    Raises:
        BadInput: There are none.
    """
    names = [*tree.paths("tests/"), "pyproject.toml"]
    for name in names:
        content = tree.read(name)
        if content is not None:
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    selected = [path for path in SELECTED if (directory / path).exists()]
    if not selected:
        raise BadInput(
            "this tree holds no tests of upstream's", "take it from the sdist or from git"
        )
    return selected


def arguments(selected: list[str]) -> list[str]:
    """Return pytest's arguments."""
    return [
        "-q",
        "-p",
        "no:cacheprovider",
        # Other tracebacks parse every file they pass through, a second or more for each failure.
        "--tb=native",
        "--continue-on-collection-errors",
        "--timeout",
        str(TEST_SECONDS),
        *(f"--ignore={path}" for path in LEFT_OUT),
        "-k",
        KEYWORDS,
        *selected,
    ]


def parse(outcome: Outcome) -> Ran:
    """Return what a child process found; one that wrote nothing died before the first test."""
    result = outcome.result or {"outcomes": {}, "running": "its start"}
    died = "" if outcome.status == 0 else result["running"] or "its end"
    return Ran(
        {test: what for test, (what, _) in result["outcomes"].items()},
        {test: reason for test, (_, reason) in result["outcomes"].items() if reason},
        died,
    )
