"""Carrying: the series and the overlay brought to an upstream ref, on git objects alone."""

from tools.carry.chain import CARRIED_REFS, Carrier
from tools.carry.export import Exported, export
from tools.carry.outcome import Carried, Outcome, PatchOutcome
from tools.carry.worktree import Checkout, State, check_out

__all__ = [
    "CARRIED_REFS",
    "Carried",
    "Carrier",
    "Checkout",
    "Exported",
    "Outcome",
    "PatchOutcome",
    "State",
    "check_out",
    "export",
]
