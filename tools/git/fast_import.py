"""Whole trees written at once."""

import hashlib
from collections.abc import Iterable

from tools.errors import ToolError
from tools.git.model import EXECUTABLE, REGULAR, Person
from tools.git.repository import Git


def import_files(
    git: Git, ref: str, files: Iterable[tuple[bytes, bool, bytes]], author: Person, message: bytes
) -> str:
    """Write a commit without parents that holds ``files``, as one pack, and set ``ref`` to it.

    The pack is complete before it appears and the ref moves last, so a kill leaves the
    repository as it was, or with objects that nothing refers to.

    Args:
        git: The repository.
        ref: The full name of the ref; what it pointed at before does not matter.
        files: Path, whether it is executable, and content of each; paths are plain UTF-8
            without control characters.
        author: Also the committer.
        message: The commit's message.

    Raises:
        EnvironmentLacks: The disk is full or not writable.
    """
    line = author.line()
    git.clear_stale_locks(ref)
    stream = [
        b"feature done\ncommit %s\n" % ref.encode(),
        b"author %s\ncommitter %s\n" % (line, line),
        b"data %d\n%s\n" % (len(message), message),
    ]
    held = list(files)
    oids = [blob_id(content) for _path, _executable, content in held]
    known = git.existing(oids)
    for (path, executable, content), oid in zip(held, oids, strict=True):
        quoted = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        mode = EXECUTABLE if executable else REGULAR
        if oid in known:  # most of a release is in the one before it
            stream.append(b'M %s %s "%s"\n' % (mode.encode(), oid.encode(), quoted))
        else:
            stream.append(b'M %s inline "%s"\ndata %d\n' % (mode.encode(), quoted, len(content)))
            stream += [content, b"\n"]
    stream.append(b"done\n")
    git.run(
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
    found = git.resolve(ref)
    if found is None:
        raise ToolError(f"{git.directory} lacks {ref} after an import")
    return found


def blob_id(content: bytes) -> str:
    """Return the id that git gives to a blob."""
    made = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    made.update(content)
    return made.hexdigest()
