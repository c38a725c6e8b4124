"""The one gateway to git: objects in, objects out, under no user's configuration.

Everything goes through GitPython with argument lists and bytes. Each command runs with a pinned
environment, because ``merge-tree`` and friends obey settings that reach them from many sides (a
user's attributes file, ``merge.renameLimit``, ``i18n.commitEncoding``, ``TZ``, ...) and the same
inputs must give the same object ids everywhere.
"""

from tools.git.fast_import import import_files
from tools.git.guarded import guarded_directory, remove_abandoned
from tools.git.model import (
    DIRECTORY,
    EMPTY_TREE,
    EXECUTABLE,
    REGULAR,
    SUBMODULE,
    SYMLINK,
    Change,
    Commit,
    Entry,
    Person,
    Result,
    Stage,
    TreeMerge,
)
from tools.git.repository import QUARANTINE, Git
from tools.git.view import GitTree

__all__ = [
    "DIRECTORY",
    "EMPTY_TREE",
    "EXECUTABLE",
    "QUARANTINE",
    "REGULAR",
    "SUBMODULE",
    "SYMLINK",
    "Change",
    "Commit",
    "Entry",
    "Git",
    "GitTree",
    "Person",
    "Result",
    "Stage",
    "TreeMerge",
    "guarded_directory",
    "import_files",
    "remove_abandoned",
]
