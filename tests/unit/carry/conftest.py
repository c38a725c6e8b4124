"""A small upstream in a store of its own, and patches that git itself writes on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.carry import Carrier
from tools.git import REGULAR, Commit, Entry, Git, Person
from tools.overlay import Overlay
from tools.series import Patch, Series, Step, parse_patch
from tools.upstream import Upstream, parse_ref

WHO = Person("Upstream", "upstream@invalid", 1_600_000_000)


@dataclass
class Workshop:
    """Upstream releases by name, and the patches written on them."""

    git: Git
    scratch: Path
    user_git: Callable[..., str]
    releases: dict[str, str]

    def release(self, name: str, files: Mapping[str, bytes]) -> Upstream:
        """Add a release with these files."""
        empty = self.git.write_tree({})
        edits = {
            path.encode(): Entry(path.encode(), REGULAR, self.git.write_blob(content))
            for path, content in files.items()
        }
        tree = self.git.edit_tree(empty, edits)
        commit = self.git.write_commit(Commit(tree, (), WHO, WHO, f"{name}\n".encode()))
        self.git.update_ref(f"refs/upstream/index/{name}", commit)
        self.releases[name] = commit
        return Upstream(parse_ref(name), commit, tree, "index", "sdist", {})

    def patch(
        self,
        name: str,
        base: str,
        change: Callable[[Path], object],
        *,
        tree: str | None = None,
        fields: str = "",
        subject: str = "Change a thing",
    ) -> Patch:
        """Write a patch on a release (or on ``tree``) by doing ``change`` in a checkout of it."""
        work = self.scratch / name
        work.mkdir()
        self.user_git(work, "init", "-q")
        objects = self.git.directory / "objects"
        (work / ".git/objects/info/alternates").write_text(f"{objects}\n")
        self.user_git(work, "read-tree", "-u", "--reset", tree or self.releases[base])
        self.user_git(work, "commit", "-qm", "base")
        change(work)
        self.user_git(work, "add", "-A")
        message = f"{subject}\n\nWhy.\n\nBase: {base}\n{fields}"
        self.user_git(work, "commit", "-qF", "-", stdin=message.encode())
        text = self.user_git(
            work, "format-patch", "-1", "--stdout", "--full-index", "--binary", "-U1"
        )
        return parse_patch(f"{name}.patch", text.encode("utf-8", "surrogateescape"))

    def carrier(self, *patches: Patch, overlay: Overlay | None = None) -> Carrier:
        """Return a carrier of these patches, each a step of its own unless names are shared."""
        steps: dict[str, list[Patch]] = {}
        for patch in patches:
            steps.setdefault(patch.name, []).append(patch)
        series = Series(tuple(Step(name, tuple(found)) for name, found in steps.items()))
        return Carrier(self.git, series, overlay or Overlay(()), self.releases.__getitem__)


@pytest.fixture
def workshop(tmp_path: Path, user_git: Callable[..., str]) -> Workshop:
    """An empty store and a place to write patches in."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return Workshop(Git.create(tmp_path / "store"), scratch, user_git, {})
