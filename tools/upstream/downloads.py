"""Files of the cache: written aside and renamed, downloads resumed and checked."""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from filelock import FileLock, Timeout

from tools.errors import Busy, EnvironmentLacks, Unavailable

DOWNLOAD_LOCK_SECONDS = 900
LEFTOVER_SECONDS = 86400
LARGEST = 4 << 30  # bytes of a download whose size the index does not give


@dataclass(frozen=True)
class Stream:
    """What a server sends: chunks, and whether they continue where was asked to."""

    chunks: Iterable[bytes]
    resumed: bool


def is_plain_name(name: str) -> bool:
    """Return whether ``name`` is one path component that means nothing else."""
    return bool(name) and name.isprintable() and "/" not in name and not name.startswith((".", "-"))


def lacks(path: Path, error: OSError) -> EnvironmentLacks:
    """Return the error for a file of the cache that cannot be written."""
    hint = "set VLLM_EXAONE_CACHE to a place that can be written"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some disk space, or set VLLM_EXAONE_CACHE to another place"
    return EnvironmentLacks(f"cannot write {path}: {error.strerror or error}", hint)


def write_aside(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` with one rename; a kill leaves the old content or the new.

    Raises:
        EnvironmentLacks: The place is full or not writable.
    """
    aside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        aside = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        aside.replace(path)
    except OSError as error:
        if aside is not None:
            aside.unlink(missing_ok=True)
        raise lacks(path, error) from error


@contextlib.contextmanager
def locked(path: Path, seconds: float, what: str) -> Iterator[None]:
    """Hold the lock file ``path``; it is freed by the system when the process dies.

    Raises:
        Busy: Another process held it for ``seconds``.
        EnvironmentLacks: The lock file cannot be made.
    """
    lock = FileLock(path, timeout=seconds)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise Busy(
            f"another run holds {what} ({path})", "wait for it to end, then retry"
        ) from error
    except OSError as error:
        raise lacks(path, error) from error
    try:
        yield
    finally:
        lock.release()


def digest(path: Path) -> str:
    """Return a file's sha256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(
    path: Path,
    sha256: str,
    size: int | None,
    open_stream: Callable[[int], AbstractContextManager[Stream]],
    notify: Callable[[str], None],
) -> None:
    """Make sure that ``path`` holds the file with this digest.

    What is there is checked. What is missing is downloaded into ``path`` + ``.part``, which a later
    run continues, and renamed once its digest is right.

    Args:
        path: Where the file belongs.
        sha256: Its digest in hexadecimal.
        size: Its size in bytes where that is known; no more than that is written.
        open_stream: Opens the download at a byte offset.
        notify: Told what takes time.

    Raises:
        Unavailable: The download failed, or what came is not the file.
        EnvironmentLacks: The place is full or not writable.
    """
    if path.is_file() and digest(path) == sha256:
        return
    with locked(path.parent / "lock", DOWNLOAD_LOCK_SECONDS, f"the download of {path.name}"):
        # Another process may have fetched it while this one waited.
        if path.is_file() and digest(path) == sha256:
            return
        part = path.parent / f"{path.name}.part"
        if not (part.is_file() and digest(part) == sha256):
            notify(f"downloading {path.name}")
            if _download(part, open_stream, size) and digest(part) != sha256:
                # What an earlier run left was not the start of this file.
                part.unlink()
                _download(part, open_stream, size)
        if digest(part) != sha256:
            part.unlink()
            raise Unavailable(
                f"the download of {path.name} is damaged: its sha256 is not the index's",
                "run it again; if it stays so, the index or a proxy changes the file",
            )
        try:
            part.replace(path)
        except OSError as error:
            raise lacks(path, error) from error


def _download(
    part: Path, open_stream: Callable[[int], AbstractContextManager[Stream]], size: int | None
) -> bool:
    """Download into ``part``, after what it holds; return whether that was continued."""
    start = part.stat().st_size if part.is_file() else 0
    with open_stream(start) as stream:
        room = (LARGEST if size is None else size) - (start if stream.resumed else 0)
        try:
            # Unbuffered: what a full disk leaves in a buffer would fail once more on closing.
            file = part.open("ab" if stream.resumed else "wb", buffering=0)
        except OSError as error:
            raise lacks(part, error) from error
        with file:
            # Reading and writing raise OSError alike; only writing is the disk's fault.
            for chunk in stream.chunks:
                room -= len(chunk)
                if room < 0:
                    break  # more than was announced: the digest will not match
                _write(file, chunk, part)
    return stream.resumed


def _write(file: FileIO, chunk: bytes, part: Path) -> None:
    left = memoryview(chunk)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise lacks(part, error) from error


def size_of(directory: Path) -> int:
    """Return how many bytes the files below a directory hold."""
    total = 0
    for parent, _directories, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # it may go away meanwhile
                total += (Path(parent) / name).lstat().st_size
    return total


def remove_leftovers(paths: Iterable[Path]) -> list[str]:
    """Remove what killed runs left, once it is a day old; return the names removed."""
    removed = []
    for path in paths:
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > LEFTOVER_SECONDS:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                removed.append(path.name)
    return removed
