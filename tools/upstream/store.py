"""The store: the bare repository in the user's cache where upstream trees live as commits.

Nothing in it is irreplaceable: each commit is imported from an archive or fetched, and what the
tools add (written bases, carried commits) can be made again. So a store of another format, or a
damaged one, is put aside and built anew, and no one is asked.
"""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tools.errors import BadInput, ToolError
from tools.git import Git, Person
from tools.settings import Settings
from tools.upstream import downloads
from tools.upstream.archive import Snapshot

FORMAT = 1
UPSTREAM_REFS = "refs/upstream/"
LOCK_SECONDS = 60.0
_AUTHOR = ("vLLM", "vllm@upstream.invalid")
_FORMAT_FILE = "vllm-exaone-format"
_TRAILER = re.compile(r"^Upstream-([A-Za-z0-9-]+): (.*)$", re.MULTILINE)

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Cleaned:
    """What ``gc`` did: bytes before and after, and the leftovers of killed runs that it removed."""

    before: int
    after: int
    removed: tuple[str, ...]


@dataclass(frozen=True)
class Store:
    """The store, opened.

    Args:
        settings: Whose cache it is in.
        git: Its repository.
        lock_seconds: How long a writer waits for another.
    """

    settings: Settings
    git: Git
    lock_seconds: float = LOCK_SECONDS

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        lock_seconds: float = LOCK_SECONDS,
        notify: Notify = lambda _line: None,
    ) -> Self:
        """Return the store in the settings' cache, made or built anew where that is needed.

        A store that is in order is only read, so a cache that cannot be written serves too.

        Raises:
            BadInput: A newer version of these tools made the store.
            Busy: Another run is making it.
            EnvironmentLacks: The cache is full or not writable.
        """
        directory = settings.cache / "store.git"
        opened = cls(settings, Git(directory), lock_seconds)
        if _fault(directory) is not None:
            with opened.locked():
                # Another run may have made it while this one waited.
                fault = _fault(directory)
                if fault is not None:
                    opened._make(fault, notify)
        return opened

    def close(self) -> None:
        """End the repository's background reader."""
        self.git.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the writers' lock.

        Raises:
            Busy: Another run held it for too long.
        """
        lock = self.settings.cache / "store.lock"
        with downloads.locked(lock, self.lock_seconds, "the store"):
            yield

    def _make(self, fault: str, notify: Notify) -> None:
        directory = self.git.directory
        try:
            if directory.exists():
                notify(f"the store {fault}: building it anew")
                self.git.close()
                _put_aside(directory)
            # Aside and renamed: a kill leaves no half-made store.
            aside = directory.with_name(f".store.git.{os.getpid()}.making")
            shutil.rmtree(aside, ignore_errors=True)
            Git.create(aside)
            (aside / _FORMAT_FILE).write_text(json.dumps({"format": FORMAT}) + "\n", "utf-8")
            aside.rename(directory)
        except OSError as error:
            raise downloads.lacks(directory, error) from error

    # Refs ---------------------------------------------------------------------------------------

    def find(self, name: str) -> str | None:
        """Return the commit that a ref below ``refs/upstream/`` names, if all of it is there.

        A ref whose commit or tree has gone missing counts as absent: the caller imports it again.
        """
        found = self.git.refs(f"{UPSTREAM_REFS}{name}").get(f"{UPSTREAM_REFS}{name}")
        if found is None:
            return None
        whole = self.git.run(
            "rev-list", "--objects", "--no-walk", "--quiet", found, "--", ok=(0, 1, 128)
        )
        return found if whole.status == 0 else None

    def add(self, name: str, snapshot: Snapshot, subject: str, facts: Mapping[str, str]) -> str:
        """Import a snapshot as a commit without parents and return its id.

        The id follows from the arguments alone: it is the same on every machine.

        Args:
            name: The ref to publish it under, below ``refs/upstream/``.
            snapshot: The tree.
            subject: The first line of the message.
            facts: What to remember about the import, one trailer each; single lines.

        Raises:
            Busy: Another run holds the lock.
            EnvironmentLacks: The cache is full or not writable.
        """
        trailers = "".join(f"Upstream-{key}: {value}\n" for key, value in sorted(facts.items()))
        author = Person(*_AUTHOR, when=snapshot.newest)
        with self.locked():
            return self.git.import_files(
                f"{UPSTREAM_REFS}{name}",
                ((f.path.encode(), f.executable, f.content) for f in snapshot.files),
                author,
                f"{subject}\n\n{trailers}".encode(),
            )

    def facts(self, commit: str) -> dict[str, str]:
        """Return what :meth:`add` remembered about an imported commit; empty for one of git's."""
        found = self.git.object(commit)
        if found is None:
            raise ToolError(f"the store lacks the commit {commit}")
        _headers, _, message = found[2].decode("utf-8", "replace").partition("\n\n")
        return dict(_TRAILER.findall(message))


def _fault(directory: Path) -> str | None:
    """Return what is wrong with the store, or None where it is in order.

    Raises:
        BadInput: A newer version of these tools made it.
    """
    if not directory.is_dir():
        return "does not exist"
    try:
        held = json.loads((directory / _FORMAT_FILE).read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return "has no format number"
    if isinstance(held, int) and held > FORMAT:
        raise BadInput(
            f"{directory} has format {held}, and these tools know up to {FORMAT}",
            "update the project, or set VLLM_EXAONE_CACHE to another place",
        )
    if held != FORMAT:
        return f"has format {held}, not {FORMAT}"
    parts = [directory / "HEAD", directory / "config", directory / "objects", directory / "refs"]
    missing = [part.name for part in parts if not part.exists()]
    return f"lacks {missing[0]}" if missing else None


def _put_aside(directory: Path) -> None:
    """Rename a store away and remove it; what a kill leaves of it, ``gc`` removes."""
    aside = directory.with_name(f".store.git.{os.getpid()}.{int(time.time())}.old")
    directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
