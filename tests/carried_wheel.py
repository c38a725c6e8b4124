"""The carried CPU wheel of a release, for tests that need one."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.cli.common import Project, note
from tools.cli.shipping import wheel_request
from tools.git import GitTree
from tools.maintain.ship import build_wheel


@dataclass(frozen=True)
class CarriedWheel:
    """A built wheel, upstream's tree and the carried one."""

    wheel: Path
    stock: GitTree
    carried: GitTree


def carried_wheel(release: str, directory: Path, cache: Path) -> CarriedWheel:
    """Build the wheel of a release below a directory."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VLLM_EXAONE_CACHE", str(cache))
        project = Project()
        git = project.store.git
        carried = project.carrier.carry(project.obtain(release))
        request = wheel_request(project, release, directory, "cpu", None)
        built = build_wheel(git, carried, request, cache, note)
    upstream = GitTree(git, carried.upstream.commit)
    return CarriedWheel(built.wheel, upstream, GitTree(git, carried.commit))
