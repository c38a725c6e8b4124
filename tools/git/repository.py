"""A repository, read and written as objects."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Self

from gitdb.base import IStream
from gitdb.db import LooseObjectDB

from tools.errors import EnvironmentLacks, ToolError
from tools.git.guarded import STALE_LOCK_SECONDS, guarded_directory
from tools.git.model import DIRECTORY, Change, Commit, Entry, Result, Stage, TreeMerge
from tools.git.process import CUTS_OFF_USER, failure, pinned_environment, start
from tools.git.reader import CatFile, parse_tree

QUARANTINE = "quarantine"  # below the git directory


@dataclass(frozen=True)
class Git:
    """A bare repository (or the git directory of any), read and written as objects.

    Args:
        directory: The git directory.
        quarantine: Where new objects go instead of the repository, or None; see
            :meth:`quarantined`.
    """

    directory: Path
    quarantine: Path | None = None
    _environment: Mapping[str, str] = field(default_factory=pinned_environment, repr=False)

    @classmethod
    def create(cls, directory: Path) -> Self:
        """Make an empty bare repository at ``directory`` (which may exist) and return it."""
        directory.mkdir(parents=True, exist_ok=True)
        created = cls(directory)
        created.run("init", "--quiet", "--bare", "--template=", "--", str(directory))
        return created

    # Commands -----------------------------------------------------------------------------------

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        ok: tuple[int, ...] = (0,),
        environment: Mapping[str, str] | None = None,
        network: bool = False,
    ) -> Result:
        """Run one git command.

        Args:
            arguments: The command and its arguments; put ``--`` before what came from outside.
            stdin: What the command reads.
            ok: The exit statuses that are not an error.
            environment: Variables to set on top of the pinned ones.
            network: Whether the command talks to another repository: it then finds the user's
                configuration, credentials and ssh, beneath the pinned settings.

        Raises:
            ToolError: The command failed; the message is the last line that it printed.
            EnvironmentLacks: git is missing, or the disk is full.
        """
        variables = {**self._variables(), **(environment or {})}
        if network:
            variables = {k: v for k, v in variables.items() if k not in CUTS_OFF_USER}
        process = start(self.directory, arguments, variables, network=network)
        stdout, stderr = process.communicate(stdin)
        result = Result(process.returncode, stdout, stderr)
        if result.status not in ok:
            raise failure(arguments, result)
        return result

    def _variables(self) -> dict[str, str]:
        variables = dict(self._environment)
        variables["GIT_DIR"] = str(self.directory)
        if self.quarantine is not None:
            variables["GIT_OBJECT_DIRECTORY"] = str(self.quarantine)
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.directory / "objects")
        return variables

    # Reading ------------------------------------------------------------------------------------

    @cached_property
    def _reader(self) -> "CatFile":
        return CatFile(start(self.directory, ["cat-file", "--batch"], self._variables()))

    def close(self) -> None:
        """End the background reader, if one was started; the next read starts another."""
        reader = self.__dict__.pop("_reader", None)
        if reader is not None:
            reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def object(self, name: str) -> tuple[str, str, bytes] | None:
        """Return (id, type, content) of an object, or None where there is none.

        Args:
            name: An id or a revision such as ``refs/x^{tree}`` or ``<commit>:path``.
        """
        try:
            return self._reader.get(name.encode("utf-8", "surrogateescape"))
        except (BrokenPipeError, EOFError) as error:
            # It ends by itself only when it meets an object that it cannot unpack.
            self.close()
            raise ToolError(
                f"{self.directory} is damaged: git cannot read {name}",
                "`python -m tools store gc` checks it, and builds it anew",
            ) from error

    def resolve(self, revision: str) -> str | None:
        """Return the id that ``revision`` names, or None."""
        found = self.object(revision)
        return found[0] if found else None

    def read_blob(self, oid: str) -> bytes:
        """Return a blob's content.

        Raises:
            ToolError: The repository has no such blob.
        """
        found = self.object(oid)
        if found is None or found[1] != "blob":
            raise ToolError(f"{self.directory} lacks the blob {oid}")
        return found[2]

    def tree_of(self, revision: str) -> str:
        """Return the id of the tree that a commit or tree names.

        Raises:
            ToolError: There is no such revision.
        """
        found = self.resolve(f"{revision}^{{tree}}")
        if found is None:
            raise ToolError(f"{self.directory} lacks the revision {revision}")
        return found

    def listing(self, tree: str) -> tuple[Entry, ...]:
        """Return every file, link and submodule of a tree or commit, in git's order."""
        out = self.run("ls-tree", "-r", "-z", "--full-tree", tree).stdout
        found = []
        for row in out.split(b"\0")[:-1]:
            head, path = row.split(b"\t", 1)
            mode, _kind, oid = head.decode().split(" ")
            found.append(Entry(path, mode, oid))
        return tuple(found)

    def entry(self, tree: str, path: bytes) -> Entry | None:
        """Return what a tree or commit holds at ``path``, or None (also for a directory)."""
        directory, _, name = path.rpartition(b"/")
        listed = self.children(tree, directory)
        found = listed.get(name) if listed else None
        return replace(found, path=path) if found and found.mode != DIRECTORY else None

    def children(self, tree: str, directory: bytes = b"") -> Mapping[bytes, Entry] | None:
        """Return the entries of one directory by name, or None where there is no directory."""
        found = self._walk(tree, directory)
        return parse_tree(found) if found is not None else None

    def below(self, tree: str, directory: bytes = b"") -> Iterator[Entry]:
        """Yield the files, links and submodules below a directory, in git's order, as asked for."""
        listed = self.children(tree, directory) or {}
        yield from self._below(listed, directory + b"/" if directory else b"")

    def _below(self, listed: Mapping[bytes, Entry], prefix: bytes) -> Iterator[Entry]:
        for name, entry in listed.items():
            if entry.mode == DIRECTORY:
                yield from self._below(self._inside(entry), prefix + name + b"/")
            else:
                yield Entry(prefix + name, entry.mode, entry.oid)

    def _walk(self, tree: str, directory: bytes) -> bytes | None:
        # Step by step: `rev:path` would need quoting for names with newlines, and this caches well.
        found = self.object(f"{tree}^{{tree}}")
        for part in directory.split(b"/") if directory else []:
            if found is None:
                return None
            entry = parse_tree(found[2]).get(part)
            if entry is None or entry.mode != DIRECTORY:
                return None
            found = self.object(entry.oid)
        return found[2] if found else None

    def changes(self, old: str, new: str) -> tuple[Change, ...]:
        """Return the paths that differ between two trees or commits, renames not followed."""
        sides = (self.children(old), self.children(new))
        if None in sides:
            raise ToolError(f"{self.directory} lacks {old if sides[0] is None else new}")
        return tuple(sorted(self._changes(sides[0] or {}, sides[1] or {}), key=lambda c: c.path))

    def _changes(
        self, old: Mapping[bytes, Entry], new: Mapping[bytes, Entry], below: bytes = b""
    ) -> Iterator[Change]:
        # In this process: trees that differ in a few files share nearly all of their directories.
        for name in old.keys() | new.keys():
            sides = (old.get(name), new.get(name))
            if sides[0] == sides[1]:
                continue
            inner = [self._inside(side) for side in sides]
            if inner[0] or inner[1]:
                yield from self._changes(inner[0], inner[1], below + name + b"/")
            before, after = (
                replace(side, path=below + name) if side and side.mode != DIRECTORY else None
                for side in sides
            )
            if before or after:
                yield Change(below + name, before, after)

    def _inside(self, entry: Entry | None) -> Mapping[bytes, Entry]:
        return (self.children(entry.oid) or {}) if entry and entry.mode == DIRECTORY else {}

    # Writing ------------------------------------------------------------------------------------

    @cached_property
    def _loose(self) -> LooseObjectDB:
        return LooseObjectDB(str(self.quarantine or self.directory / "objects"))

    def write(self, kind: str, content: bytes) -> str:
        """Write an object and return its id.

        Raises:
            EnvironmentLacks: The disk is full or not writable.
        """
        try:
            stored = self._loose.store(IStream(kind.encode(), len(content), BytesIO(content)))
        except OSError as error:
            raise EnvironmentLacks(
                f"cannot write to {self.directory}: {error.strerror}", "free some disk space"
            ) from error
        return str(stored.hexsha.decode())

    def write_blob(self, content: bytes) -> str:
        """Write a blob and return its id."""
        return self.write("blob", content)

    def write_commit(self, commit: Commit) -> str:
        """Write a commit and return its id."""
        return self.write("commit", commit.encode())

    def write_tree(self, entries: Mapping[bytes, Entry]) -> str:
        """Write one directory and return its id; the keys are names, without ``/``."""
        # Git sorts a directory as if its name ended in a slash.
        ordered = sorted(
            entries.items(), key=lambda item: item[0] + (b"/" if item[1].mode == DIRECTORY else b"")
        )
        return self.write(
            "tree",
            b"".join(
                e.mode.lstrip("0").encode() + b" " + name + b"\0" + bytes.fromhex(e.oid)
                for name, e in ordered
            ),
        )

    def edit_tree(self, tree: str, edits: Mapping[bytes, Entry | None]) -> str:
        """Return the id of ``tree`` with files put, replaced or (None) removed.

        Args:
            tree: A tree or commit.
            edits: By full path. Directories appear and vanish as their files do.
        """
        return self._edit(self.children(tree) or {}, edits) or self.write_tree({})

    def _edit(self, held: Mapping[bytes, Entry], edits: Mapping[bytes, Entry | None]) -> str | None:
        entries = dict(held)
        below: dict[bytes, dict[bytes, Entry | None]] = {}
        for path, edit in edits.items():
            name, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(name, {})[rest] = edit
            elif edit is None:
                entries.pop(name, None)
            else:
                entries[name] = edit
        for name, deeper in below.items():
            inside = entries.get(name)
            made = self._edit(self._inside(inside), deeper)
            if made is not None:
                entries[name] = Entry(name, DIRECTORY, made)
            elif inside and inside.mode == DIRECTORY:
                del entries[name]
        return self.write_tree(entries) if entries else None

    def merge_trees(self, ours: str, theirs: str) -> TreeMerge:
        """Merge two commits that share an ancestor, on objects alone, following renames.

        Args:
            ours: The commit of the side whose layout wins (the upstream ref).
            theirs: The commit with the change to bring (base plus the patch).
        """
        result = self.run(
            "merge-tree", "--write-tree", "-z", "--no-messages", ours, theirs, ok=(0, 1)
        )
        tree, *rows = result.stdout.split(b"\0")
        stages = []
        for row in rows:
            if row:
                head, path = row.split(b"\t", 1)
                mode, oid, number = head.decode().split(" ")
                stages.append(Stage(path, int(number), mode, oid))
        return TreeMerge(tree.decode(), tuple(stages))

    def existing(self, oids: Iterable[str]) -> frozenset[str]:
        """Return those of the ids that the repository has an object of."""
        out = self.run(
            "cat-file",
            "--batch-check=%(objectname)",
            "--buffer",
            stdin="".join(f"{oid}\n" for oid in oids).encode(),
        ).stdout
        return frozenset(row for row in out.decode().splitlines() if " " not in row)

    def update_ref(self, name: str, new: str, old: str | None = None) -> None:
        """Point a ref at ``new``; with ``old``, only where it points there now ("" = absent)."""
        command = f"update {name}\0{new}\0" + ("" if old is None else (old or "0" * 40)) + "\0"
        self.clear_stale_locks(name)
        self.run("update-ref", "-z", "--stdin", stdin=command.encode())

    def delete_refs(self, names: Iterable[str]) -> None:
        """Remove refs; those that do not exist are no error."""
        found = list(names)
        if found:
            self.clear_stale_locks(*found, "packed-refs")
            commands = "".join(f"delete {name}\0\0" for name in found)
            self.run("update-ref", "-z", "--stdin", stdin=commands.encode())

    def clear_stale_locks(self, *names: str) -> None:
        """Remove the lock files of refs that a killed git left; git holds one for milliseconds."""
        for name in names:
            lock = self.directory / f"{name}.lock"
            with contextlib.suppress(FileNotFoundError):
                while (age := time.time() - lock.stat().st_mtime) < STALE_LOCK_SECONDS:
                    time.sleep(min(0.05, max(0.0, STALE_LOCK_SECONDS - age)))
                lock.unlink()

    def refs(self, prefix: str) -> dict[str, str]:
        """Return ref name -> object id for every ref below ``prefix`` (``refs/x/``)."""
        out = self.run("for-each-ref", "--format=%(objectname) %(refname)", "--", prefix).stdout
        rows = (row.split(" ", 1) for row in out.decode().splitlines())
        return {name: oid for oid, name in rows}

    @contextlib.contextmanager
    def quarantined(self) -> Iterator["Git"]:
        """Yield this repository with new objects going to a directory beside it.

        Nothing written inside stays unless :meth:`keep` is called on what is yielded. A directory
        left by a killed process is harmless and is removed by ``store gc``.

        Raises:
            EnvironmentLacks: The repository is not writable.
        """
        with guarded_directory(self.directory / QUARANTINE) as path:
            inner = Git(self.directory, quarantine=path)
            try:
                yield inner
            finally:
                inner.close()

    def keep(self, *tips: str) -> None:
        """Move what ``tips`` reach out of the quarantine into the repository.

        A pack is complete before it appears under the repository's objects, so a kill leaves
        either nothing or all of it.
        """
        if self.quarantine is None or not tips:
            return
        listed = self.run(
            "rev-list", "--objects", "--no-object-names", *tips, "--not", "--all", "--"
        ).stdout
        loose = {
            prefix.name + rest.name
            for prefix in self.quarantine.iterdir()
            if len(prefix.name) == 2
            for rest in prefix.iterdir()
        }
        wanted = [oid for oid in listed.decode().split() if oid in loose]
        if wanted:
            packs = self.directory / "objects" / "pack"
            packs.mkdir(exist_ok=True)
            # Written without the quarantine's object directory: straight into the store's packs.
            self.run(
                "pack-objects",
                "--quiet",
                "--delta-base-offset",
                str(packs / "pack"),
                stdin="".join(f"{oid}\n" for oid in wanted).encode(),
            )
