"""Three-way merges of single files, by text and by syntax, with a proof of the result.

Bytes in, bytes out: the package knows no git, no files and no model.
"""

from tools.merge.ladder import merge_file, prove
from tools.merge.lines import Labels, conflict_markers, merge_text
from tools.merge.model import Conflict, Edit, FileMerge, Rule, Site

__all__ = [
    "Conflict",
    "Edit",
    "FileMerge",
    "Labels",
    "Rule",
    "Site",
    "conflict_markers",
    "merge_file",
    "merge_text",
    "prove",
]
