"""Objects read one at a time from a running git, and trees taken apart."""

import contextlib
import subprocess
import weakref
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from tools.errors import BadInput, ToolError
from tools.git.model import Entry


class CatFile:
    """A running ``cat-file --batch``, asked one object at a time; small answers are remembered."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._end = weakref.finalize(self, _end, process)  # also for whoever forgets to close
        self._seen: dict[bytes, tuple[str, str, bytes]] = {}

    def get(self, name: bytes) -> tuple[str, str, bytes] | None:
        """Return (id, type, content) of what ``name`` names, or None.

        Raises:
            BadInput: ``name`` cannot be asked for.
            EOFError: git ended, as it does on an object that it cannot unpack.
            BrokenPipeError: The same, noticed later.
        """
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
        """End git."""
        self._end()


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        process.communicate()


@lru_cache(maxsize=4096)
def parse_tree(content: bytes) -> Mapping[bytes, Entry]:
    """Return the entries of a tree object's content by name, in git's order."""
    entries = {}
    position = 0
    while position < len(content):
        space = content.index(b" ", position)
        end = content.index(b"\0", space)
        name = content[space + 1 : end]
        oid = content[end + 1 : end + 21].hex()
        entries[name] = Entry(name, content[position:space].decode().zfill(6), oid)
        position = end + 21
    return MappingProxyType(entries)
