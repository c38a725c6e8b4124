"""The one gateway to git: objects in, objects out, under no user's configuration.

Everything goes through GitPython with argument lists and bytes. Each command runs with a pinned
environment, because ``merge-tree`` and friends obey settings that reach them from many sides (a
user's attributes file, ``merge.renameLimit``, ``i18n.commitEncoding``, ``TZ``, ...) and the same
inputs must give the same object ids everywhere.
"""

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout
from git.cmd import Git as GitPython
from git.exc import GitCommandError, GitCommandNotFound
from gitdb.base import IStream
from gitdb.db import LooseObjectDB

from tools.errors import BadInput, EnvironmentLacks, ToolError

MINIMUM_VERSION = (2, 38)  # the first with `merge-tree --write-tree`
QUARANTINE = "quarantine"  # below the git directory
STALE_LOCK_SECONDS = 2.0
_GUARD = "lock"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
REGULAR, EXECUTABLE, SYMLINK, SUBMODULE, DIRECTORY = (
    "100644",
    "100755",
    "120000",
    "160000",
    "040000",
)

_SETTINGS = {
    "core.attributesFile": os.devnull,
    "core.hooksPath": os.devnull,
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.quotePath": "true",
    "core.abbrev": "40",
    "core.fsmonitor": "false",
    "diff.renameLimit": "2000",
    "diff.algorithm": "histogram",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "merge.renameLimit": "2000",
    "merge.renames": "true",
    "merge.directoryRenames": "false",
    "merge.conflictStyle": "merge",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "protocol.allow": "user",
    "safe.bareRepository": "all",
    "safe.directory": "*",
}


def _pinned_environment() -> dict[str, str]:
    """Return the environment that cuts a git process off from the user's settings."""
    pinned = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_DEFAULT_HASH": "sha1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "HOME": os.devnull,
        "XDG_CONFIG_HOME": os.devnull,
        "LC_ALL": "C",
        "LANGUAGE": "C",
        "TZ": "UTC",
        "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    }
    for index, (key, value) in enumerate(_SETTINGS.items()):
        pinned[f"GIT_CONFIG_KEY_{index}"] = key
        pinned[f"GIT_CONFIG_VALUE_{index}"] = value
    return pinned


@dataclass(frozen=True)
class Entry:
    """One file of a tree: ``path`` in bytes, git's mode as text (``100644``), and the blob's id."""

    path: bytes
    mode: str
    oid: str


@dataclass(frozen=True)
class Stage:
    """One stage of a conflicted path: 1 is the base, 2 ours, 3 theirs."""

    path: bytes
    number: int
    mode: str
    oid: str


@dataclass(frozen=True)
class TreeMerge:
    """What ``merge-tree`` made: the tree, and the stages of each path left in conflict.

    With conflicts the tree holds marker blobs at the conflicted paths: read the stages.
    """

    tree: str
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Change:
    """One path that differs between two trees; ``None`` where a side has no such file."""

    path: bytes
    old: Entry | None
    new: Entry | None


@dataclass(frozen=True)
class Person:
    """A git identity with a time.

    ``when`` is seconds since 1970 in UTC; ``zone`` as git writes it, such as ``+0900``.
    """

    name: str
    email: str
    when: int
    zone: str = "+0000"

    def line(self) -> bytes:
        """Return the identity as a commit header holds it; characters git forbids are dropped."""
        name, email = (
            "".join(c for c in text if c not in "<>\n\0").strip()
            for text in (self.name, self.email)
        )
        return f"{name} <{email}> {self.when} {self.zone}".encode()


@dataclass(frozen=True)
class Commit:
    """What a commit object holds; ``headers`` is extra text, its author beside its committer."""

    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: bytes

    def encode(self) -> bytes:
        """Return the commit object's content."""
        lines = [b"tree " + self.tree.encode()]
        lines += [b"parent " + parent.encode() for parent in self.parents]
        lines += [b"author " + self.author.line(), b"committer " + self.committer.line(), b""]
        return b"\n".join(lines) + b"\n" + self.message.replace(b"\0", b"")


@dataclass(frozen=True)
class Result:
    """What a git command printed, and its exit status."""

    status: int
    stdout: bytes
    stderr: bytes


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
    _environment: Mapping[str, str] = field(default_factory=_pinned_environment, repr=False)

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
            variables = {k: v for k, v in variables.items() if k not in _CUTS_OFF_USER}
        process = self._start(arguments, variables, network=network)
        stdout, stderr = process.communicate(stdin)
        result = Result(process.returncode, stdout, stderr)
        if result.status not in ok:
            raise _failure(arguments, result)
        return result

    def _start(
        self,
        arguments: Iterable[str | bytes],
        variables: Mapping[str, str],
        *,
        network: bool = False,
    ) -> "subprocess.Popen[bytes]":
        words = [os.fsdecode(argument) for argument in arguments]
        try:
            with _without_foreign_variables(_NETWORK_VARIABLES if network else frozenset()):
                started = GitPython(str(self.directory)).execute(
                    ["git", f"--git-dir={self.directory}", *words],
                    as_process=True,
                    istream=subprocess.PIPE,
                    env=dict(variables),
                )
        except GitCommandNotFound as error:
            raise EnvironmentLacks(
                "git was not found on PATH", "install git 2.38 or newer"
            ) from error
        except GitCommandError as error:
            raise ToolError(f"git {words[0]} could not be started: {error.stderr}") from error
        # The wrapper kills the process when it is collected; the process itself is what we keep.
        process: subprocess.Popen[bytes] = started.proc  # type: ignore[assignment]
        started.proc = None
        return process

    def _variables(self) -> dict[str, str]:
        variables = dict(self._environment)
        variables["GIT_DIR"] = str(self.directory)
        if self.quarantine is not None:
            variables["GIT_OBJECT_DIRECTORY"] = str(self.quarantine)
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.directory / "objects")
        return variables

    # Reading ------------------------------------------------------------------------------------

    @cached_property
    def _reader(self) -> "_CatFile":
        return _CatFile(self._start(["cat-file", "--batch"], self._variables()))

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

    def children(self, tree: str, directory: bytes = b"") -> dict[bytes, Entry] | None:
        """Return the entries of one directory by name, or None where there is no directory."""
        found = self._walk(tree, directory)
        return _parse_tree(found) if found is not None else None

    def _walk(self, tree: str, directory: bytes) -> bytes | None:
        # Step by step: `rev:path` would need quoting for names with newlines, and this caches well.
        found = self.object(f"{tree}^{{tree}}")
        for part in directory.split(b"/") if directory else []:
            if found is None:
                return None
            entry = _parse_tree(found[2]).get(part)
            if entry is None or entry.mode != DIRECTORY:
                return None
            found = self.object(entry.oid)
        return found[2] if found else None

    def changes(self, old: str, new: str) -> tuple[Change, ...]:
        """Return the paths that differ between two trees or commits, renames not followed."""
        out = self.run(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new, "--"
        ).stdout
        tokens = out.split(b"\0")[:-1]
        found = []
        for head, path in zip(tokens[::2], tokens[1::2], strict=True):
            old_mode, new_mode, old_oid, new_oid, _status = head[1:].decode().split(" ")
            found.append(
                Change(
                    path,
                    None if old_mode == "000000" else Entry(path, old_mode, old_oid),
                    None if new_mode == "000000" else Entry(path, new_mode, new_oid),
                )
            )
        return tuple(found)

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

    def _edit(self, entries: dict[bytes, Entry], edits: Mapping[bytes, Entry | None]) -> str | None:
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
            held = entries.get(name)
            inside = held.oid if held and held.mode == DIRECTORY else None
            made = self._edit((self.children(inside) or {}) if inside else {}, deeper)
            if made is not None:
                entries[name] = Entry(name, DIRECTORY, made)
            elif inside:
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

    def import_files(
        self, ref: str, files: Iterable[tuple[bytes, bool, bytes]], author: Person, message: bytes
    ) -> str:
        """Write a commit without parents that holds ``files``, as one pack, and set ``ref`` to it.

        The pack is complete before it appears and the ref moves last, so a kill leaves the
        repository as it was, or with objects that nothing refers to.

        Args:
            ref: The full name of the ref; what it pointed at before does not matter.
            files: Path, whether it is executable, and content of each; paths are plain UTF-8
                without control characters.
            author: Also the committer.
            message: The commit's message.

        Raises:
            EnvironmentLacks: The disk is full or not writable.
        """
        line = author.line()
        self._clear_stale_locks(ref)
        stream = [
            b"feature done\ncommit %s\n" % ref.encode(),
            b"author %s\ncommitter %s\n" % (line, line),
            b"data %d\n%s\n" % (len(message), message),
        ]
        held = list(files)
        oids = [_blob_id(content) for _path, _executable, content in held]
        known = self.existing(oids)
        for (path, executable, content), oid in zip(held, oids, strict=True):
            quoted = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
            mode = EXECUTABLE if executable else REGULAR
            if oid in known:  # most of a release is in the one before it
                stream.append(b'M %s %s "%s"\n' % (mode.encode(), oid.encode(), quoted))
            else:
                stream.append(
                    b'M %s inline "%s"\ndata %d\n' % (mode.encode(), quoted, len(content))
                )
                stream += [content, b"\n"]
        stream.append(b"done\n")
        self.run(
            "-c",
            "pack.compression=1",  # three times as fast as the default; `store gc` packs tighter
            "-c",
            "fastimport.unpackLimit=1",
            "fast-import",
            "--quiet",
            "--force",
            "--depth=0",
            stdin=b"".join(stream),
        )
        found = self.resolve(ref)
        if found is None:
            raise ToolError(f"{self.directory} lacks {ref} after an import")
        return found

    def update_ref(self, name: str, new: str, old: str | None = None) -> None:
        """Point a ref at ``new``; with ``old``, only where it points there now ("" = absent)."""
        command = f"update {name}\0{new}\0" + ("" if old is None else (old or "0" * 40)) + "\0"
        self._clear_stale_locks(name)
        self.run("update-ref", "-z", "--stdin", stdin=command.encode())

    def delete_refs(self, names: Iterable[str]) -> None:
        """Remove refs; those that do not exist are no error."""
        found = list(names)
        if found:
            self._clear_stale_locks(*found, "packed-refs")
            commands = "".join(f"delete {name}\0\0" for name in found)
            self.run("update-ref", "-z", "--stdin", stdin=commands.encode())

    def _clear_stale_locks(self, *names: str) -> None:
        """Remove the lock files that a killed git left; git holds one for milliseconds."""
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


_KEPT_VARIABLES = frozenset({"GIT_PYTHON_GIT_EXECUTABLE", "GIT_PYTHON_TRACE", "GIT_EXEC_PATH"})
# What reaching another repository may need of the user's environment.
_NETWORK_VARIABLES = frozenset(
    {
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_HTTP_PROXY_AUTHMETHOD",
        "GIT_PROXY_COMMAND",
        "GIT_PROXY_SSL_CAINFO",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_CERT",
        "GIT_SSL_KEY",
        "GIT_SSL_NO_VERIFY",
    }
)
_CUTS_OFF_USER = frozenset(
    {
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_GLOBAL",
        "HOME",
        "XDG_CONFIG_HOME",
    }
)
_environment_lock = threading.Lock()


@contextlib.contextmanager
def _without_foreign_variables(also_kept: frozenset[str]) -> Iterator[None]:
    """Hide git's own variables from what is started inside.

    GitPython starts from ``os.environ`` and can only add, and a git hook, for one, sets
    ``GIT_DIR`` and ``GIT_INDEX_FILE``.
    """
    kept = _KEPT_VARIABLES | also_kept
    with _environment_lock:
        hidden = {n: v for n, v in os.environ.items() if n.startswith("GIT_") and n not in kept}
        for name in hidden:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(hidden)


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


class _CatFile:
    """A running ``cat-file --batch``, asked one object at a time; small answers are remembered."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._end = weakref.finalize(self, _end, process)  # also for whoever forgets to close
        self._seen: dict[bytes, tuple[str, str, bytes]] = {}

    def get(self, name: bytes) -> tuple[str, str, bytes] | None:
        if name in self._seen:
            return self._seen[name]
        if b"\n" in name or not name:
            raise BadInput(f"not a git revision: {name!r}")
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ToolError("git cat-file has no pipes")
        stdin.write(name + b"\n")
        stdin.flush()
        head = stdout.readline()
        words = head.split()
        if not head:
            raise EOFError
        if len(words) != 3 or words[1] not in (b"blob", b"tree", b"commit", b"tag"):
            return None
        size = int(words[2])
        content = stdout.read(size + 1)[:size]
        if len(content) != size:
            raise EOFError
        found = (words[0].decode(), words[1].decode(), content)
        # Only ids always name the same content; a revision may move while this process runs.
        oid, _, suffix = name.partition(b"^")
        if len(oid) == 40 and suffix in (b"", b"{tree}") and size < 1 << 20:
            if len(self._seen) >= 4096:
                self._seen.clear()
            self._seen[name] = found
        return found

    def close(self) -> None:
        self._end()


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        process.communicate()


def _blob_id(content: bytes) -> str:
    made = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    made.update(content)
    return made.hexdigest()


def _parse_tree(content: bytes) -> dict[bytes, Entry]:
    entries = {}
    position = 0
    while position < len(content):
        space = content.index(b" ", position)
        end = content.index(b"\0", space)
        name = content[space + 1 : end]
        oid = content[end + 1 : end + 21].hex()
        entries[name] = Entry(name, content[position:space].decode().zfill(6), oid)
        position = end + 21
    return entries


def _failure(arguments: tuple[str | bytes, ...], result: Result) -> ToolError:
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    # git's last words are often advice; the first fatal or error line says what happened.
    marked = [line for line in lines if line.startswith(("fatal:", "error:"))]
    line = (marked or lines[-1:])[0]
    words = [os.fsdecode(argument) for argument in arguments]
    while words[:1] == ["-c"]:
        words = words[2:]
    text = f"git {words[0]}: {line}"
    printed = result.stderr.decode("utf-8", "replace")
    if any(said in printed for said in _SAYS_DISK_FULL):
        return EnvironmentLacks(text, "free some disk space")
    if any(said in printed for said in _SAYS_NO_RIGHTS):
        return EnvironmentLacks(text, "make it writable")
    return ToolError(text)


# The system's words (LC_ALL is C), and git's own in fast-import.
_SAYS_DISK_FULL = ("No space left on device", "Disk quota exceeded", "Out of diskspace")
_SAYS_NO_RIGHTS = ("Read-only file system", "Permission denied", "insufficient permission")


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
