"""Rule CT103: a name taken from a dependency exists in every version that the release admits.

Wheels are read from the index, never installed. Not every version is looked at: the oldest, the
newest and a few between are, and where two neighbours differ the boundary is found by halving, so a
name that came and went between two samples stays unseen. What a version holds is kept in the cache.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import requests
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tools.contract.findings import Code, Finding, Severity, Site
from tools.contract.imports import Wanted
from tools.contract.kept import Answer
from tools.contract.program import Program
from tools.contract.remote import WheelTree
from tools.errors import ToolError, Unavailable
from tools.series.requirements import admitted, distribution_of
from tools.tree import Tree
from tools.upstream import downloads
from tools.upstream.index import Index
from tools.upstream.page import IndexFile

# Samples between the oldest and the newest admitted version, before halving.
_BETWEEN = 3
_FORMAT = 1

Name = tuple[str, str]


class DependencyIndex(Protocol):
    """Where the versions of other distributions, and the names in them, can be looked up."""

    def versions(self, distribution: str, specifier: SpecifierSet) -> Sequence[Version]:
        """Return the versions that a specifier admits, oldest first."""
        ...

    def present(
        self, distribution: str, version: Version, names: Iterable[Name]
    ) -> Mapping[Name, bool]:
        """Say for each (module, attribute) whether a version has it."""
        ...

    def tree(self, distribution: str, version: Version) -> Tree:
        """Return the files of a version."""
        ...


@dataclass
class WheelIndex:
    """The package index, with what was learnt kept as JSON in the cache.

    Args:
        index: The index.
        cache: The user's cache directory.
    """

    index: Index
    cache: Path
    _session: requests.Session = field(default_factory=requests.Session)
    _programs: dict[str, Program] = field(default_factory=dict)

    def versions(self, distribution: str, specifier: SpecifierSet) -> Sequence[Version]:
        """See :meth:`DependencyIndex.versions`.

        Raises:
            Unavailable: The index cannot be read or has no such project.
        """
        known = {
            Version(file.version) for file in self.index.files(distribution) if file.kind == "wheel"
        }
        return sorted(specifier.filter(known))

    def present(
        self, distribution: str, version: Version, names: Iterable[Name]
    ) -> Mapping[Name, bool]:
        """See :meth:`DependencyIndex.present`.

        Raises:
            Unavailable: The wheel cannot be read.
        """
        file = self._wheel(distribution, version)
        kept = self.cache / "contract" / f"{distribution}-{version}.json"
        known = _read_kept(kept, file.sha256)
        lacking = [name for name in names if "\0".join(name) not in known]
        if lacking:
            program = self._program(file)
            for module, attr in lacking:
                known[f"{module}\0{attr}"] = _has(program, module, attr)
            page = {"format": _FORMAT, "sha256": file.sha256, "names": known}
            # What cannot be kept (a read-only cache) has still been learnt.
            with contextlib.suppress(ToolError):
                downloads.write_aside(kept, json.dumps(page, sort_keys=True).encode())
        return {name: known["\0".join(name)] for name in names}

    def tree(self, distribution: str, version: Version) -> Tree:
        """See :meth:`DependencyIndex.tree`.

        Raises:
            Unavailable: The wheel cannot be read.
        """
        return self._program(self._wheel(distribution, version)).tree

    def _wheel(self, distribution: str, version: Version) -> IndexFile:
        wheels = [
            file
            for file in self.index.files(distribution)
            if file.kind == "wheel" and Version(file.version) == version
        ]
        # The Python part is the same on each platform; a pure wheel or Linux comes first.
        wheels.sort(key=lambda f: ("none-any" not in f.filename, "linux" not in f.filename))
        if not wheels:
            raise Unavailable(f"the package index has no wheel of {distribution} {version}")
        return wheels[0]

    def _program(self, file: IndexFile) -> Program:
        if file.filename not in self._programs:
            tree = WheelTree.open(file, self._session)
            roots = {path.partition("/")[0] for path in tree.paths() if "/" in path}
            packages = tuple(sorted(root for root in roots if root.isidentifier()))
            for program in self._programs.values():  # One wheel in memory is enough.
                program.close()
            self._programs.clear()
            self._programs[file.filename] = Program(tree, packages)
        return self._programs[file.filename]


@dataclass
class RecordingIndex:
    """An index that remembers what it said about versions, for a report that is kept.

    What a version holds never changes; which versions there are does.

    Attributes:
        index: The index that answers.
        answers: The answers so far.
    """

    index: DependencyIndex
    answers: set[Answer] = field(default_factory=set)

    def versions(self, distribution: str, specifier: SpecifierSet) -> Sequence[Version]:
        """See :meth:`DependencyIndex.versions`."""
        found = self.index.versions(distribution, specifier)
        self.answers.add(Answer(distribution, str(specifier), ",".join(map(str, found))))
        return found

    def present(
        self, distribution: str, version: Version, names: Iterable[Name]
    ) -> Mapping[Name, bool]:
        """See :meth:`DependencyIndex.present`."""
        return self.index.present(distribution, version, names)

    def tree(self, distribution: str, version: Version) -> Tree:
        """See :meth:`DependencyIndex.tree`."""
        return self.index.tree(distribution, version)


def answered_alike(answers: Iterable[Answer], index: DependencyIndex) -> bool:
    """Say whether the index would answer the same now; where it cannot be asked, it would.

    Raises:
        packaging.specifiers.InvalidSpecifier: An answer is not one of :class:`RecordingIndex`.
    """
    try:
        return all(
            ",".join(map(str, index.versions(a.distribution, SpecifierSet(a.specifier))))
            == a.versions
            for a in answers
        )
    except Unavailable:
        return True


def _has(program: Program, module: str, attr: str) -> bool:
    if not program.exists(module):
        parent, _, last = module.rpartition(".")
        # A single-file module beside the packages, or an alias that a package makes.
        alone = program.tree.read(f"{module}.py") is not None
        return alone or (bool(parent) and program.resolve(parent, last) is not None)
    return not attr or program.resolve(module, attr) is not None


def _read_kept(path: Path, sha256: str) -> dict[str, bool]:
    try:
        page = json.loads(path.read_bytes())
        if page["format"] != _FORMAT or page["sha256"] != sha256:
            return {}
        return {str(name): bool(value) for name, value in page["names"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def check_dependencies(
    tree: Tree, wanted: Iterable[Wanted], index: DependencyIndex
) -> tuple[list[Finding], list[str]]:
    """Look up every name that clients take from dependencies of a release.

    Returns:
        The findings, and one line for each distribution that could not be looked up. Modules of
        distributions that the release does not require itself are left alone.
    """
    required = admitted(tree)
    grouped: dict[str, list[Wanted]] = {}
    for item in wanted:
        distribution = distribution_of(item.module)
        if distribution in required:
            grouped.setdefault(distribution, []).append(item)
    findings: list[Finding] = []
    unchecked: list[str] = []
    for distribution, items in sorted(grouped.items()):
        try:
            findings += _check(distribution, required[distribution], items, index)
        except Unavailable as error:
            unchecked.append(f"{distribution}: {error.message}")
    return findings, unchecked


def _check(
    distribution: str, specifier: SpecifierSet, items: list[Wanted], index: DependencyIndex
) -> Iterator[Finding]:
    versions = index.versions(distribution, specifier)
    if not versions:
        raise Unavailable(f"the package index has no version {specifier}")
    names = sorted({(item.module, item.attr) for item in items})
    for name, gaps in missing_ranges(distribution, versions, names, index).items():
        for item in items:
            if (item.module, item.attr) == name:
                yield _finding(distribution, specifier, versions, item, gaps)


def missing_ranges(
    distribution: str, versions: Sequence[Version], names: Sequence[Name], index: DependencyIndex
) -> dict[Name, list[tuple[Version, Version]]]:
    """Return the ranges of versions, ends included, in which each name is missing."""
    seen: dict[int, Mapping[Name, bool]] = {}

    def look(position: int) -> Mapping[Name, bool]:
        if position not in seen:
            seen[position] = index.present(distribution, versions[position], names)
        return seen[position]

    last = len(versions) - 1
    samples = sorted({round(last * part / (_BETWEEN + 1)) for part in range(_BETWEEN + 2)})
    # The newest first: it is what an installer takes, and its wheel is the likeliest to be kept.
    for position in reversed(samples):
        look(position)
    pending = list(pairwise(samples))
    while pending:
        low, high = pending.pop()
        if high - low > 1 and look(low) != look(high):
            middle = (low + high) // 2
            look(middle)
            pending += [(low, middle), (middle, high)]
    order = sorted(seen)
    found: dict[Name, list[tuple[Version, Version]]] = {}
    for name in names:
        marked = [(seen[position][name], versions[position]) for position in order]
        for present, run in groupby(marked, key=itemgetter(0)):
            gap = [version for _, version in run]
            if not present:
                found.setdefault(name, []).append((gap[0], gap[-1]))
    return found


def _finding(
    distribution: str,
    specifier: SpecifierSet,
    versions: Sequence[Version],
    item: Wanted,
    gaps: list[tuple[Version, Version]],
) -> Finding:
    what = f"{item.module} has no {item.attr}" if item.attr else f"there is no {item.module}"
    everywhere = gaps == [(versions[0], versions[-1])]
    newest = gaps[-1][1] == versions[-1]
    where = (
        f"any version that the release admits, {versions[0]} to {versions[-1]}"
        if everywhere
        else " and ".join(str(low) if low == high else f"{low} to {high}" for low, high in gaps)
    )
    hint = (
        "import it only where it exists"
        if everywhere
        else f"guard the import, or ask for a {distribution} that has it"
    )
    return Finding(
        Code.DEPENDENCY_MISSING,
        item.path,
        item.line,
        f"{what} in {where} ({distribution}{specifier})",
        (
            Site(item.path, item.line, item.attr or item.module),
            Site(f"{distribution}:{item.module.replace('.', '/')}", 1, item.attr),
        ),
        hint,
        Severity.ERROR if newest else Severity.WARNING,
    )
