"""The patches as data: reading them, their order, and the probes that say where they are needed."""

from tools.series.answers import Answers
from tools.series.diff import FileDiff, check_path, parse_diff
from tools.series.patch import Patch, parse_patch
from tools.series.probes import Probe, parse_probe
from tools.series.series import Series, Step, read_series

__all__ = [
    "Answers",
    "FileDiff",
    "Patch",
    "Probe",
    "Series",
    "Step",
    "check_path",
    "parse_diff",
    "parse_patch",
    "parse_probe",
    "read_series",
]
