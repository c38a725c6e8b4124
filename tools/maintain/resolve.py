"""A conflict laid out for a person: a checkout with diff3 markers, and what the patch is for.

The checkout's HEAD is the ref with the earlier patches on it. Its index holds what could be
merged, and the three sides of what could not, so that ``git status``, ``git diff`` and any merge
tool show the conflict as after a failed cherry-pick. What is to be done with the result, and
whether a person has begun, is recorded in its git directory.
"""

import hashlib
import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.carry import Checkout, Stop
from tools.carry.worktree import fill_checkout, place
from tools.errors import BadInput, EnvironmentLacks
from tools.git import EXECUTABLE, REGULAR, SYMLINK, Entry, Git

INTENT = "resolve.patch"  # beside the checkout
_RECORD = "vllm-exaone-resolve.json"


@dataclass(frozen=True)
class StuckFile:
    """A file that a person must merge; blob ids are "" where a side has none.

    ``marked`` says whether it holds conflict markers: what is no text cannot.
    """

    path: str
    base: str
    patched: str
    target: str
    reason: str
    marked: bool


@dataclass(frozen=True)
class Record:
    """What a checkout made by ``resolve`` is for.

    Attributes:
        ref: The ref.
        source: Where its tree came from.
        step: The step of the series.
        file: The patch, or variant, in conflict.
        digest: That patch's digest.
        rule: Why it stopped, in words.
        head: The commit of the ref with the earlier patches.
        base: The commit that the patch was written on.
        patched: That plus the patch.
        marked: The tree as it was laid out.
        taken: The tree that ``refresh`` wrote back last, "" before.
        stuck: What a person must merge.
    """

    ref: str
    source: str
    step: str
    file: str
    digest: str
    rule: str
    head: str
    base: str
    patched: str
    marked: str
    taken: str
    stuck: tuple[StuckFile, ...]


@dataclass(frozen=True)
class Resolving:
    """A conflict laid out: the checkout, the patch beside it, and what it is for."""

    checkout: Checkout
    intent: Path
    record: Record


def lay_out(store: Git, stop: Stop, directory: Path) -> Resolving:
    """Make ``resolve`` in ``directory`` a checkout of a conflict, and put the patch beside it.

    Args:
        store: The store; the checkout borrows its objects.
        stop: Where the series stops.
        directory: Where to.

    Raises:
        BadInput: There is something of a person's already.
        Busy: Another run is at work on the same directory.
        EnvironmentLacks: The directory cannot be written, or the disk is full.
    """
    path = directory / "resolve"
    record = record_of(store, stop)

    def is_there() -> bool:
        held = read_record(path)
        with store.quarantined() as git:
            now = worktree_tree(git, path, held.marked)
        if now not in (held.marked, held.taken):
            raise BadInput(
                f"{path} has changes of yours for {held.file}",
                f"finish with `python -m tools refresh {held.ref}`, or move {path} away",
            )
        return now == held.marked == record.marked and held == record

    def fill(aside: Path) -> None:
        with fill_checkout(store, stop.head, aside) as inner:
            work = {"GIT_WORK_TREE": str(aside)}
            inner.run("read-tree", "--reset", "-u", record.marked, "--", environment=work)
            _write_stages(store, inner, stop)
            write_record(aside, record)

    checkout = place(path, is_there, fill)
    intent = directory / INTENT
    write_aside(intent, _intent(store, stop))
    return Resolving(checkout, intent, record)


def record_of(store: Git, stop: Stop) -> Record:
    """Return what a checkout of ``stop`` is for."""
    marked = store.tree_of(stop.marked)
    return Record(
        ref=stop.upstream.ref.name,
        source=stop.upstream.source,
        step=stop.patch.name,
        file=stop.patch.file,
        digest=stop.patch.digest,
        rule=stop.outcome.rule,
        head=stop.head,
        base=stop.written.base,
        patched=stop.written.patched,
        marked=marked,
        taken="",
        stuck=tuple(
            StuckFile(
                os.fsdecode(stuck.path),
                stuck.base,
                stuck.patched,
                stuck.target,
                stuck.reason,
                _holds_markers(store, marked, stuck.path, stuck.target),
            )
            for stuck in stop.stuck
        ),
    )


def _holds_markers(store: Git, marked: str, path: bytes, target: str) -> bool:
    entry = store.entry(marked, path)
    return entry is not None and entry.oid != target


def _write_stages(store: Git, inner: Git, stop: Stop) -> None:
    """Put the three sides of each stuck file into the index, as a failed cherry-pick does."""
    rows = []
    for stuck in stop.stuck:
        rows.append(b"0 " + b"0" * 40 + b"\t" + stuck.path + b"\0")
        for number, oid in ((1, stuck.base), (2, stuck.target), (3, stuck.patched)):
            found = store.object(oid) if oid else None
            if found and found[1] == "blob":
                row = f"{REGULAR} {oid} {number}\t".encode()
                rows.append(row + stuck.path + b"\0")
    inner.run("update-index", "-z", "--index-info", stdin=b"".join(rows))


def _intent(store: Git, stop: Stop) -> bytes:
    """Return the patch's message, why it stopped, and its diff as written, with wide context."""
    diff = store.run(
        "diff-tree", "-p", "--full-index", "--binary", "-U10", "--no-renames", "--no-ext-diff",
        "--no-textconv", "-r", stop.written.base, stop.written.patched, "--",
    ).stdout  # fmt: skip
    reasons = "".join(f"  {conflict}\n" for conflict in stop.outcome.conflicts)
    head = (
        f"patches/{stop.patch.file}, written on {stop.patch.base}, stops at "
        f"{stop.upstream.ref.name}:\n{reasons}\n"
    )
    return head.encode("utf-8", "surrogateescape") + stop.patch.message + b"---\n" + diff


# What the checkout holds -------------------------------------------------------------------------


def read_record(path: Path) -> Record:
    """Return what the checkout at ``path`` is for.

    Raises:
        BadInput: There is none, or it was not made by ``resolve``.
    """
    try:
        data: dict[str, Any] = json.loads((path / ".git" / _RECORD).read_text("utf-8"))
        stuck = tuple(StuckFile(**row) for row in data.pop("stuck"))
        return Record(**data, stuck=stuck)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{path} is not a checkout made by resolve", "move it away, and run resolve"
        ) from error


def write_record(path: Path, record: Record) -> None:
    """Write what the checkout at ``path`` is for."""
    data = json.dumps(asdict(record), indent=1)
    write_aside(path / ".git" / _RECORD, data.encode())


def worktree_tree(store: Git, path: Path, start: str) -> str:
    """Return the tree that a person's files make, byte for byte.

    Files are read as they are: no attribute of the tree, or setting of the person's, converts
    them. What ``.gitignore`` names is left out unless ``start`` has it.

    Args:
        store: Where the objects go.
        path: The checkout.
        start: The tree that it was made from.
    """
    known = {entry.path: entry for entry in store.listing(start)}
    inner = Git(path / ".git")
    # -C: from inside the git directory it would list that directory.
    listed = inner.run(
        "-C", str(path), "ls-files", "-z", "--others", "--exclude-standard",
        environment={"GIT_WORK_TREE": str(path)},
    ).stdout  # fmt: skip
    edits: dict[bytes, Entry | None] = {}
    for name in {*known, *listed.split(b"\0")[:-1], *_staged(inner)}:
        now = _read(store, path / os.fsdecode(name), name, known.get(name))
        if now != known.get(name):
            edits[name] = now
    return store.edit_tree(start, edits) if edits else start


def _staged(inner: Git) -> set[bytes]:
    return set(inner.run("ls-files", "-z", "--cached").stdout.split(b"\0")[:-1])


def _read(store: Git, file: Path, name: bytes, known: Entry | None) -> Entry | None:
    try:
        status = file.lstat()
        if stat.S_ISLNK(status.st_mode):
            mode, content = SYMLINK, os.fsencode(file.readlink())
        elif stat.S_ISREG(status.st_mode):
            mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else REGULAR
            content = file.read_bytes()
        else:
            return None
    except (FileNotFoundError, NotADirectoryError):
        return None
    made = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    made.update(content)
    if known and known.oid == made.hexdigest():
        return known if known.mode == mode else Entry(name, mode, known.oid)
    return Entry(name, mode, store.write_blob(content))


def is_taken(store: Git, path: Path) -> bool:
    """Return whether ``refresh`` has written back what the checkout at ``path`` holds."""
    held = read_record(path)
    if not held.taken:
        return False
    with store.quarantined() as git:
        return worktree_tree(git, path, held.marked) == held.taken


def undecided(path: Path) -> frozenset[str]:
    """Return the paths that the checkout's index still holds three sides of."""
    listed = Git(path / ".git").run("ls-files", "-z", "--unmerged").stdout
    return frozenset(os.fsdecode(row.split(b"\t", 1)[1]) for row in listed.split(b"\0")[:-1])


def write_aside(file: Path, content: bytes) -> None:
    """Write a file aside and rename it into place.

    Raises:
        EnvironmentLacks: It cannot be written.
    """
    aside = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.replace(file)
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {file}: {error.strerror}", "free space") from error
    finally:
        aside.unlink(missing_ok=True)
