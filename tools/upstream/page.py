"""A page of the package index: the files of one project, and the copy of it that is kept."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.errors import Unavailable
from tools.upstream import downloads

_FORMAT = 1


class IndexUnreachable(Unavailable):
    """The package index cannot be read, and no page of it is kept."""


@dataclass(frozen=True)
class IndexFile:
    """One file that the index offers.

    Args:
        filename: Its name, a single path component.
        url: Where it lies.
        sha256: Its digest in hexadecimal, "" where the index gives none.
        version: The version that the name says.
        kind: ``sdist`` or ``wheel``.
        uploaded: When it was uploaded (ISO 8601), "" where the index does not say.
        size: In bytes, or None.
    """

    filename: str
    url: str
    sha256: str
    version: str
    kind: str
    uploaded: str
    size: int | None


def keep_page(path: Path, files: tuple[IndexFile, ...]) -> None:
    """Write the copy of a page that was read just now.

    Raises:
        EnvironmentLacks: The cache is full or not writable.
    """
    page = {"format": _FORMAT, "at": time.time(), "files": [asdict(file) for file in files]}
    downloads.write_aside(path, json.dumps(page).encode())


def read_page(path: Path) -> tuple[float, tuple[IndexFile, ...]] | None:
    """Return when (seconds since the epoch) the page was read and its files, or None if none is."""
    try:
        page = json.loads(path.read_bytes())
        if page["format"] != _FORMAT:
            return None
        return float(page["at"]), tuple(IndexFile(**file) for file in page["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
