"""The project's own series on upstream's releases: exports, idempotence, order."""

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tools.carry import Carried, Carrier, Exported, Outcome, export
from tools.cli.common import Project
from tools.maintain import releases_since
from tools.series import Series, Step
from tools.upstream import Upstream

pytestmark = pytest.mark.network

EXPORTED = ["v0.19.1", "v0.32.0"]
REORDERED = ["v0.11.0", "v0.14.1", "v0.19.1", "v0.22.1", "v0.32.0"]


@pytest.fixture
def project(real_releases: Path) -> Iterator[Project]:
    opened = Project()
    yield opened
    opened.store.close()


@pytest.fixture
def checkout(project: Project, tmp_path: Path, user_git: Callable[..., str]) -> Path:
    """An empty repository that borrows the store's objects."""
    path = tmp_path / "checkout"
    path.mkdir()
    user_git(path, "init", "-q")
    objects = project.store.git.directory / "objects"
    (path / ".git/objects/info/alternates").write_text(f"{objects}\n")
    (path / ".git/info").mkdir(exist_ok=True)
    (path / ".git/info/attributes").write_text("* -text -ident -filter\n")
    return path


def _exported(project: Project, tmp_path: Path, ref: str) -> tuple[Carried, Exported]:
    carried = project.carrier.carry(project.obtain(ref))
    assert not carried.conflicts
    return carried, export(project.store.git, carried, tmp_path / "patches")


@pytest.mark.parametrize("ref", EXPORTED)
def test_git_am_of_the_export_gives_the_carried_tree(
    project: Project, checkout: Path, tmp_path: Path, user_git: Callable[..., str], ref: str
) -> None:
    carried, done = _exported(project, tmp_path, ref)
    user_git(checkout, "reset", "-q", "--hard", carried.upstream.commit)
    user_git(checkout, "am", "-q", *(os.fspath(done.path / name) for name in done.patches))
    assert user_git(checkout, "rev-parse", "HEAD^{tree}").strip() == carried.tree


@pytest.mark.parametrize("ref", EXPORTED)
def test_quilt_push_of_the_export_gives_the_carried_tree(
    project: Project, checkout: Path, tmp_path: Path, user_git: Callable[..., str], ref: str
) -> None:
    quilt = shutil.which("quilt")
    if quilt is None:
        pytest.skip("quilt is missing: apt-get install quilt")
    carried, done = _exported(project, tmp_path, ref)
    user_git(checkout, "reset", "-q", "--hard", carried.upstream.commit)
    pushed = subprocess.run(
        [quilt, "push", "-a"],
        cwd=checkout,
        env=os.environ | {"QUILT_PATCHES": str(done.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert pushed.returncode == 0, pushed.stdout + pushed.stderr
    assert "fuzz" not in pushed.stdout
    shutil.rmtree(checkout / ".pc")
    user_git(checkout, "add", "-A", "-f")
    assert user_git(checkout, "write-tree").strip() == carried.tree


def test_carrying_onto_each_carried_tree_changes_nothing(project: Project) -> None:
    for ref in releases_since(project.store, "v0.10.0"):
        upstream = project.obtain(ref)
        first = project.carrier.carry(upstream)
        onto = Upstream(upstream.ref, first.commit, first.tree, "index", "sdist", {})
        again = project.carrier.carry(onto, keep=False)
        stopped = {outcome.name for outcome in first.conflicts}
        wrong = [
            f"{ref} {outcome.name}: {outcome.outcome} ({outcome.rule})"
            for outcome in again.outcomes
            if outcome.name not in stopped
            and outcome.outcome not in (Outcome.UPSTREAMED, Outcome.NOT_NEEDED)
        ]
        assert not wrong
        assert again.tree == first.tree, ref


def _groups(project: Project) -> list[list[Step]]:
    """Return the steps that touch no file in common apart, in the series' order inside."""
    groups: list[tuple[set[bytes], list[Step]]] = []
    for step in project.series.steps:
        paths = {
            name
            for patch in step.variants
            for file in patch.files
            for name in (file.old_path, file.new_path)
            if name
        }
        joined = [group for group in groups if group[0] & paths]
        groups = [group for group in groups if not group[0] & paths]
        groups.append(
            (
                set().union(paths, *(group[0] for group in joined)),
                [*(s for group in joined for s in group[1]), step],
            )
        )
    return [steps for _paths, steps in groups]


def _reordered(carrier: Carrier, groups: list[list[Step]]) -> Carrier:
    series = Series(tuple(step for group in groups for step in group))
    return replace(carrier, series=series, _written={}, _prefixes={})


@pytest.mark.parametrize("ref", REORDERED)
def test_independent_patches_in_any_order_give_the_same_tree(project: Project, ref: str) -> None:
    upstream = project.obtain(ref)
    wanted = project.carrier.carry(upstream, keep=False)
    groups = _groups(project)
    assert len(groups) > 3
    shuffled = random.Random(ref).sample(groups, len(groups))
    for order in (groups[::-1], shuffled):
        carried = _reordered(project.carrier, order).carry(upstream, keep=False)
        assert carried.tree == wanted.tree
        assert {o.name: o.outcome for o in carried.outcomes} == {
            o.name: o.outcome for o in wanted.outcomes
        }
