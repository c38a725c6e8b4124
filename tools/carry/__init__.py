"""Carrying: the series and the overlay brought to an upstream ref, on git objects alone."""

from tools.carry.chain import CARRIED_REFS, Carrier, Stop
from tools.carry.export import Exported, export
from tools.carry.outcome import Carried, Outcome, PatchOutcome
from tools.carry.resolutions import Resolution, Resolutions, read_resolutions
from tools.carry.worktree import Checkout, State, check_out
from tools.carry.written import DoesNotFit

__all__ = [
    "CARRIED_REFS",
    "Carried",
    "Carrier",
    "Checkout",
    "DoesNotFit",
    "Exported",
    "Outcome",
    "PatchOutcome",
    "Resolution",
    "Resolutions",
    "State",
    "Stop",
    "check_out",
    "export",
    "read_resolutions",
]
