"""A zip archive written as a stream: spans of another archive copied, new members stored.

What is copied stays compressed as it was. What is new is stored, not deflated: the bytes that
deflate yields depend on the zlib build (zlib, zlib-ng and their versions differ), and a wheel must
have the same SHA-256 on every machine; some hundred kilobytes in 300 MB are the price.
The SHA-256 of the archive is taken while it is written, so that nothing is read twice.
"""

import hashlib
import os
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import BinaryIO

from tools.wheel.archive import DESCRIPTOR_FLAG, LOCAL_HEADER, LOCAL_SIGNATURE, UTF8_FLAG, Member

CENTRAL_HEADER = struct.Struct("<4s4B4H3L5H2L")
END = struct.Struct("<4s4H2LH")
ZIP64_END = struct.Struct("<4sQ2H2L4Q")
ZIP64_LOCATOR = struct.Struct("<4sLQL")
LIMIT = 0xFFFFFFFF
COUNT_LIMIT = 0xFFFF
ZIP64_ID = 1
VERSION_DEFAULT = 20
VERSION_ZIP64 = 45
UNIX = 3
CHUNK = 1 << 20

DateTime = tuple[int, int, int, int, int, int]


@dataclass(frozen=True)
class _Entry:
    name: bytes
    flags: int
    method: int
    date_time: DateTime
    crc: int
    packed: int
    unpacked: int
    external: int
    extra: bytes
    offset: int


@dataclass
class ZipWriter:
    """Writes one archive to ``out`` from its present position on.

    Attributes:
        out: A binary file open for writing.
        size: Bytes given to ``out`` or waiting in the pending span.
        zip64_from: Sizes and offsets from this one on are written as ZIP64 (tests lower it).
    """

    out: BinaryIO
    size: int = 0
    zip64_from: int = LIMIT
    _entries: list[_Entry] = field(default_factory=list)
    _hash: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    _buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(CHUNK)))
    # Adjacent spans of one source are copied as one: thousands of members cost a few reads.
    _source: BinaryIO | None = None
    _start: int = 0
    _end: int = 0

    def copy(self, source: BinaryIO, member: Member, name: str | None = None) -> None:
        """Copy a member with its compressed bytes, its timestamp and its mode.

        Args:
            source: The archive that holds it, open for reading.
            member: What to copy.
            name: Another name for it.
        """
        info = member.info
        new_name = (member.name if name is None else name).encode()
        verbatim = member.plain and name in (None, member.name)
        flags = info.flag_bits & ~DESCRIPTOR_FLAG
        if not new_name.isascii():
            flags |= UTF8_FLAG
        entry = _Entry(
            name=new_name,
            flags=flags,
            method=info.compress_type,
            date_time=info.date_time,
            crc=info.CRC,
            packed=info.compress_size,
            unpacked=info.file_size,
            external=info.external_attr,
            extra=_without_zip64(info.extra) if verbatim else b"",
            offset=self.size,
        )
        self._entries.append(entry)
        if verbatim:
            self._span(source, info.header_offset, member.data_end)
        else:
            self._write(_local_header(entry, self.zip64_from))
            self._span(source, member.data_offset, member.data_end)

    def add(self, name: str, data: bytes, *, mode: int, date_time: DateTime) -> None:
        """Store a new member.

        Args:
            name: Its path.
            data: Its bytes.
            mode: Permission bits, such as 0o644.
            date_time: Its timestamp.
        """
        encoded = name.encode()
        entry = _Entry(
            name=encoded,
            flags=0 if encoded.isascii() else UTF8_FLAG,
            method=zipfile.ZIP_STORED,
            date_time=date_time,
            crc=zlib.crc32(data),
            packed=len(data),
            unpacked=len(data),
            external=(stat.S_IFREG | mode) << 16,
            extra=b"",
            offset=self.size,
        )
        self._entries.append(entry)
        self._write(_local_header(entry, self.zip64_from))
        self._write(data)

    def finish(self) -> str:
        """Write the central directory and return the SHA-256 of the whole, in hexadecimal."""
        start = self.size
        for entry in self._entries:
            self._write(_central_header(entry, self.zip64_from))
        self._write(_end(len(self._entries), start, self.size - start, self.zip64_from))
        self.out.flush()
        return self._hash.hexdigest()

    def _span(self, source: BinaryIO, start: int, end: int) -> None:
        if self._source is not source or self._end != start:
            self._flush_span()
            self._source, self._start = source, start
        self._end = end
        self.size += end - start

    def _flush_span(self) -> None:
        if self._source is None:
            return
        descriptor = self._source.fileno()
        position = self._start
        while position < self._end:
            view = self._buffer[: min(CHUNK, self._end - position)]
            count = os.preadv(descriptor, [view], position)
            if count == 0:
                raise EOFError("the source archive became shorter while it was read")
            self._hash.update(view[:count])
            self.out.write(view[:count])
            position += count
        self._source = None

    def _write(self, data: bytes) -> None:
        self._flush_span()
        self._hash.update(data)
        self.out.write(data)
        self.size += len(data)


def _dos(date_time: DateTime) -> tuple[int, int]:
    year, month, day, hour, minute, second = date_time
    return (hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day)


def _without_zip64(extra: bytes) -> bytes:
    kept = b""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind != ZIP64_ID:
            kept += extra[position : position + 4 + length]
        position += 4 + length
    return kept


def _local_header(entry: _Entry, zip64_from: int) -> bytes:
    time, date = _dos(entry.date_time)
    zip64 = max(entry.packed, entry.unpacked) >= zip64_from
    extra = struct.pack("<HHQQ", ZIP64_ID, 16, entry.unpacked, entry.packed) if zip64 else b""
    header = LOCAL_HEADER.pack(
        LOCAL_SIGNATURE,
        VERSION_ZIP64 if zip64 else VERSION_DEFAULT,
        entry.flags,
        entry.method,
        time,
        date,
        entry.crc,
        LIMIT if zip64 else entry.packed,
        LIMIT if zip64 else entry.unpacked,
        len(entry.name),
        len(extra),
    )
    return header + entry.name + extra


def _central_header(entry: _Entry, zip64_from: int) -> bytes:
    time, date = _dos(entry.date_time)
    sizes = max(entry.packed, entry.unpacked) >= zip64_from
    far = entry.offset >= zip64_from
    values = ([entry.unpacked, entry.packed] if sizes else []) + ([entry.offset] if far else [])
    extra = entry.extra
    if values:
        extra = struct.pack(f"<HH{len(values)}Q", ZIP64_ID, 8 * len(values), *values) + extra
    version = VERSION_ZIP64 if values else VERSION_DEFAULT
    header = CENTRAL_HEADER.pack(
        b"PK\x01\x02",
        version,
        UNIX,
        version,
        0,
        entry.flags,
        entry.method,
        time,
        date,
        entry.crc,
        LIMIT if sizes else entry.packed,
        LIMIT if sizes else entry.unpacked,
        len(entry.name),
        len(extra),
        0,
        0,
        0,
        entry.external,
        LIMIT if far else entry.offset,
    )
    return header + entry.name + extra


def _end(count: int, start: int, length: int, zip64_from: int) -> bytes:
    zip64 = count >= COUNT_LIMIT or max(start, length) >= zip64_from
    end = END.pack(
        b"PK\x05\x06",
        0,
        0,
        COUNT_LIMIT if zip64 else count,
        COUNT_LIMIT if zip64 else count,
        LIMIT if zip64 else length,
        LIMIT if zip64 else start,
        0,
    )
    if not zip64:
        return end
    zip64_end = ZIP64_END.pack(
        b"PK\x06\x06", 44, VERSION_ZIP64, VERSION_ZIP64, 0, 0, count, count, length, start
    )
    return zip64_end + ZIP64_LOCATOR.pack(b"PK\x06\x07", 0, start + length, 1) + end
