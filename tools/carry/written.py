"""The two trees that a patch stands between: the one it was written on, and that plus the patch.

A patch is written on its ``Base`` release plus the earlier patches of the series that are carried
there. Its diff is decoded by ``git apply --cached`` into an index that holds the touched files
alone, and the result counts only if every blob before and after has the id that the patch's
``index`` lines declare: a hunk that git would place elsewhere than it was written cannot pass.
"""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.errors import BadInput, ToolError
from tools.git import REGULAR, Change, Commit, Entry, Git, Person
from tools.series import FileDiff, Patch

SYNTHETIC = Person("vllm-exaone", "vllm-exaone@invalid", 0)


class DoesNotFit(BadInput):
    """A patch is not what its base and the earlier patches ask for.

    Args:
        message: See :class:`tools.errors.ToolError`.
        hint: Likewise.
        patch: The patch.
    """

    def __init__(self, message: str, hint: str, patch: Patch) -> None:
        super().__init__(message, hint)
        self.patch = patch


@dataclass(frozen=True)
class Written:
    """A patch as commits.

    Attributes:
        base: A commit of the tree that the patch was written on; it has no parent.
        patched: A commit of that tree with the patch; its parent is ``base``.
        changes: The paths between them.
    """

    base: str
    patched: str
    changes: tuple[Change, ...]


def synthetic_commit(git: Git, tree: str, *parents: str) -> str:
    """Write a commit that only serves merges, such as a merge base; return its id."""
    return git.write_commit(Commit(tree, parents, SYNTHETIC, SYNTHETIC, b"synthetic\n"))


def write_patch(git: Git, patch: Patch, tree: str) -> Written:
    """Decode ``patch`` on the tree that it was written on.

    Args:
        git: Where the objects go.
        patch: The patch.
        tree: The tree of its base, earlier patches included.

    Raises:
        DoesNotFit: The tree has other files than the patch was written on.
        BadInput: The patch is malformed.
    """
    base = synthetic_commit(git, tree)
    before = {path: git.entry(tree, path) for path in _paths(patch, old=True)}
    for file in patch.files:
        _check_before(patch, file, before)
    after = _apply(git, patch, [entry for entry in before.values() if entry])
    for file in patch.files:
        _check_after(patch, file, after)
    touched = before.keys() | _paths(patch, old=False)
    made = git.edit_tree(tree, {path: after.get(path) for path in touched})
    patched = synthetic_commit(git, made, base)
    return Written(base, patched, git.changes(base, patched))


def write_as_declared(git: Git, patch: Patch, tree: str) -> Written:
    """Decode a patch that does not fit ``tree`` on the blobs that its own diff names.

    Raises:
        BadInput: The store does not have one of these blobs any more.
    """
    edits: dict[bytes, Entry | None] = {}
    for file in patch.files:
        if file.old_path is None:
            continue
        held = git.entry(tree, file.old_path)
        oid = git.resolve(file.old_oid) if file.old_oid else (held.oid if held else None)
        if oid is None:
            raise BadInput(
                f"patches/{patch.file}: the store lacks the blob {file.old_oid} that it was "
                "written on",
                f"write the patch anew on {patch.base}",
            )
        edits[file.old_path] = Entry(file.old_path, held.mode if held else REGULAR, oid)
    return write_patch(git, patch, git.edit_tree(tree, edits))


def read_written(git: Git, patched: str) -> Written:
    """Return what :func:`write_patch` made, given the ``patched`` commit."""
    base = git.resolve(f"{patched}^1")
    if base is None:
        raise ToolError(f"the store lacks the parent of {patched}", "run: python -m tools store gc")
    return Written(base, patched, git.changes(base, patched))


def _paths(patch: Patch, *, old: bool) -> set[bytes]:
    names = ((file.old_path if old else file.new_path) for file in patch.files)
    return {name for name in names if name is not None}


def _check_before(patch: Patch, file: FileDiff, before: dict[bytes, Entry | None]) -> None:
    if file.old_path is None:
        return
    entry = before[file.old_path]
    if entry is None or not entry.oid.startswith(file.old_oid or ""):
        shown = os.fsdecode(file.old_path)
        found = f"is {entry.oid[:12]}" if entry else "is absent"
        raise DoesNotFit(
            f"patches/{patch.file}: {shown} {found} on {patch.base} with the earlier patches, "
            f"not {(file.old_oid or 'there')[:12]}",
            f"write it anew: python -m tools refresh {patch.base}",
            patch,
        )


def _check_after(patch: Patch, file: FileDiff, after: dict[bytes, Entry]) -> None:
    if file.new_path is None or file.new_oid is None:
        return
    entry = after.get(file.new_path)
    if entry is None or not entry.oid.startswith(file.new_oid):
        raise BadInput(
            f"patches/{patch.file}: {os.fsdecode(file.new_path)} does not become the blob "
            f"{file.new_oid[:12]} that its index line declares",
            "export the patch again with git format-patch --full-index",
        )


def _apply(git: Git, patch: Patch, entries: list[Entry]) -> dict[bytes, Entry]:
    """Return what the touched files become, by path."""
    try:
        return apply_diff(git, patch.diff, entries)
    except ToolError as error:
        if type(error) is not ToolError:
            raise
        raise BadInput(
            f"patches/{patch.file} does not apply to {patch.base}: {error.message}",
            "export it again with git format-patch --full-index",
        ) from error


def apply_diff(git: Git, diff: bytes, entries: Iterable[Entry]) -> dict[bytes, Entry]:
    """Apply a diff to an index that holds ``entries`` alone; return what it holds then, by path.

    Git places a hunk where its context fits: the caller compares the blobs with those that the
    diff declares.

    Raises:
        ToolError: It does not apply.
    """
    scratch = git.quarantine or git.directory
    with tempfile.TemporaryDirectory(prefix="index-", dir=scratch) as directory:
        environment = {"GIT_INDEX_FILE": str(Path(directory) / "index")}
        rows = b"".join(f"{e.mode} {e.oid}\t".encode() + e.path + b"\0" for e in entries)
        git.run("update-index", "-z", "--index-info", stdin=rows, environment=environment)
        git.run(
            "apply", "--cached", "--whitespace=nowarn", "-", stdin=diff, environment=environment
        )
        listed = git.run("ls-files", "--stage", "-z", environment=environment).stdout
    after = {}
    for row in listed.split(b"\0")[:-1]:
        head, path = row.split(b"\t", 1)
        mode, oid, _stage = head.decode().split(" ")
        after[path] = Entry(path, mode, oid)
    return after
