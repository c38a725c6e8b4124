"""Names of upstream refs, by an allow-list.

A ref comes from a command line and ends up as an argument of git and in an index URL, so only
what looks like a tag, a branch or a commit passes; everything else is refused before it is used.
"""

import bisect
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from packaging.version import InvalidVersion, Version

from tools.errors import BadInput, Unavailable

_TAG = re.compile(r"v?([0-9]+(?:\.[0-9]+){1,3}(?:(?:a|b|rc|\.post|\.dev)[0-9]+)*)")
_COMMIT = re.compile(r"[0-9a-f]{7,40}", re.IGNORECASE)
# One path component of a branch name; narrower than git's own rule (git-check-ref-format).
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+#=-]*")
_LONGEST = 200


class RefKind(Enum):
    """What a ref is, judged by its spelling alone."""

    TAG = "tag"
    BRANCH = "branch"
    COMMIT = "commit"


@dataclass(frozen=True)
class Ref:
    """A name of an upstream revision.

    Args:
        name: As upstream spells it: ``v0.19.1``, ``main``, or a commit in lower case.
        kind: Tag, branch or commit.
        version: The version that a tag stands for, else None.
    """

    name: str
    kind: RefKind
    version: Version | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def is_release(self) -> bool:
        """Whether this is the tag of a final release (or of a post-release)."""
        return self.version is not None and not self.version.is_prerelease


def parse_ref(text: str) -> Ref:
    """Return the ref that ``text`` names.

    Args:
        text: ``v1.2.3`` (also without the v, and with rc1, .post1 or a fourth number), 7 to 40
            hexadecimal digits of a commit, or a branch.

    Raises:
        BadInput: It is none of these: an option, a range, a refspec, ``@{...}``, control
            characters, ...
    """
    tag = _TAG.fullmatch(text)
    if tag:
        try:
            version = Version(tag[1])
        except InvalidVersion:
            raise _refusal(text) from None
        return Ref(f"v{tag[1]}", RefKind.TAG, version)
    if _COMMIT.fullmatch(text):
        return Ref(text.lower(), RefKind.COMMIT)
    components = text.split("/")
    if (
        len(text) > _LONGEST
        or ".." in text
        or components[0] in ("refs", "HEAD")
        or not all(_COMPONENT.fullmatch(part) for part in components)
        or any(part.endswith((".lock", ".")) for part in components)
    ):
        raise _refusal(text)
    return Ref(text, RefKind.BRANCH)


def unknown_ref(ref: Ref, where: str, known: Iterable[str]) -> Unavailable:
    """Return the error for a ref that does not exist, with the nearest names that do.

    Args:
        ref: What was asked for.
        where: Where it was looked for, such as ``on the package index``.
        known: The names that exist there.
    """
    near = nearest(ref, known)
    return Unavailable(
        f"there is no {ref.kind.value} {ref.name} {where}",
        f"nearest: {', '.join(near)}" if near else "`python -m tools tags` lists the releases",
    )


def nearest(ref: Ref, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return up to ``count`` of the known names that are nearest to ``ref``, nearest first.

    Nearest by spelling; for a version also the releases before and after it.
    """
    names = sorted(set(known))
    near = difflib.get_close_matches(ref.name, names, n=count, cutoff=0.75)
    if ref.version is not None:
        versions = sorted((Version(n[1:]), n) for n in names if _is_release_tag(n))
        place = bisect.bisect(versions, (ref.version, ref.name))
        near += [name for _version, name in versions[max(0, place - 1) : place + 1]]
    else:
        near += difflib.get_close_matches(ref.name, names, n=count, cutoff=0.5)
    return tuple(dict.fromkeys(near))[:count]


def _is_release_tag(name: str) -> bool:
    try:
        return parse_ref(name).is_release and name.startswith("v")
    except BadInput:
        return False


def _refusal(text: str) -> BadInput:
    shown = ascii(text if len(text) <= 60 else text[:57] + "...")
    return BadInput(
        f"not a ref: {shown}", "give a tag such as v0.19.1, a branch, or 7 to 40 digits of a commit"
    )
