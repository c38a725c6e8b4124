"""Patches written anew: on another base, as a variant, or with one field more in their message."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from tools.carry import Carrier
from tools.carry.export import mailbox
from tools.git import Commit, Git
from tools.series import Patch, Series, parse_patch

_MESSAGE_END = re.compile(rb"^(?:---\r?$|diff --git )", re.MULTILINE)
_ORIGIN = re.compile(rb"^(?:Base|Origin|Forwarded): [^\r\n]*(\r?\n)", re.MULTILINE)


class Kept(StrEnum):
    """In which form a change was kept."""

    REFRESHED = "refreshed"
    VARIANT = "variant"
    RESOLUTION = "resolution"


@dataclass(frozen=True)
class Plan:
    """What to write below ``patches/``, by name there, and the carrier that has it already.

    ``replaced`` is the patch whose place in the series the new one takes, or "".
    """

    kept: Kept
    files: dict[str, bytes]
    carrier: Carrier
    step: str
    replaced: str = ""


@dataclass(frozen=True)
class Landing:
    """A patch as it stands on another ref.

    Attributes:
        step: The step of the series.
        file: The patch, or variant, that was brought there.
        ref: The ref, a release.
        head: The commit of the ref with the earlier patches.
        tree: The tree with this one, too.
    """

    step: str
    file: str
    ref: str
    head: str
    tree: str


def as_patch(git: Git, carrier: Carrier, landing: Landing, why: str, *, as_base: bool) -> Plan:
    """Plan a variant of a patch at a release, or the patch itself on that base.

    Args:
        git: Where the objects are and go.
        carrier: Has the series as it is.
        landing: The patch at the release.
        why: The reason for a variant, for its message.
        as_base: Write the patch itself anew, and no variant.
    """
    patch = next(p for p in carrier.series.patches if p.file == landing.file)
    step = next(step for step in carrier.series.steps if step.name == landing.step)
    based = next((variant for variant in step.variants if variant.base == landing.ref), None)
    old = based or patch
    message = old.message if based else _rebased(patch, landing.ref, "" if as_base else why)
    commit = git.write_commit(
        Commit(landing.tree, (landing.head,), old.author, old.author, message)
    )
    content, _slug = mailbox(git, commit, context=1)
    plain = f"{step.name}.patch"
    if based:
        file = based.file
    elif as_base and patch.file == plain:
        file = plain
    else:
        file = f"{step.name}@{landing.ref}.patch"
    fresh = parse_patch(file, content)
    gone = (based or patch).file if based or as_base else ""
    variants = [fresh if variant.file == gone else variant for variant in step.variants]
    if not gone:
        variants.append(fresh)
    changed = replace(step, variants=tuple(variants))
    series = Series(tuple(changed if s.name == step.name else s for s in carrier.series.steps))
    kept = Kept.REFRESHED if gone else Kept.VARIANT
    return Plan(kept, {file: content}, replace(carrier, series=series), step.name, gone)


def _rebased(patch: Patch, ref: str, why: str) -> bytes:
    """Return the patch's message for another base, with the reason for a variant in the body."""
    body, gap, fields = patch.body.rstrip().rpartition("\n\n")
    fields = re.sub(r"^Base: .*$", f"Base: {ref}", fields, flags=re.MULTILINE)
    reason = f"A variant for {ref}, where {why.rstrip('.')}.\n\n" if why else ""
    text = f"{patch.subject}\n\n{body}{gap}{reason}{fields}\n"
    return text.encode("utf-8", "surrogateescape")


def listed(listing: bytes, name: str, replaced: str) -> bytes:
    """Return ``series`` with a patch in the place of another, or behind its last sibling."""
    lines = listing.splitlines(keepends=True)
    names = _names(lines)
    if name in names:
        return listing
    if replaced:
        at = names.index(replaced)
        lines[at] = lines[at].replace(replaced.encode(), name.encode())
        return b"".join(lines)
    last = max(at for at, held in enumerate(names) if _step_of(held) == _step_of(name))
    if not lines[last].endswith(b"\n"):
        lines[last] += b"\n"
    lines.insert(last + 1, f"{name}\n".encode())
    return b"".join(lines)


def unlisted(listing: bytes, name: str) -> bytes:
    """Return ``series`` without a patch."""
    lines = listing.splitlines(keepends=True)
    at = _names(lines).index(name)
    return b"".join(lines[:at] + lines[at + 1 :])


def _names(lines: list[bytes]) -> list[str]:
    return [line.split(b"#")[0].strip().decode() for line in lines]


def _step_of(file: str) -> str:
    return file.removesuffix(".patch").partition("@")[0]


def with_applied(content: bytes, release: str) -> bytes:
    """Return a patch's content with the field ``Applied-Upstream``; every other byte stays.

    Args:
        content: The mailbox patch, which has no such field yet.
        release: The first release that has the change.
    """
    end = _MESSAGE_END.search(content)
    # Base is there in every patch, and the fields are the last paragraph of the message.
    *_, last = _ORIGIN.finditer(content[: end.start() if end else len(content)])
    line = f"Applied-Upstream: {release}".encode() + last[1]
    return content[: last.end()] + line + content[last.end() :]
