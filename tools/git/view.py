"""A git tree as a :class:`tools.tree.Tree`."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tools.git.model import EXECUTABLE, REGULAR
from tools.git.repository import Git


@dataclass(frozen=True)
class GitTree:
    """A :class:`tools.tree.Tree` over a commit or tree in a repository.

    Paths are UTF-8 text; names in other encodings use Python's surrogate escapes.
    """

    git: Git
    tree: str

    def read(self, path: str) -> bytes | None:
        """See :meth:`tools.tree.Tree.read`."""
        entry = self.git.entry(self.tree, os.fsencode(path))
        if entry is None or entry.mode not in (REGULAR, EXECUTABLE):
            return None
        return self.git.read_blob(entry.oid)

    def paths(self, prefix: str = "") -> Iterator[str]:
        """See :meth:`tools.tree.Tree.paths`."""
        # Git's order is that of the paths' bytes. Only the directory part narrows the walk.
        start = os.fsencode(prefix).rpartition(b"/")[0]
        files = (e for e in self.git.below(self.tree, start) if e.mode in (REGULAR, EXECUTABLE))
        return (path for entry in files if (path := os.fsdecode(entry.path)).startswith(prefix))
