"""Upstream's wheel as a list of members whose compressed bytes can be copied as they are.

``zipfile`` reads the central directory; this module adds what copying needs and ``zipfile`` does
not tell (where the compressed bytes begin, whether the local header agrees) and refuses archives
that a wheel from the index never is: names that leave the tree, links, duplicates, overlapping
members, encryption, sizes that no deflate stream can have.

Sources: PKWARE APPNOTE 6.3.10 (4.3.7 local header, 4.3.9 data descriptor, 4.5.3 ZIP64), and the
wheel format (https://packaging.python.org/en/latest/specifications/binary-distribution-format/).
"""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.errors import BadInput

LOCAL_HEADER = struct.Struct("<4s5H3L2H")
LOCAL_SIGNATURE = b"PK\x03\x04"
# Encrypted, strongly encrypted, and masked local headers.
ENCRYPTED_FLAGS = 0x0001 | 0x0040 | 0x2000
DESCRIPTOR_FLAG = 0x0008
UTF8_FLAG = 0x0800
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
MAX_MEMBERS = 200_000
# Deflate cannot expand by more than about 1032; a member that says so is a bomb or damaged.
MAX_RATIO = 1032
# A vLLM wheel expands about three times; the whole is bounded as well as each member.
MAX_TOTAL_RATIO = 100
# The largest member that is ever decompressed here (Python text, RECORD, METADATA).
MAX_READ = 64 * 1024 * 1024


@dataclass(frozen=True)
class Member:
    """One member of a wheel, and where its bytes are.

    Attributes:
        name: The path in the wheel.
        info: The central directory's entry.
        data_offset: Where the compressed bytes begin in the file.
        plain: The local header is usable verbatim under the same name (no data descriptor).
    """

    name: str
    info: zipfile.ZipInfo
    data_offset: int
    plain: bool

    @property
    def data_end(self) -> int:
        """Where the compressed bytes end in the file."""
        return self.data_offset + self.info.compress_size


@dataclass(frozen=True)
class Archive:
    """An opened wheel.

    Attributes:
        path: The file.
        stream: The file, open for reading.
        members: By name, in the order of the file.
    """

    path: Path
    stream: io.BufferedReader
    members: dict[str, Member]

    def read(self, name: str) -> bytes:
        """Return a member's bytes, checked against its size and CRC.

        Raises:
            BadInput: There is no such member, it is larger than ``MAX_READ``, or it is damaged.
        """
        member = self.members.get(name)
        if member is None:
            raise BadInput(f"{self.path.name} has no member {name!r}")
        info = member.info
        if info.file_size > MAX_READ or info.compress_size > MAX_READ:
            raise BadInput(
                f"{self.path.name}: {name!r} says it holds {info.file_size} bytes; "
                f"at most {MAX_READ} are read"
            )
        self.stream.seek(member.data_offset)
        data = self.stream.read(info.compress_size)
        if info.compress_type == zipfile.ZIP_DEFLATED:
            inflate = zlib.decompressobj(-zlib.MAX_WBITS)
            try:
                # One byte more than declared is enough to see a stream that goes on.
                data = inflate.decompress(data, info.file_size + 1)
            except zlib.error:
                raise damaged(self.path, f"{name!r} does not decompress") from None
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise damaged(self.path, f"{name!r} has another size or checksum than it says")
        return data

    def dist_info(self) -> str:
        """Return the name of the one ``*.dist-info`` directory.

        Raises:
            BadInput: There is none, or more than one.
        """
        tops = {name.split("/", 1)[0] for name in self.members}
        found = sorted(top for top in tops if top.endswith(".dist-info"))
        if len(found) != 1:
            raise BadInput(
                f"{self.path.name} has {len(found)} .dist-info directories; a wheel has one"
            )
        return found[0]


def damaged(path: Path, what: str) -> BadInput:
    """Return the error for a wheel that is cut short or altered."""
    return BadInput(f"{path.name} is damaged: {what}", "delete the file and fetch the wheel again")


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open a wheel and check its structure without decompressing anything.

    Args:
        path: The wheel file.

    Yields:
        The archive; it is closed afterwards.

    Raises:
        BadInput: The file is missing, cut short, or not an archive that a wheel can be.
    """
    try:
        stream = path.open("rb")
    except OSError as error:
        raise BadInput(f"cannot read the wheel {path}: {error.strerror}") from None
    with stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, ValueError, OSError, struct.error, NotImplementedError):
            raise damaged(path, "it is not a complete zip archive") from None
        size = stream.seek(0, io.SEEK_END)
        _check_whole(path, infos, size)
        members = {info.filename: _locate(path, stream, info) for info in infos}
        _check_layout(path, list(members.values()), size)
        yield Archive(path, stream, members)


def check_name(name: str) -> str | None:
    """Return why a name cannot be a member's path, or None where it can."""
    parts = name.removesuffix("/").split("/")
    if not name or name.startswith("/") or "\\" in name or ":" in parts[0]:
        return "is not a relative POSIX path"
    if any(part in ("", ".", "..") for part in parts):
        return "has an empty, '.' or '..' part"
    if not name.isprintable():
        return "has a character that cannot be printed"
    return None


def _check_whole(path: Path, infos: list[zipfile.ZipInfo], size: int) -> None:
    if len(infos) > MAX_MEMBERS:
        raise BadInput(f"{path.name} has {len(infos)} members; at most {MAX_MEMBERS} are accepted")
    total = sum(info.file_size for info in infos)
    if total > MAX_TOTAL_RATIO * size:
        raise BadInput(
            f"{path.name} says it expands to {total} bytes, "
            f"more than {MAX_TOTAL_RATIO} times its size"
        )
    names: set[str] = set()
    for info in infos:
        reason = _refusal(info)
        if reason is None and info.filename in names:
            reason = "stands twice in the archive"
        if reason is not None:
            raise BadInput(f"{path.name}: member {info.orig_filename!r} {reason}")
        names.add(info.filename)
    check_tree(path, names)


def check_tree(path: Path, names: Collection[str]) -> None:
    """Refuse members of which one is a file where another needs a directory.

    Raises:
        BadInput: Such a pair exists.
    """
    directories: set[str] = set()
    for name in names:
        parent = name.removesuffix("/").rpartition("/")[0]
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition("/")[0]
    for clash in sorted(directories.intersection(names)):
        raise BadInput(f"{path.name}: member {clash!r} is a file and a directory")


def _refusal(info: zipfile.ZipInfo) -> str | None:
    reason = check_name(info.orig_filename)
    if reason is not None:
        return reason
    faults = {
        "is a link or a special file": stat.S_IFMT(info.external_attr >> 16)
        not in (0, stat.S_IFREG, stat.S_IFDIR),
        "is encrypted": bool(info.flag_bits & ENCRYPTED_FLAGS),
        "is neither stored nor deflated": info.compress_type not in METHODS,
        "is neither ASCII nor marked as UTF-8": not info.flag_bits & UTF8_FLAG
        and not info.filename.isascii(),
        "says it expands further than deflate can": info.file_size
        > MAX_RATIO * max(info.compress_size, 16),
    }
    return next((reason for reason, holds in faults.items() if holds), None)


def _locate(path: Path, stream: io.BufferedReader, info: zipfile.ZipInfo) -> Member:
    if info.header_offset < 0:
        raise damaged(path, f"{info.filename!r} begins before the file")
    stream.seek(info.header_offset)
    header = stream.read(LOCAL_HEADER.size)
    if len(header) != LOCAL_HEADER.size or not header.startswith(LOCAL_SIGNATURE):
        raise damaged(path, f"no local header for {info.filename!r}")
    (_, _, flags, method, _, _, crc, packed, unpacked, name_length, extra_length) = (
        LOCAL_HEADER.unpack(header)
    )
    encoding = "utf-8" if flags & UTF8_FLAG else "ascii"
    if stream.read(name_length) != info.orig_filename.encode(encoding, "surrogateescape"):
        raise damaged(path, f"the local header of {info.filename!r} has another name")
    if method != info.compress_type or flags & ENCRYPTED_FLAGS:
        raise damaged(path, f"the local header of {info.filename!r} has another method")
    described = bool(flags & DESCRIPTOR_FLAG)
    # In ZIP64 the sizes stand in an extra field; then the header is written anew, from the
    # central directory, which zipfile has already read that field of.
    zip64 = 0xFFFFFFFF in (packed, unpacked)
    if (
        not described
        and not zip64
        and (crc, packed, unpacked)
        != (
            info.CRC,
            info.compress_size,
            info.file_size,
        )
    ):
        raise damaged(path, f"the local header of {info.filename!r} has another size or checksum")
    offset = info.header_offset + LOCAL_HEADER.size + name_length + extra_length
    return Member(info.filename, info, offset, plain=not described and not zip64)


def _check_layout(path: Path, members: list[Member], size: int) -> None:
    end = 0
    for member in sorted(members, key=lambda member: member.info.header_offset):
        if member.info.header_offset < end:
            raise BadInput(f"{path.name}: member {member.name!r} overlaps another")
        end = member.data_end
    if end > size:
        raise damaged(path, "a member reaches beyond the end of the file")
