"""Which package index this user's uv and pip are configured for."""

import configparser
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import platformdirs

from tools.errors import BadInput


def index_url(environment: Mapping[str, str]) -> str:
    """Return the base URL of the simple index to use; "" leaves it to the client's default.

    uv's variables come first, then pip's, then pip's configuration files in pip's order.

    Args:
        environment: The process's environment.

    Raises:
        BadInput: What is configured is not an http or https URL.
    """
    for source, url in _configured(environment):
        if url:
            if not url.startswith(("https://", "http://")) or not url.isprintable():
                raise BadInput(
                    f"{source} does not name an http or https index",
                    "set PIP_INDEX_URL or UV_DEFAULT_INDEX to one",
                )
            return url
    return ""


def _configured(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        value = environment.get(variable, "").strip()
        # uv writes a named index as name=url.
        name, equals, url = value.partition("=")
        yield variable, url if equals and name.isidentifier() else value
    for file in _pip_files(environment):
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # pip itself says what is wrong with its file
        for section in ("download", "global"):
            yield str(file), parser.get(section, "index-url", fallback="").strip()


def _pip_files(environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield pip's configuration files, the one that wins first (pip's user guide)."""
    chosen = environment.get("PIP_CONFIG_FILE", "")
    if chosen:
        yield Path(chosen)
        if chosen == "/dev/null":
            return
    yield Path(sys.prefix) / "pip.conf"
    yield Path(platformdirs.user_config_dir("pip", appauthor=False)) / "pip.conf"
    yield Path.home() / ".pip" / "pip.conf"
    for directory in platformdirs.site_config_dir("pip", appauthor=False, multipath=True).split(
        ":"
    ):
        yield Path(directory) / "pip.conf"
    yield Path("/etc/pip.conf")
