"""The carried CPU wheel of a release, for tests that need one."""

from pathlib import Path

import pytest

from tools.cli.common import Project, note
from tools.cli.shipping import wheel_request
from tools.git import GitTree
from tools.maintain.ship import build_wheel


def carried_wheel(release: str, directory: Path, cache: Path) -> tuple[Path, GitTree]:
    """Build the wheel of a release below a directory; return it and the carried tree."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VLLM_EXAONE_CACHE", str(cache))
        project = Project()
        carried = project.carrier.carry(project.obtain(release))
        request = wheel_request(project, release, directory, "cpu", None)
        built = build_wheel(project.store.git, carried, request, cache, note)
    return built.wheel, GitTree(project.store.git, carried.commit)
