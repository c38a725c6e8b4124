"""What a carry says: one outcome a patch, with the rule that decided and where each edit landed."""

from dataclasses import dataclass
from enum import StrEnum

from tools.merge import Conflict, Edit
from tools.overlay import Laid
from tools.upstream import Upstream


class Outcome(StrEnum):
    """The five ways in which bringing a patch to a ref can end."""

    CLEAN = "clean"
    STRUCTURAL = "structural"
    UPSTREAMED = "upstreamed"
    NOT_NEEDED = "not-needed"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class PatchOutcome:
    """One patch at one ref.

    Attributes:
        name: The step of the series, ``NNNN-slug``.
        file: The variant that was carried, or that was tried first.
        digest: SHA-256 of that variant.
        outcome: How it ended.
        rule: What decided, in words.
        edits: Where each edit was written and where it landed.
        conflicts: What a person must look at; empty unless the outcome is ``conflict``.
        commit: The commit that carries it, or None where the tree stays as it is.
    """

    name: str
    file: str
    digest: str
    outcome: Outcome
    rule: str
    edits: tuple[Edit, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    commit: str | None = None


@dataclass(frozen=True)
class Carried:
    """A ref with the series and the overlay on it.

    Attributes:
        upstream: The ref as upstream has it.
        commit: The tip of the chain of commits, one a patch and one for the overlay.
        tree: Its tree.
        outcomes: One a step of the series, in order.
        overlay: What became of each overlay file.
    """

    upstream: Upstream
    commit: str
    tree: str
    outcomes: tuple[PatchOutcome, ...]
    overlay: tuple[Laid, ...]

    @property
    def conflicts(self) -> tuple[PatchOutcome, ...]:
        """The outcomes that need a person."""
        return tuple(o for o in self.outcomes if o.outcome is Outcome.CONFLICT)
