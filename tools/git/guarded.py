"""Directories that exist for as long as a process uses them, and those that killed ones left."""

import contextlib
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from tools.errors import EnvironmentLacks

STALE_LOCK_SECONDS = 2.0
_GUARD = "lock"


@contextlib.contextmanager
def guarded_directory(parent: Path) -> Iterator[Path]:
    """Yield a new directory below ``parent``, removed at the end.

    A lock file inside is held meanwhile, so that :func:`remove_abandoned` can tell a directory in
    use from one that a killed process left.

    Raises:
        EnvironmentLacks: ``parent`` is full or not writable.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(dir=parent))
        lock = FileLock(path / _GUARD)
        lock.acquire(timeout=0)
    except OSError as error:
        raise EnvironmentLacks(
            f"cannot write to {parent}: {error.strerror or error}", "free some disk space"
        ) from error
    try:
        yield path
    finally:
        # Removed while held: no one may take it for abandoned in between.
        _remove_tree(path)
        lock.release()


def remove_abandoned(parent: Path) -> tuple[str, ...]:
    """Remove the directories below ``parent`` that killed processes left; return their names."""
    removed = []
    for path in sorted(parent.iterdir()) if parent.is_dir() else []:
        # One younger than this may not have its lock file yet.
        if time.time() - path.stat().st_mtime < STALE_LOCK_SECONDS:
            continue
        try:
            with FileLock(path / _GUARD, timeout=0):
                _remove_tree(path)
                removed.append(path.name)
        except (Timeout, OSError):
            continue
    return tuple(removed)


def _remove_tree(path: Path) -> None:
    def force(_function: object, name: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            Path(name).chmod(stat.S_IRWXU)
            Path(name).unlink()

    shutil.rmtree(path, onerror=force)
