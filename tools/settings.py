"""The project's settings: ``[tool.vllm-exaone]`` of pyproject.toml, and where the cache lies."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from tools.errors import BadInput, EnvironmentLacks

CACHE_VARIABLE = "VLLM_EXAONE_CACHE"
_REQUIRED = frozenset({"default-ref", "git-url", "build-number"})
_KEYS = _REQUIRED | {
    "oldest-ref",
    "narrow",
    "release-to",
    "signing-key",
    "sign-sums",
    "verify-on-change",
}
# What follows the URL's scheme, or a path: an option, a helper (ext::) or a control character
# would be read by git as something else than a place.
_REMOTE_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
_SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")
_SCP_LIKE = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^:]+")


@dataclass(frozen=True)
class Narrowing:
    """Requirements to narrow at some releases: a row of ``[tool.vllm-exaone.narrow]``.

    Args:
        releases: Which releases, such as ``>=0.22.1,<0.27``.
        ranges: Pairs of a distribution and the range that its requirement is cut by.
    """

    releases: SpecifierSet
    ranges: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Settings:
    """What a run works with.

    Args:
        root: The project's repository root (the directory of pyproject.toml).
        default_ref: The ref that commands use when none is given.
        git_url: The git source: an https, http, ssh, git or file URL, ``user@host:path``, or an
            absolute path.
        build_number: The N of the local version ``+exaone.N``.
        cache: Where the store, the downloads and the engine environments lie.
        oldest_ref: The oldest release that is supported: what only older ones need may go.
        narrow: By releases, the version ranges that requirements were proved broken outside of.
        release_to: The repository that releases are pushed to; "" where none is set.
        signing_key: The key that git signs release tags with, as git names it; "" signs none.
        sign_sums: The command that signs ``SHA256SUMS``, ``{}`` standing for the file; or empty.
        verify_on_change: The releases whose smoke is verified on every change.
    """

    root: Path
    default_ref: str
    git_url: str
    build_number: int
    cache: Path
    oldest_ref: str = "v0.10.0"
    narrow: tuple[Narrowing, ...] = ()
    release_to: str = ""
    signing_key: str = ""
    sign_sums: tuple[str, ...] = ()
    verify_on_change: tuple[str, ...] = ()

    @classmethod
    def load(
        cls, start: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> "Settings":
        """Read the settings of the project that ``start`` lies in.

        Args:
            start: A directory inside the project; None for the current one, or, where that is
                outside of any such project, the one these tools were loaded from.
            environment: Used in place of the process's environment, for ``VLLM_EXAONE_CACHE``.

        Raises:
            BadInput: There is no such project, or a setting is missing or malformed.
        """
        root, text = _find_root(start)
        file = root / "pyproject.toml"
        try:
            table = tomllib.loads(text)["tool"]["vllm-exaone"]
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{file} is not valid TOML: {error}") from error
        unknown = sorted(set(table) - _KEYS)
        if unknown:
            raise BadInput(
                f"{file}: [tool.vllm-exaone] has an unknown key {unknown[0]!r}",
                f"known keys: {', '.join(sorted(_KEYS))}",
            )
        variables = os.environ if environment is None else environment
        return cls(
            root=root,
            default_ref=_setting(file, table, "default-ref", str),
            git_url=check_git_url(_setting(file, table, "git-url", str)),
            build_number=_build_number(file, table),
            cache=_cache_directory(variables),
            verify_on_change=_releases(file, table, "verify-on-change"),
            oldest_ref=_optional(file, table, "oldest-ref", cls.oldest_ref),
            narrow=_narrowings(file, table),
            release_to=_optional(file, table, "release-to", ""),
            signing_key=_optional(file, table, "signing-key", ""),
            sign_sums=_words(file, table, "sign-sums"),
        )

    def narrowed(self, version: Version | None) -> tuple[tuple[str, str], ...]:
        """Return the distributions whose requirement is narrowed in a release, each with its range.

        Args:
            version: The release; None, for what is none, narrows nothing.
        """
        if version is None:
            return ()
        found: dict[str, str] = {}
        for row in self.narrow:
            if row.releases.contains(version, prereleases=True):
                for name, cut in row.ranges:
                    found[name] = f"{found[name]},{cut}" if name in found else cut
        return tuple(sorted(found.items()))


def check_git_url(text: str) -> str:
    """Return ``text`` where it names a git repository and nothing else.

    Raises:
        BadInput: It is an option, a remote helper such as ``ext::``, a relative path, or none.
    """
    plain = text.isprintable() and not text.startswith("-") and not _REMOTE_HELPER.match(text)
    place = text.startswith(_SCHEMES) and len(text.split("://", 1)[1].strip("/")) > 0
    # A host that starts with "-" would reach ssh as an option.
    host = text.split("://", 1)[-1].rpartition("@")[2]
    if (
        plain
        and not host.startswith("-")
        and (place or Path(text).is_absolute() or _SCP_LIKE.fullmatch(text))
    ):
        return text
    raise BadInput(
        f"not a git URL that these tools accept: {text!r}",
        "use an https, ssh, git or file URL, user@host:path, or an absolute path",
    )


def _find_root(start: Path | None) -> tuple[Path, str]:
    places = [start] if start else [Path.cwd(), Path(__file__).parent]
    for place in places:
        for directory in (place.resolve(), *place.resolve().parents):
            file = directory / "pyproject.toml"
            if not file.is_file():
                continue
            try:
                text = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise BadInput(f"cannot read {file}: {error}") from error
            if re.search(r"^\[tool\.vllm-exaone\]", text, re.MULTILINE):
                return directory, text
    raise BadInput(
        f"no pyproject.toml with [tool.vllm-exaone] in {places[0]} or above",
        "run inside a clone of the project",
    )


def _setting(file: Path, table: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    if key not in table:
        raise BadInput(f"{file}: [tool.vllm-exaone] lacks {key}")
    value = table[key]
    if type(value) is not kind or value == "":
        raise BadInput(f"{file}: {key} is not a {kind.__name__}: {value!r}")
    return value


def _optional(file: Path, table: Mapping[str, Any], key: str, default: str) -> str:
    return str(_setting(file, table, key, str)) if key in table else default


def _words(file: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    words = _setting(file, table, key, list) if key in table else []
    if not all(isinstance(word, str) and word for word in words):
        raise BadInput(f"{file}: {key} is not a list of words: {words!r}")
    return tuple(words)


def _narrowings(file: Path, table: Mapping[str, Any]) -> tuple[Narrowing, ...]:
    """Read ``[tool.vllm-exaone.narrow]``: ``">=0.23,<0.25" = { numpy = "<2.4" }``."""
    rows = _setting(file, table, "narrow", dict) if "narrow" in table else {}
    found = []
    for releases, ranges in rows.items():
        if not isinstance(ranges, dict) or not all(isinstance(c, str) for c in ranges.values()):
            raise BadInput(f"{file}: narrow.{releases!r} is no table of version ranges")
        try:
            # A tag stands for the one release.
            wanted = SpecifierSet(f"=={releases[1:]}" if releases[:1] == "v" else releases)
            for cut in ranges.values():
                SpecifierSet(cut)
        except InvalidSpecifier as error:
            raise BadInput(
                f"{file}: narrow.{releases!r} has a bad version range: {error}"
            ) from None
        found.append(Narrowing(wanted, tuple(ranges.items())))
    return tuple(found)


def _releases(file: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of releases; one that is not there is empty."""
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise BadInput(f"{file}: {key} is not a list of releases: {value!r}")
    return tuple(value)


def _build_number(file: Path, table: Mapping[str, Any]) -> int:
    number: int = _setting(file, table, "build-number", int)
    if number < 1:
        raise BadInput(f"{file}: build-number is not positive: {number}")
    return number


def _cache_directory(environment: Mapping[str, str]) -> Path:
    chosen = environment.get(CACHE_VARIABLE, "")
    if chosen:
        if not Path(chosen).is_absolute():
            raise BadInput(f"{CACHE_VARIABLE} is not an absolute path: {chosen!r}")
        return Path(chosen)
    try:
        return Path(platformdirs.user_cache_dir("vllm-exaone", appauthor=False))
    except (RuntimeError, OSError) as error:
        raise EnvironmentLacks(
            f"there is no place for the cache: {error}", f"set {CACHE_VARIABLE}"
        ) from error
