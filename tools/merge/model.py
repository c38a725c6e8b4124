"""What flows out of a merge: where each edit was written and landed, what a person must see."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The rung of the ladder that decided."""

    TEXT = "text"
    STRUCTURE = "structure"


@dataclass(frozen=True)
class Site:
    """A place in a file.

    Args:
        path: The file, relative to the tree.
        qualname: Dotted path of definitions and named containers, "" at module level; the heading
            in Markdown.
        line: 1-based line.
    """

    path: str
    qualname: str
    line: int

    def __str__(self) -> str:
        name = f" ({self.qualname})" if self.qualname else ""
        return f"{self.path}:{self.line}{name}"


@dataclass(frozen=True)
class Edit:
    """One change of a patch and where it went.

    Args:
        kind: "insert", "change" or "delete".
        written: Where the patch has it; a line of the patched file, of the base for a deletion.
        landed: Where the result has it; a line of the merged file, of the target for a deletion.
            Its qualified name differs from the written one only where a rename or a move of the
            whole definition was followed.
        present: The target already held the change.
    """

    kind: str
    written: Site
    landed: Site
    present: bool


@dataclass(frozen=True)
class Conflict:
    """Why a person must look, with both places."""

    reason: str
    written: Site
    target: Site | None

    def __str__(self) -> str:
        where = f"; target {self.target}" if self.target else ""
        return f"{self.reason}: written at {self.written}{where}"


@dataclass(frozen=True)
class FileMerge:
    """The outcome for one file.

    Args:
        files: Merged bytes by path: usually the one file, several when an edit followed a
            definition that moved; empty when there are conflicts.
        rule: The rung that decided.
        edits: Each change of the patch.
        conflicts: What could not be decided or proved; empty on success.
    """

    files: Mapping[str, bytes]
    rule: Rule
    edits: tuple[Edit, ...]
    conflicts: tuple[Conflict, ...]
