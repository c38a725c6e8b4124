"""Upstream's archives, hostile until checked: sdists and wheels read into memory.

Nothing is extracted to disk. An archive with a link, a device, an absolute path, ``..``, a name
that git would refuse, two members of one name, or more content than any release has, is refused as
a whole.
"""

import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from packaging.metadata import parse_email
from packaging.version import InvalidVersion, Version

from tools.errors import BadInput

# About eight times what the largest release (0.33.0: 130 MiB in 8522 files, one of 6 MiB) holds.
LARGEST_TOTAL = 1 << 30
LARGEST_FILE = 128 << 20
MOST_MEMBERS = 100_000
LONGEST_PATH = 1024

# What building an sdist adds to the tag's tree; the last two appear in 0.10.0 to 0.11.0 only.
_GENERATED = (
    re.compile(r"PKG-INFO"),
    re.compile(r"[^/]+\.egg-info/.*"),
    re.compile(r"vllm/_version\.py"),
    re.compile(r"csrc/quantization/machete/generated/.*"),
    re.compile(r"(?:.*/)?__pycache__/.*"),
)
# setuptools writes this file into every sdist; one that says more is upstream's own.
_GENERATED_SETUP_CFG = re.compile(rb"\s*\[egg_info\]\s*tag_build\s*=\s*tag_date\s*=\s*0\s*")
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_COPIED_BY_BUILD = "vllm/vllm_flash_attn/"


@dataclass(frozen=True)
class SourceFile:
    """One file of an archive: its path in the tree, whether it is executable, its bytes."""

    path: str
    executable: bool
    content: bytes


@dataclass(frozen=True)
class Snapshot:
    """An upstream tree read from an archive.

    Args:
        files: Sorted by path.
        newest: The latest change time of a member, in seconds since 1970 (0 where it has none).
        version: The version that the archive's metadata say, or None.
    """

    files: tuple[SourceFile, ...]
    newest: int
    version: Version | None


def read_sdist(path: Path) -> Snapshot:
    """Return the tag's tree as an sdist holds it, without what building the sdist added.

    Args:
        path: A gzip-compressed tar file with one top directory.

    Raises:
        BadInput: It is damaged, hostile, or no sdist.
    """
    content = memoryview(_decompress(path))
    names: set[str] = set()
    found: list[SourceFile] = []
    newest = 0
    top: str | None = None
    try:
        with tarfile.open(fileobj=BytesIO(content), mode="r:") as tar:
            for number, member in enumerate(tar):
                if number >= MOST_MEMBERS:
                    raise _hostile(path, f"more than {MOST_MEMBERS} members")
                parts = _check_path(path, member.name.removesuffix("/"))
                top = top or parts[0]
                if parts[0] != top:
                    raise _hostile(path, f"a member outside of {top}/: {member.name!a}")
                if member.isdir():
                    continue
                if not member.isreg() or member.sparse is not None:
                    raise _hostile(path, f"a link or special file: {member.name!a}")
                if len(parts) == 1:
                    raise _hostile(path, f"a member outside of a top directory: {member.name!a}")
                name = "/".join(parts[1:])
                _claim(path, name, names)
                end = member.offset_data + member.size
                if member.size > LARGEST_FILE or end > len(content):
                    raise _hostile(path, f"too large or cut off: {member.name!a}")
                newest = max(newest, _seconds(member.mtime))
                found.append(
                    SourceFile(
                        name,
                        bool(member.mode & stat.S_IXUSR),
                        bytes(content[member.offset_data : end]),
                    )
                )
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise BadInput(f"{path.name} is not a readable tar file: {error}") from error
    if top is None:
        raise BadInput(f"{path.name} is an empty archive")
    version = next((_version(f.content) for f in found if f.path == "PKG-INFO"), None)
    _check_tree(path, names)
    return Snapshot(_without_generated(found), newest, version)


def read_wheel(path: Path) -> Snapshot:
    """Return the source files below ``vllm/`` of a wheel: all but compiled and generated ones.

    Args:
        path: The wheel.

    Raises:
        BadInput: It is damaged, hostile, or no wheel of vLLM.
    """
    names: set[str] = set()
    found: list[SourceFile] = []
    newest = 0
    total = 0
    version: Version | None = None
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST_MEMBERS:
                raise _hostile(path, f"more than {MOST_MEMBERS} members")
            for member in members:
                name = "/".join(_check_path(path, member.filename.removesuffix("/")))
                mode = member.external_attr >> 16
                if member.is_dir():
                    continue
                if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                    raise _hostile(path, f"a link or special file: {member.filename!a}")
                _claim(path, name, names)
                is_metadata = _METADATA.fullmatch(name) is not None
                wanted = name.startswith("vllm/") and not name.endswith((".so", ".pyc"))
                if not (wanted or is_metadata):
                    continue
                total += member.file_size
                if member.file_size > LARGEST_FILE or total > LARGEST_TOTAL:
                    raise _hostile(path, f"more content than a release has: {member.filename!a}")
                if is_metadata:
                    version = _version(archive.read(member))
                    continue
                newest = max(newest, _zip_seconds(member))
                found.append(SourceFile(name, bool(mode & stat.S_IXUSR), archive.read(member)))
    except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError) as error:
        raise BadInput(f"{path.name} is not a readable wheel: {error}") from error
    if "vllm/__init__.py" not in names:
        raise BadInput(f"{path.name} is not a wheel of vLLM: it has no vllm/__init__.py")
    _check_tree(path, names)
    return Snapshot(_without_generated(found), newest, version)


def _version(metadata: bytes) -> Version | None:
    """Return the version in core metadata, or None."""
    try:
        return Version(parse_email(metadata)[0].get("version", ""))
    except InvalidVersion:
        return None


def _decompress(path: Path) -> bytes:
    """Return the content of a gzip file, refusing to unpack more than any release holds."""
    inflate = zlib.decompressobj(wbits=31)
    out: list[bytes] = []
    room = LARGEST_TOTAL
    try:
        with path.open("rb") as file:
            while not inflate.eof and (chunk := file.read(1 << 20)):
                out.append(inflate.decompress(chunk, room + 1))
                room -= len(out[-1])
                if room < 0:
                    raise _hostile(path, f"more than {LARGEST_TOTAL >> 20} MiB of content")
    except zlib.error as error:
        raise BadInput(f"{path.name} is not a readable gzip file: {error}") from error
    if not inflate.eof:
        raise BadInput(f"{path.name} is cut off", "fetch it again")
    return b"".join(out)


def _check_path(archive: Path, name: str) -> list[str]:
    """Return the components of a member's name, or refuse the archive."""
    parts = name.split("/")
    bad = (
        not name.isprintable()
        or "\\" in name
        or len(name) > LONGEST_PATH
        or not {"", ".", ".."}.isdisjoint(parts)
        or any("git" in part.lower() and _is_git_directory(part) for part in parts)
    )
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        bad = True
    if bad:
        raise _hostile(archive, f"a path that is not accepted: {name[:100]!a}")
    return parts


def _is_git_directory(part: str) -> bool:
    # As git refuses them (fsck: hasDotgit), also as other file systems would read the name.
    plain = part.lower().rstrip(". ").split(":")[0]
    return plain in (".git", "git~1")


def _claim(archive: Path, name: str, names: set[str]) -> None:
    if name in names:
        raise _hostile(archive, f"two members of one name: {name!a}")
    names.add(name)


def _check_tree(archive: Path, names: set[str]) -> None:
    for name in names:
        parent = name.rpartition("/")[0]
        while parent:
            if parent in names:
                raise _hostile(archive, f"a file that is a directory too: {parent!a}")
            parent = parent.rpartition("/")[0]


def _without_generated(found: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
    """Return the tag's own files, sorted: without what the release's build wrote into the tree."""
    by_path = {file.path: file for file in found}
    ignored = by_path.get(".gitignore")
    rules = ignored.content.decode("utf-8", "replace").split() if ignored else []
    # Up to 0.11.0 the build copied flash-attention's Python here and git ignored all of it.
    copied = f"{_COPIED_BY_BUILD}*" in rules and not any(
        rule.startswith(f"!{_COPIED_BY_BUILD}") for rule in rules
    )
    kept = []
    for path in sorted(by_path):
        file = by_path[path]
        generated = any(pattern.fullmatch(file.path) for pattern in _GENERATED)
        is_copy = copied and file.path.startswith(_COPIED_BY_BUILD) and file.path.endswith(".py")
        is_setup_cfg = file.path == "setup.cfg" and _GENERATED_SETUP_CFG.fullmatch(file.content)
        if not (generated or is_copy or is_setup_cfg):
            kept.append(file)
    return tuple(kept)


def _seconds(value: float) -> int:
    return min(max(int(value), 0), (1 << 32) - 1)


def _zip_seconds(member: zipfile.ZipInfo) -> int:
    try:
        return _seconds(datetime(*member.date_time, tzinfo=UTC).timestamp())
    except ValueError:
        return 0


def _hostile(path: Path, what: str) -> BadInput:
    return BadInput(f"{path.name} is refused: it has {what}", "do not trust where it came from")
