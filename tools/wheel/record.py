"""RECORD, the list of a wheel's files with their hashes and sizes.

Format: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
(csv rows of path, hash, size; the hash is ``sha256=`` and urlsafe base64 without padding; RECORD
itself has neither; signatures ``RECORD.jws`` and ``RECORD.p7s`` are not listed).
"""

import base64
import csv
import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass

from tools.errors import BadInput


@dataclass(frozen=True)
class Row:
    """One file in RECORD.

    Attributes:
        path: Its path in the wheel.
        digest: ``algorithm=base64``, or "" for RECORD itself.
        size: Its size as text, or "".
    """

    path: str
    digest: str
    size: str


def row_for(path: str, data: bytes) -> Row:
    """Return the row for a file with these bytes."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return Row(path, f"sha256={digest}", str(len(data)))


def parse_record(data: bytes, where: str) -> dict[str, Row]:
    """Read a RECORD.

    Args:
        data: Its bytes.
        where: The wheel's name, for messages.

    Returns:
        The rows by path, in the order of the file.

    Raises:
        BadInput: It is not UTF-8 csv with three fields a row, or a path stands twice.
    """
    rows: dict[str, Row] = {}
    try:
        reader = csv.reader(io.StringIO(data.decode(), newline=""), strict=True)
        for number, fields in enumerate(reader, 1):
            if not fields:
                continue
            if len(fields) != 3:
                raise BadInput(
                    f"{where}: RECORD row {number} has {len(fields)} fields; three are required"
                )
            row = Row(*fields)
            if row.path in rows:
                raise BadInput(f"{where}: RECORD lists {row.path!r} twice")
            rows[row.path] = row
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{where}: RECORD is not a UTF-8 csv table ({error})") from None
    return rows


def render_record(rows: Iterable[Row], record_path: str) -> bytes:
    """Return a RECORD with these rows and its own, last."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows((row.path, row.digest, row.size) for row in rows)
    writer.writerow((record_path, "", ""))
    return out.getvalue().encode()


def is_signature(path: str) -> bool:
    """Tell whether a member signs RECORD, and so cannot outlive a change of it."""
    return path.endswith((".dist-info/RECORD.jws", ".dist-info/RECORD.p7s"))
