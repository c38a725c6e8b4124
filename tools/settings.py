"""The project's settings: ``[tool.vllm-exaone]`` of pyproject.toml, and where the cache lies."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from tools.errors import BadInput, EnvironmentLacks

CACHE_VARIABLE = "VLLM_EXAONE_CACHE"
_KEYS = frozenset({"default-ref", "git-url", "build-number"})
# What follows the URL's scheme, or a path: an option, a helper (ext::) or a control character
# would be read by git as something else than a place.
_REMOTE_HELPER = re.compile(r"[A-Za-z0-9+.-]+::")
_SCHEMES = ("https://", "http://", "ssh://", "git://", "file://")
_SCP_LIKE = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!//)[^:]+")


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
    """

    root: Path
    default_ref: str
    git_url: str
    build_number: int
    cache: Path

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
        )


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
