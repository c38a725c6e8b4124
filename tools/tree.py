"""A read-only view of a source tree, wherever it is stored.

Probes, the overlay and the contract checker read upstream through this protocol, so that they work
alike on a git tree, a directory and a dictionary made for a test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Tree(Protocol):
    """Files by repository-relative POSIX path."""

    def read(self, path: str) -> bytes | None:
        """Return the file's bytes, or None where the tree has no regular file at ``path``."""
        ...

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Yield, sorted, the path of each regular file whose path starts with ``prefix``."""
        ...


@dataclass(frozen=True)
class MappingTree:
    """A tree held in memory."""

    files: Mapping[str, bytes]

    def read(self, path: str) -> bytes | None:
        """See :meth:`Tree.read`."""
        return self.files.get(path)

    def paths(self, prefix: str = "") -> Iterator[str]:
        """See :meth:`Tree.paths`."""
        return (path for path in sorted(self.files) if path.startswith(prefix))


@dataclass(frozen=True)
class DirectoryTree:
    """A tree in a directory; symbolic links are not followed."""

    root: Path

    def read(self, path: str) -> bytes | None:
        """See :meth:`Tree.read`."""
        file = self.root / path
        return file.read_bytes() if file.is_file() and not file.is_symlink() else None

    def paths(self, prefix: str = "") -> Iterator[str]:
        """See :meth:`Tree.paths`."""
        # Only the directory part of the prefix narrows the walk; the rest is compared.
        start = self.root / prefix.rpartition("/")[0]
        found = (
            file.relative_to(self.root).as_posix()
            for file in start.rglob("*")
            if file.is_file() and not file.is_symlink()
        )
        return iter(sorted(path for path in found if path.startswith(prefix)))
