"""What a carry changed, and what of it belongs into a wheel.

A wheel holds upstream's packages, so that only changes below them go in. Changes to what upstream
compiles, or to how it builds, cannot be made by repacking: they are refused by name. The rest of
the tree (docs, examples, tests) is in no wheel.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

from tools.errors import BadInput, CheckFailed
from tools.wheel.archive import check_name

REGULAR_MODES = (0o100644, 0o100755)
# What upstream's setup.py, CMake files and cargo read; seen in releases 0.10.0 to 0.33.0.
BUILD_DIRECTORIES = ("cmake/", "csrc/", "rust/", "requirements/build/")
BUILD_FILES = frozenset(
    {
        "CMakeLists.txt",
        "Cargo.lock",
        "Cargo.toml",
        "MANIFEST.in",
        "build.rs",
        "find_cuda_init.py",
        "rust-toolchain.toml",
        "setup.cfg",
        "setup.py",
        "use_existing_torch.py",
    }
)
COMPILED_SUFFIXES = frozenset({
    ".a", ".c", ".cc", ".cmake", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp", ".inc",
    ".pxd", ".pyx", ".rs", ".so",
})  # fmt: skip
# Requirement files that neither the build nor METADATA is made from.
OTHER_REQUIREMENTS = ("dev", "docs", "lint", "test", "nightly", "rocm-test", "kv_connectors")
# pyproject.toml tables that decide how and what is built.
BUILD_TABLES = ("build-system", "project", "dependency-groups")
BUILD_TOOLS = ("setuptools", "setuptools_scm", "setuptools-scm", "scikit-build", "maturin", "uv")


@dataclass(frozen=True)
class Change:
    """One path that differs between the upstream commit and the carried commit.

    Attributes:
        old: Upstream's bytes, or None where the path is new.
        new: The carried bytes, or None where the path is removed.
        mode: The git mode of the carried file, such as 0o100644.
    """

    old: bytes | None
    new: bytes | None
    mode: int = 0o100644


class Outcome(Enum):
    """What became of one change in the wheel."""

    REPLACED = "replaced"
    ADDED = "added"
    REMOVED = "removed"
    MERGED = "merged"
    PRESENT = "present"
    NOT_PACKAGED = "not-packaged"


@dataclass(frozen=True)
class Sorted:
    """Changes by where they belong.

    Attributes:
        inside: Changes below the wheel's packages, by path.
        outside: How many others there are.
    """

    inside: Mapping[str, Change]
    outside: int


def sort_changes(changes: Mapping[str, Change], packages: frozenset[str]) -> Sorted:
    """Keep the changes that a wheel holds, and refuse those that need a compiler.

    Args:
        changes: By path in the tree.
        packages: The wheel's top-level packages, such as ``{"vllm"}``.

    Returns:
        The changes below the packages, sorted by path, and the number of the others.

    Raises:
        BadInput: A path or mode is none that a wheel can hold.
        CheckFailed: The series touches compiled or build files.
    """
    needing_build = [path for path in sorted(changes) if touches_build(path, changes[path])]
    if needing_build:
        shown = ", ".join(needing_build[:5]) + (", ..." if len(needing_build) > 5 else "")
        raise CheckFailed(
            f"the series touches {len(needing_build)} compiled or build files, "
            f"so upstream's wheel cannot be repacked: {shown}",
            "build from source instead",
        )
    inside: dict[str, Change] = {}
    for path, change in sorted(changes.items()):
        if path.split("/", 1)[0] not in packages or "/" not in path:
            continue
        reason = check_name(path)
        if reason is not None or path.endswith("/"):
            raise BadInput(f"the changed path {path!r} {reason or 'is a directory'}")
        if change.new is not None and change.mode not in REGULAR_MODES:
            raise BadInput(f"{path} has git mode {change.mode:06o}; a wheel holds regular files")
        inside[path] = change
    return Sorted(inside, len(changes) - len(inside))


def touches_build(path: str, change: Change) -> bool:
    """Tell whether a change alters what is compiled, or how upstream builds."""
    name = PurePosixPath(path)
    if path.startswith(BUILD_DIRECTORIES) or name.name in BUILD_FILES:
        return not path.startswith(("tests/", "docs/", "examples/", "benchmarks/"))
    if name.suffix in COMPILED_SUFFIXES:
        return not path.startswith(("tests/", "docs/", "examples/", "benchmarks/"))
    if path.startswith("requirements") and name.suffix in (".txt", ".in"):
        inner = path.removeprefix("requirements").lstrip("/-")
        return not inner.startswith(OTHER_REQUIREMENTS)
    if path == "pyproject.toml":
        return _build_part(change.old) != _build_part(change.new)
    return False


def _build_part(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # What cannot be read is compared as a whole.
        return data
    tables = {name: document.get(name) for name in BUILD_TABLES}
    tools = document.get("tool", {})
    return tables | {f"tool.{name}": tools.get(name) for name in BUILD_TOOLS}
