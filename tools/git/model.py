"""What git's objects hold, as values; and the modes of tree entries."""

from dataclasses import dataclass

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
REGULAR, EXECUTABLE, SYMLINK, SUBMODULE, DIRECTORY = (
    "100644",
    "100755",
    "120000",
    "160000",
    "040000",
)


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
