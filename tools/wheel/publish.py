"""Results appear by one rename, under a lock, and leave nothing behind when they do not.

A file is written aside as ``.NAME.partial`` in the directory it is meant for. Whoever holds the
directory's lock may delete any such file: its writer was killed. The lock is ``flock`` on the
directory itself, so that it leaves no file and dies with its holder.
"""

import errno
import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from tools.errors import BadInput, Busy, EnvironmentLacks

PARTIAL = ".partial"
# A build reads its wheel back under the lock, which takes up to a minute.
LOCK_SECONDS = 300.0
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)


@contextmanager
def output_directory(path: Path, wait_seconds: float = LOCK_SECONDS) -> Iterator[Path]:
    """Create a directory for results, lock it, and clear what a killed run left in it.

    Args:
        path: The directory; its parents are made too.
        wait_seconds: How long another run's lock is waited for.

    Yields:
        The directory.

    Raises:
        BadInput: The path is a file.
        Busy: Another run holds the lock all that time.
        EnvironmentLacks: The directory cannot be made or written.
    """
    with disk_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except (FileExistsError, NotADirectoryError):
            raise BadInput(f"{path} is a file, not a directory for results") from None
    try:
        _lock(descriptor, path, wait_seconds)
        with disk_errors(path):
            for leftover in path.glob(f".*{PARTIAL}"):
                _remove(leftover)
        yield path
    finally:
        os.close(descriptor)


@contextmanager
def written_aside(target: Path) -> Iterator[BinaryIO]:
    """Open a file that takes its name only when the block ends well.

    Args:
        target: Its name; an earlier file there is replaced in one step.

    Yields:
        The file, open for writing.

    Raises:
        EnvironmentLacks: The disk is full, or the directory may not be written.
    """
    aside = target.with_name(f".{target.name}{PARTIAL}")
    with disk_errors(target.parent), termination_unwinds():
        try:
            with aside.open("wb") as stream:
                yield stream
            aside.replace(target)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise


@contextmanager
def staging(out_dir: Path) -> Iterator[Path]:
    """Give a directory in which results wait, under their own names, for their checks.

    Args:
        out_dir: From :func:`output_directory`.

    Yields:
        A directory on the same file system; it is gone when the block ends.
    """
    aside = out_dir / f".staging{PARTIAL}"
    with termination_unwinds():
        try:
            with disk_errors(out_dir):
                aside.mkdir()
            yield aside
        finally:
            _remove(aside)


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Turn a full disk and missing rights into one clear line.

    Raises:
        EnvironmentLacks: Writing failed for one of these reasons.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_SPACE:
            raise EnvironmentLacks(
                f"no space is left on the disk of {where}", "free some space and run again"
            ) from None
        if error.errno in NO_RIGHTS:
            raise EnvironmentLacks(
                f"{where} cannot be written: {error.strerror}", "give another output directory"
            ) from None
        if error.errno == errno.EFBIG:
            raise EnvironmentLacks(
                f"a file in {where} would exceed the size limit set for it",
                "raise `ulimit -f` or give another output directory",
            ) from None
        raise


@contextmanager
def termination_unwinds() -> Iterator[None]:
    """Let SIGTERM unwind the stack like Ctrl-C does, where nothing else handles it.

    A handler that the caller has set is left alone, and so are threads other than the main one,
    where Python does not deliver signals.
    """
    default = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not default:
        yield
        return
    signal.signal(signal.SIGTERM, _exit_by_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _exit_by_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _lock(descriptor: int, path: Path, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Busy(
                    f"another run is writing to {path}", "wait for it, or give another directory"
                ) from None
            time.sleep(0.05)
        else:
            return
