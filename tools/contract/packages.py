"""The files of a tree's packages, and which modules they, or the build, make."""

import re
from bisect import bisect_left
from functools import cached_property
from itertools import islice, takewhile

from tools.tree import Tree


class Packages:
    """The packages of a tree, by file and by module name.

    Args:
        tree: Where the files are.
        roots: Top-level packages that belong to the tree; every other import is external.
    """

    def __init__(self, tree: Tree, roots: tuple[str, ...]) -> None:
        self.tree = tree
        self.roots = roots
        self._sources: dict[str, bytes] = {}

    @cached_property
    def files(self) -> frozenset[str]:
        """Every Python or native module file under the roots."""
        return frozenset(
            path
            for root in self.roots
            for path in self.tree.paths(f"{root}/")
            if path.endswith((".py", ".so", ".pyd", ".pyi"))
        )

    @cached_property
    def packages(self) -> frozenset[str]:
        """Every directory that holds a module, as a dotted name (namespace packages count)."""
        found: set[str] = set()
        for path in self.files:
            parts = path.split("/")[:-1]
            found.update(".".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        return frozenset(found)

    def is_internal(self, module: str) -> bool:
        """Say whether a dotted module name lies under the roots."""
        return module.partition(".")[0] in self.roots

    def source(self, path: str) -> bytes:
        """Return a file's bytes, kept for further text searches."""
        if path not in self._sources:
            self._sources[path] = self.tree.read(path) or b""
        return self._sources[path]

    def exists(self, module: str) -> bool:
        """Say whether a module, package or native module of that name is in the tree."""
        base = module.replace(".", "/")
        if module in self.packages or f"{base}.py" in self.files:
            return True
        return self.is_built(module)

    @cached_property
    def built(self) -> frozenset[str]:
        """Modules that the build makes or fetches, as its scripts name them (``vllm/_C``).

        A source tree lacks compiled extensions and vendored packages; the paths that ``setup.py``
        and the CMake files write to are the only record of what an installed tree will hold.
        """
        scripts = ["setup.py", "CMakeLists.txt", *self.tree.paths("cmake/external_projects/")]
        pattern = re.compile(rb"(?:%s)(?:/\w+)+" % "|".join(self.roots).encode())
        return frozenset(
            match.decode().replace("/", ".")
            for script in scripts
            for match in pattern.findall(self.tree.read(script) or b"")
        )

    def is_built(self, module: str) -> bool:
        """Say whether a module that the tree lacks lies where the build puts something."""
        base = module.replace(".", "/")
        if f"{base}.py" in self.files or module in self.packages:
            return False
        parts = module.split(".")
        if any(".".join(parts[:depth]) in self.built for depth in range(2, len(parts) + 1)):
            return True
        return module in self._native

    @cached_property
    def _native(self) -> frozenset[str]:
        """Compiled modules that are in the tree, as in a wheel."""
        return frozenset(
            f"{folder}/{name.partition('.')[0]}".lstrip("/").replace("/", ".")
            for path in self.files
            if path.endswith((".so", ".pyd"))
            for folder, _, name in (path.rpartition("/"),)
        )

    def below(self, prefix: str) -> list[str]:
        """Return the Python files under a directory."""
        order = self._ordered
        start = bisect_left(order, prefix)
        return [
            path
            for path in takewhile(lambda path: path.startswith(prefix), islice(order, start, None))
            if path.endswith(".py")
        ]

    @cached_property
    def _ordered(self) -> list[str]:
        return sorted(self.files)
