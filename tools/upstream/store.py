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
from tools.git import QUARANTINE, Git, Person, import_files, remove_abandoned
from tools.settings import Settings
from tools.upstream import downloads
from tools.upstream.archive import Snapshot

FORMAT = 1
UPSTREAM_REFS = "refs/upstream/"
ANSWERS = "answers"  # below the git directory: what probes say of the trees in it
INCOMING = "incoming"  # in the cache: repositories that a fetch goes into first
LOCK_SECONDS = 60.0
_UNREACHABLE_SECONDS = 7200
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

    def rebuild(self, fault: str, notify: Notify = lambda _line: None) -> None:
        """Put the store aside and make an empty one; everything in it can be made again.

        Raises:
            Busy: Another run holds the lock.
            EnvironmentLacks: The cache is not writable.
        """
        with self.locked():
            self._make(fault, notify)

    # Refs ---------------------------------------------------------------------------------------

    def find(self, name: str, notify: Notify = lambda _line: None) -> str | None:
        """Return the commit that a ref below ``refs/upstream/`` names, or None.

        Where something that the commit needs has gone missing the whole store is built anew, since
        git would take what is left for a reason not to write it again.
        """
        found = self.git.refs(f"{UPSTREAM_REFS}{name}").get(f"{UPSTREAM_REFS}{name}")
        if found is None or self.is_whole(found):
            return found
        self.rebuild("is damaged", notify)
        return None

    def is_whole(self, commit: str) -> bool:
        """Return whether a commit, its trees and its files are all there; contents are not read."""
        walked = self.git.run(
            "rev-list", "--objects", "--no-walk", "--quiet", commit, "--", ok=(0, 1, 128)
        )
        return walked.status == 0

    def names(self) -> dict[str, str]:
        """Return the commit of each ref below ``refs/upstream/``, by the rest of its name."""
        found = self.git.refs(UPSTREAM_REFS)
        return {name.removeprefix(UPSTREAM_REFS): commit for name, commit in found.items()}

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
            return import_files(
                self.git,
                f"{UPSTREAM_REFS}{name}",
                ((f.path.encode(), f.executable, f.content) for f in snapshot.files),
                author,
                f"{subject}\n\n{trailers}".encode(),
            )

    def facts(self, commit: str) -> dict[str, str]:
        """Return what :meth:`add` remembered about a commit that it made."""
        found = self.git.object(commit)
        if found is None:
            raise ToolError(f"the store lacks the commit {commit}")
        _headers, _, message = found[2].decode("utf-8", "replace").partition("\n\n")
        return dict(_TRAILER.findall(message))

    def adopt(self, name: str, commit: str, incoming: Git) -> None:
        """Take a fetched commit over as it is, with its own id, and without its history.

        Args:
            name: The ref to publish it under, below ``refs/upstream/``.
            commit: The commit; all of its tree is in ``incoming`` or in the store.
            incoming: The repository that it was fetched into, which borrows from the store.

        Raises:
            Busy: Another run holds the lock.
            EnvironmentLacks: The cache is full or not writable.
        """
        with self.locked():
            incoming.run(
                "pack-objects",
                "--quiet",
                "--revs",
                "--local",
                "--non-empty",
                "--delta-base-offset",
                str(self.git.directory / "objects" / "pack" / "pack"),
                stdin=f"{commit}\n".encode(),
            )
            # Before the ref: git looks for the parents of a commit that is not listed here.
            shallow = self.git.directory / "shallow"
            listed = set(shallow.read_text("ascii").split()) if shallow.exists() else set()
            if commit not in listed:
                rows = "".join(f"{oid}\n" for oid in sorted(listed | {commit}))
                downloads.write_aside(shallow, rows.encode())
            self.git.close()
            self.git.update_ref(f"{UPSTREAM_REFS}{name}", commit)

    # Care ---------------------------------------------------------------------------------------

    def gc(self, notify: Notify = lambda _line: None) -> Cleaned:
        """Check, pack and prune the store, and remove what killed runs left in the cache.

        A store in which anything cannot be read is built anew. Objects that nothing refers to go
        once they are two hours old, so that a run under way keeps its own.

        Raises:
            Busy: Another run holds the lock.
            EnvironmentLacks: The cache is full or not writable.
        """
        cache = self.settings.cache
        before = downloads.size_of(cache)
        with self.locked():
            notify("checking the store")
            checked = self.git.run(
                "fsck", "--full", "--no-dangling", "--no-progress", ok=tuple(range(256))
            )
            if checked.status != 0:
                self._make("is damaged", notify)
            notify("packing the store")
            directory = self.git.directory
            removed = [*remove_abandoned(directory / QUARANTINE)]
            removed += remove_abandoned(cache / INCOMING)
            removed += downloads.remove_leftovers(
                [
                    *directory.glob("objects/pack/tmp_*"),
                    *directory.glob("objects/pack/.tmp-*"),
                    *directory.glob("fast_import_crash_*"),
                    *directory.glob(".shallow.*"),
                    *directory.glob(f"{ANSWERS}/.*"),
                    *cache.glob(".store.git.*"),
                    *cache.glob("downloads/*/*.part"),
                    *cache.glob("index/*/.*"),
                ]
            )
            self.git.run("pack-refs", "--all", "--prune")
            self.git.run(
                "repack",
                "-A",
                "-d",
                "-l",
                "-q",
                f"--unpack-unreachable={_UNREACHABLE_SECONDS}.seconds.ago",
            )
            self.git.run("prune", f"--expire={_UNREACHABLE_SECONDS}.seconds.ago")
            self._forget_answers()
            self.git.close()
        return Cleaned(before, downloads.size_of(cache), tuple(removed))

    def _forget_answers(self) -> None:
        """Remove what probes said of commits that are gone."""
        held = {file.stem: file for file in (self.git.directory / ANSWERS).glob("*.json")}
        for commit in held.keys() - self.git.existing(held):
            held[commit].unlink(missing_ok=True)


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
    # Fails without HEAD, objects or refs, and on a damaged config or packed-refs.
    read = Git(directory).run("for-each-ref", "--count=1", UPSTREAM_REFS, ok=tuple(range(256)))
    return None if read.status == 0 else "is damaged"


def _put_aside(directory: Path) -> None:
    """Rename a store away and remove it; what a kill leaves of it, ``gc`` removes."""
    aside = directory.with_name(f".store.git.{os.getpid()}.{int(time.time())}.old")
    directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
