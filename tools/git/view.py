"""A git tree as a :class:`tools.tree.Tree`."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

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
        return (path for path in self._paths if path.startswith(prefix))

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        listed = self.git.listing(self.tree)
        return tuple(sorted(os.fsdecode(e.path) for e in listed if e.mode in (REGULAR, EXECUTABLE)))
