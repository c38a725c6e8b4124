"""Members of a wheel on the package index, read by range, without downloading or installing it."""

import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import requests

from tools.errors import Unavailable
from tools.upstream.page import IndexFile

_BLOCK = 1 << 17
_TIMEOUT = (15.0, 60.0)
# A wheel up to this size is fetched whole: one request costs less than many small ones.
_WHOLE = 24 << 20
_MEMBER_LIMIT = 32 << 20


class _RangeFile(io.RawIOBase):
    """A file of known size on a server that answers range requests."""

    def __init__(self, file: IndexFile, session: requests.Session) -> None:
        super().__init__()
        self._file = file
        self._session = session
        self._at = 0
        self._blocks: dict[int, bytes] = {}
        self._size = file.size or self._ask_size()
        if self._size <= _WHOLE:
            whole = self._get(0, self._size)
            self._blocks = {
                start // _BLOCK: whole[start : start + _BLOCK]
                for start in range(0, self._size, _BLOCK)
            }

    def _ask_size(self) -> int:
        answer = self._request({"Range": "bytes=0-0"})
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if not total.isdigit():
            raise Unavailable(f"the package index does not serve parts of {self._file.filename}")
        return int(total)

    def _request(self, headers: dict[str, str]) -> requests.Response:
        headers["Accept-Encoding"] = "identity"
        try:
            answer = self._session.get(self._file.url, headers=headers, timeout=_TIMEOUT)
            answer.raise_for_status()
        except requests.RequestException as error:
            raise Unavailable(
                f"{self._file.filename} cannot be read from the package index", "check the network"
            ) from error
        return answer

    def _get(self, start: int, end: int) -> bytes:
        content = self._request({"Range": f"bytes={start}-{end - 1}"}).content
        if len(content) != end - start:
            raise Unavailable(f"the package index sent another part of {self._file.filename}")
        return content

    def readable(self) -> bool:
        """See :class:`io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See :class:`io.RawIOBase`."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See :class:`io.RawIOBase`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """See :class:`io.RawIOBase`."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """See :class:`io.RawIOBase`."""
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        first, last = self._at // _BLOCK, (end - 1) // _BLOCK
        lacking = [number for number in range(first, last + 1) if number not in self._blocks]
        if lacking:
            start = lacking[0] * _BLOCK
            part = self._get(start, min((lacking[-1] + 1) * _BLOCK, self._size))
            for number in range(lacking[0], lacking[-1] + 1):
                offset = number * _BLOCK - start
                self._blocks[number] = part[offset : offset + _BLOCK]
        joined = b"".join(self._blocks[number] for number in range(first, last + 1))
        found = joined[self._at - first * _BLOCK : end - first * _BLOCK]
        self._at = end
        return found


@dataclass(frozen=True)
class WheelTree:
    """A :class:`tools.tree.Tree` over the members of a wheel on the index."""

    file: IndexFile
    archive: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo] = field(default_factory=dict)

    @classmethod
    def open(cls, file: IndexFile, session: requests.Session) -> "WheelTree":
        """Read a wheel's directory.

        Raises:
            Unavailable: The index does not give it, or it is no wheel.
        """
        try:
            archive = zipfile.ZipFile(_RangeFile(file, session))
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise Unavailable(f"{file.filename} is not a readable wheel") from error
        return cls(file, archive, {info.filename: info for info in archive.infolist()})

    def read(self, path: str) -> bytes | None:
        """See :meth:`tools.tree.Tree.read`."""
        info = self.members.get(path)
        if info is None or info.is_dir() or info.file_size > _MEMBER_LIMIT:
            return None
        try:
            return self.archive.read(info)
        except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError) as error:
            raise Unavailable(f"{path} in {self.file.filename} is damaged") from error

    def paths(self, prefix: str = "") -> Iterator[str]:
        """See :meth:`tools.tree.Tree.paths`."""
        return (path for path in sorted(self.members) if path.startswith(prefix))
