"""The carried commits as files for other tools: a git mailbox series that quilt reads too.

``git am`` and ``quilt push -a`` on the upstream tree give the carried tree. The diffs have three
lines of context, full blob ids and no user's settings in them.
"""

import base64
import re
import shutil
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

from tools.carry.outcome import Carried
from tools.errors import BadInput, EnvironmentLacks
from tools.git import Git

_MARKER = ".vllm-exaone-export"
# What git am or GNU patch would take for the end of the message, the start of a diff or mail, a
# header of theirs or an ed script. GNU patch looks behind white space and capital X too.
_LOOKS_LIKE_MARKUP = re.compile(
    rb"^(?=[ \tX]*(---|diff -|Index:|Prereq:|From |\+\+\+|\*\*\*|={60}|@@ |\d[\d,]*[acd]))",
    re.MULTILINE,
)
# What git am would take for headers of its own where a body starts with it.
_LOOKS_LIKE_HEADER = re.compile(rb"(From|Date|Subject):|>From |\[PATCH\]", re.IGNORECASE)


@dataclass(frozen=True)
class Exported:
    """Where the series was written, the names of its patches in order, and what tools must know."""

    path: Path
    patches: tuple[str, ...]
    notes: tuple[str, ...] = ()


def export(store: Git, carried: Carried, path: Path) -> Exported:
    """Write the carried commits as mailbox patches and a quilt ``series`` file.

    Args:
        store: Where the commits are.
        carried: What to export.
        path: The directory; one that an earlier export made is replaced.

    Raises:
        BadInput: ``path`` holds something else.
        EnvironmentLacks: It cannot be written.
    """
    if path.exists() and not (path / _MARKER).is_file():
        raise BadInput(f"{path} exists and is not an export", "choose another --output")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        try:
            aside.chmod(0o755)
            names, notes = _write_all(store, carried, aside)
            if path.exists():
                path.rename(aside / "old")
            (aside / "new").rename(path)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise EnvironmentLacks(f"cannot write {path}: {error.strerror}", "free space") from error
    return Exported(path, names, notes)


def _write_all(
    store: Git, carried: Carried, aside: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    new = aside / "new"
    new.mkdir()
    listed = store.run(
        "rev-list",
        "--reverse",
        "--first-parent",
        carried.commit,
        f"^{carried.upstream.commit}",
        "--",
    ).stdout
    commits = listed.decode().split()
    patches: dict[str, bytes] = {}
    for number, commit in enumerate(commits, 1):
        content, slug = mailbox(store, commit)
        patches[f"{number:04d}-{slug}.patch"] = content
    notes = _notes(patches)
    for name, content in patches.items():
        (new / name).write_bytes(content)
    lines = [*(f"# {note}" for note in notes), *(f"{name} -p1" for name in patches)]
    (new / "series").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (new / _MARKER).write_text(f"{carried.upstream.commit}\n{carried.commit}\n", "utf-8")
    return tuple(patches), notes


def _notes(patches: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return what a person who applies the patches must know, one line each."""
    notes = []
    if any(b"\r\n" in content for content in patches.values()):
        notes.append("files with CRLF lines are changed: apply with git am --keep-cr")
    # No line of a hunk starts like this: each has a mark in front.
    binary = [name for name, content in patches.items() if b"\nGIT binary patch\n" in content]
    if binary:
        notes.append(f"quilt refuses binary changes, in {', '.join(binary)}: use git am")
    return tuple(notes)


def mailbox(store: Git, commit: str, *, context: int = 3) -> tuple[bytes, str]:
    """Return a commit as a mailbox message, and a file name's slug made of its subject.

    Args:
        store: Where the commit is.
        commit: A commit with one parent.
        context: Lines of context in the diff.
    """
    found = store.object(commit)
    if found is None:
        raise BadInput(f"no commit {commit} in the store", "run apply first")
    head, _, message = found[2].partition(b"\n\n")
    author = re.search(rb"^author (.*) <(.*)> (\d+) ([+-]\d{4})$", head, re.MULTILINE)
    if author is None:
        raise BadInput(f"the commit {commit} has no readable author", "carry the series again")
    diff = store.run(
        "diff-tree", "-p", "--stat=72", "--summary", "--no-commit-id", "--full-index", "--binary",
        f"-U{context}", "--no-renames", "--no-ext-diff", "--no-textconv", commit, "--",
    ).stdout  # fmt: skip
    subject, _, body = message.partition(b"\n")
    text = _LOOKS_LIKE_MARKUP.sub(b"| ", body.strip(b"\n"))
    lines = [
        b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001",
        b"From: " + _encode(author[1], b"") + b" <" + author[2] + b">",
        b"Date: " + _date(int(author[3]), author[4].decode()).encode(),
        b"Subject: " + _encode(subject, b"[PATCH] "),
        b"MIME-Version: 1.0",
        b"Content-Type: text/plain; charset=UTF-8",
        b"Content-Transfer-Encoding: 8bit",
        b"",
        # A line with only a blank ends the headers; git am drops it from the message.
        *([b" "] if _LOOKS_LIKE_HEADER.match(text) else []),
        text,
        b"---",
    ]
    mail = b"\n".join(lines) + b"\n" + diff
    slug = re.sub(r"[^a-z0-9]+", "-", subject.decode("ascii", "ignore").lower()).strip("-")
    return mail, textwrap.shorten(slug.replace("-", " "), 48, placeholder="").replace(
        " ", "-"
    ) or "x"


def _encode(text: bytes, prefix: bytes) -> bytes:
    """Return a header value; what is not plain printable ASCII becomes RFC 2047 words."""
    if re.fullmatch(rb"[\x20-\x7e]*", text) and b"=?" not in text and not text.startswith(b"["):
        return prefix + text
    # 75 characters a word (RFC 2047, 2); 42 bytes of UTF-8 are 56 in base64. No character is cut.
    words, word = [], b""
    for character in text.decode("utf-8", "replace"):
        raw = character.encode()
        if len(word) + len(raw) > 42:
            words.append(word)
            word = b""
        word += raw
    words.append(word)
    return prefix + b"\n ".join(b"=?UTF-8?b?" + base64.b64encode(w) + b"?=" for w in words)


def _date(when: int, zone: str) -> str:
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5]))
    local = timezone(offset if zone[0] == "+" else -offset)
    return format_datetime(datetime.fromtimestamp(when, local))
