"""The carried tree on disk: an ordinary git checkout that a person can read, build and edit.

The checkout is made aside and renamed into place. What a person did in it is never overwritten.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout

from tools.carry.outcome import Carried
from tools.errors import BadInput, Busy, EnvironmentLacks, ToolError
from tools.git import Git

_PUBLISHED = "refs/vllm-exaone/published"
_BRANCH = "refs/heads/carried"

_ADVICE = "free space, or choose another --output"
_FULL = 1 << 20  # bytes; below this, what failed to write failed for want of room


class State(StrEnum):
    """What :func:`check_out` did."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


@dataclass(frozen=True)
class Checkout:
    """The directory, and whether anything had to be done."""

    path: Path
    state: State


def check_out(store: Git, carried: Carried, path: Path) -> Checkout:
    """Make ``path`` a checkout of the carried commit.

    Args:
        store: The store; the checkout borrows its objects.
        carried: What to check out.
        path: The directory; its parent is made where it is missing.

    Raises:
        BadInput: ``path`` holds something that is not ours, or that a person changed.
        Busy: Another run is at work on the same directory.
        EnvironmentLacks: The directory cannot be written, or the disk is full.
    """

    def fill(aside: Path) -> None:
        fill_checkout(store, carried.commit, aside)

    return place(path, lambda: _held(path) == carried.commit, fill)


def place(path: Path, is_there: Callable[[], bool], fill: Callable[[Path], None]) -> Checkout:
    """Make a directory aside and rename it into place.

    Args:
        path: The directory; its parent is made where it is missing.
        is_there: Asked where ``path`` exists: whether it already is what is wanted. It raises where
            ``path`` must not be replaced.
        fill: Makes the content in the empty directory that it is given.

    Raises:
        Busy: Another run is at work on the same directory.
        EnvironmentLacks: The directory cannot be written, or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / f".{path.name}.lock", timeout=0):
            return _place(path, is_there, fill)
    except Timeout:
        raise Busy(f"another run is writing {path}", "wait for it to end") from None
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {path}: {error.strerror}", _ADVICE) from error


def _place(path: Path, is_there: Callable[[], bool], fill: Callable[[Path], None]) -> Checkout:
    for left in path.parent.glob(f".{path.name}-*"):  # of a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    exists = path.exists() or path.is_symlink()
    if exists and is_there():
        return Checkout(path, State.UNCHANGED)
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        aside.chmod(0o755)
        fill(aside)
        if exists:
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
            path.rename(old / "old")
            aside.rename(path)
            shutil.rmtree(old)
        else:
            aside.rename(path)
    except ToolError as error:
        # git does not always say why it could not write, and what it wrote is about to go.
        if shutil.disk_usage(path.parent).free < _FULL:
            full = f"cannot write {path}: No space left on device ({error.message})"
            raise EnvironmentLacks(full, _ADVICE) from error
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Checkout(path, State.REPLACED if exists else State.CREATED)


def fill_checkout(store: Git, commit: str, aside: Path) -> Git:
    """Make the empty directory ``aside`` a checkout of ``commit``; return its repository."""
    inner = Git(aside / ".git")
    inner.directory.mkdir()
    work = {"GIT_WORK_TREE": str(aside)}
    inner.run("init", "--quiet", "--template=", environment=work)
    info = inner.directory / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_bytes(os.fsencode(store.directory.resolve() / "objects") + b"\n")
    # A person's own git must see the files as they are, whatever their settings, or the
    # attributes in the tree, say.
    inner.run("config", "core.autocrlf", "false")
    inner.run("config", "core.bare", "false")
    inner_info = inner.directory / "info"
    inner_info.mkdir(exist_ok=True)
    (inner_info / "attributes").write_text("* -text -ident -filter -working-tree-encoding\n")
    inner.update_ref(_BRANCH, commit)
    inner.run("symbolic-ref", "HEAD", _BRANCH)
    inner.run("reset", "--quiet", "--hard", commit, "--", environment=work)
    inner.update_ref(_PUBLISHED, commit)
    return inner


def _held(path: Path) -> str:
    """Return the commit that ``path`` holds untouched.

    Raises:
        BadInput: It is not a checkout of ours, or a person changed it.
    """
    advice = f"move {path} away, or remove it"
    if path.is_symlink() or not (path / ".git").is_dir():
        raise BadInput(f"{path} exists and is not a checkout made by apply", advice)
    with Git(path / ".git") as inner:
        published = inner.resolve(_PUBLISHED)
        if published is None:
            raise BadInput(f"{path} exists and is not a checkout made by apply", advice)
        if inner.resolve("HEAD") != published:
            raise BadInput(f"{path} holds commits that apply did not make", advice)
        work = {"GIT_WORK_TREE": str(path)}
        try:
            status = inner.run("status", "--porcelain", "-z", environment=work).stdout
        except ToolError as error:
            raise BadInput(f"{path} cannot be read: {error.message}", advice) from error
    if status:
        name = status.split(b"\0")[0][3:].decode("utf-8", "replace")
        raise BadInput(f"{path} has changes of yours, {name} among them", advice)
    return published
