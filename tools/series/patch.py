"""One patch of the series: a git mailbox file with a body that says why and DEP-3 style fields.

A patch is read from the bytes of ``git format-patch --full-index``. Its fields stand in the last
paragraph of the body, one ``Field: value`` a line:

``Base``, ``Origin``, ``Forwarded``, ``Applied-Upstream``, ``Only-If``, ``Skip-If``, ``Bug``.
"""

import difflib
import email.policy
import email.utils
import hashlib
import re
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from functools import cached_property

from tools.errors import BadInput
from tools.git import Person
from tools.series.diff import FileDiff, parse_diff
from tools.series.probes import Probe, parse_probe

FIELDS = ("Base", "Origin", "Forwarded", "Applied-Upstream", "Only-If", "Skip-If", "Bug")
_TRAILERS = ("Signed-off-by", "Co-authored-by", "Reviewed-by", "Acked-by", "Reported-by")
_FIELD = re.compile(r"([A-Z][A-Za-z-]*): ?(.*)")
_FILE = re.compile(r"(?P<number>\d{4})-(?P<slug>[a-z0-9][a-z0-9_-]*)(?:@(?P<base>v[\w.]+))?\.patch")


@dataclass(frozen=True)
class Patch:
    """A patch and what its header says.

    Attributes:
        file: The file name, ``NNNN-slug.patch`` or the variant ``NNNN-slug@vX.Y.Z.patch``.
        name: ``NNNN-slug``: a patch and its variants share it.
        author: Who wrote it and when.
        subject: The first line of the message, without ``[PATCH n/m]``.
        body: The message below the subject, with the fields.
        base: The upstream release that it was written on, such as ``v0.19.1``.
        fields: Every field in order, as (name, value).
        only_if: All of these must hold at a ref, or the patch is not needed there.
        skip_if: Where one of these holds, the patch is not needed.
        diff: The diff's bytes, as they stand in the file.
    """

    file: str
    name: str
    author: Person
    subject: str
    body: str
    base: str
    fields: tuple[tuple[str, str], ...]
    only_if: tuple[Probe, ...]
    skip_if: tuple[Probe, ...]
    diff: bytes

    @cached_property
    def files(self) -> tuple[FileDiff, ...]:
        """The files that the diff touches."""
        return parse_diff(self.diff)

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of all that has an effect on what is carried."""
        parts = [self.file, self.subject, self.body, self.author.line().decode()]
        return hashlib.sha256("\0".join(parts).encode() + b"\0" + self.diff).hexdigest()

    @property
    def message(self) -> bytes:
        """The commit message, ending in one newline."""
        text = f"{self.subject}\n\n{self.body}".rstrip() + "\n"
        return text.encode("utf-8", "surrogateescape")

    def field(self, name: str) -> tuple[str, ...]:
        """Return every value of a field."""
        return tuple(value for key, value in self.fields if key == name)


def parse_patch(file: str, content: bytes) -> Patch:
    """Read a mailbox patch.

    Args:
        file: Its file name, which the series lists.
        content: Its bytes.

    Raises:
        BadInput: The name, header, a field or the diff is malformed; the message names the file.
    """
    named = _FILE.fullmatch(file)
    if not named:
        raise BadInput(
            f"{file!r} is no patch name", "name it NNNN-slug.patch or NNNN-slug@vX.patch"
        )
    try:
        author, subject, body, diff = _split(content)
        fields = _fields(body)
        patch = Patch(
            file=file,
            name=f"{named['number']}-{named['slug']}",
            author=author,
            subject=subject,
            body=body,
            base=_base(fields, named["base"]),
            fields=fields,
            only_if=tuple(parse_probe(value) for key, value in fields if key == "Only-If"),
            skip_if=tuple(parse_probe(value) for key, value in fields if key == "Skip-If"),
            diff=diff,
        )
        _ = patch.files  # a malformed diff is told here, with the file's name
    except BadInput as error:
        raise BadInput(f"patches/{file}: {error.message}", error.hint) from error
    return patch


def _split(content: bytes) -> tuple[Person, str, str, bytes]:
    """Return author, subject, body and diff of a mailbox message."""
    # Only the header and the message may be rewritten: a CR inside the diff is content.
    head_end = re.search(rb"\r?\n\r?\n", content)
    diff_start = re.search(rb"^diff --git ", content, re.MULTILINE)
    if not content.startswith(b"From ") or not head_end or not diff_start:
        raise BadInput("is not a git mailbox patch", "write it with git format-patch --full-index")
    head = content[content.index(b"\n") + 1 : head_end.end()]
    headers = BytesHeaderParser(policy=email.policy.default).parsebytes(head)
    name, address = email.utils.parseaddr(str(headers.get("From", "")))
    try:
        when = email.utils.parsedate_to_datetime(str(headers.get("Date", "")))
    except ValueError:
        raise BadInput("has no readable Date:", "write it with git format-patch") from None
    if not address:
        raise BadInput("has no readable From:", "write it with git format-patch")
    subject = re.sub(r"^\[PATCH[^\]]*\]\s*", "", " ".join(str(headers.get("Subject", "")).split()))
    if not subject:
        raise BadInput("has no Subject:", "say in one line what the patch does")
    message = content[head_end.end() : diff_start.start()].replace(b"\r\n", b"\n")
    body = re.split(rb"^---$", message, maxsplit=1, flags=re.MULTILINE)[0]
    author = Person(name, address, int(when.timestamp()), when.strftime("%z") or "+0000")
    return (
        author,
        subject,
        body.decode("utf-8", "surrogateescape").strip("\n"),
        content[diff_start.start() :],
    )


def _base(fields: tuple[tuple[str, str], ...], named: str | None) -> str:
    bases = [value for key, value in fields if key == "Base"]
    if len(bases) != 1 or not re.fullmatch(r"v\d[\w.]*", bases[0]):
        raise BadInput("needs one field 'Base: vX.Y.Z'", "say on which release it was written")
    if named and named != bases[0]:
        raise BadInput(f"is named for {named} but has 'Base: {bases[0]}'", "rename it")
    return bases[0]


def _fields(body: str) -> tuple[tuple[str, str], ...]:
    last = body.rstrip().rpartition("\n\n")[2]
    found = []
    for line in last.splitlines():
        match = _FIELD.fullmatch(line.rstrip())
        if not match:
            continue
        key, value = match.groups()
        if key in FIELDS:
            found.append((key, value.strip()))
        elif key not in _TRAILERS:
            near = difflib.get_close_matches(key, FIELDS, 1, 0.0)[0]
            raise BadInput(f"unknown field {key!r}", f"did you mean {near!r}?")
    return tuple(found)
