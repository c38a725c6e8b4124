"""Git processes: cut off from the user's settings, and their failures as one line."""

import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from git.cmd import Git as GitPython
from git.exc import GitCommandError, GitCommandNotFound

from tools.errors import EnvironmentLacks, ToolError
from tools.git.model import Result

_SETTINGS = {
    "core.attributesFile": os.devnull,
    "core.hooksPath": os.devnull,
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.quotePath": "true",
    "core.abbrev": "40",
    "core.fsmonitor": "false",
    "diff.renameLimit": "2000",
    "diff.algorithm": "histogram",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
    "merge.renameLimit": "2000",
    "merge.renames": "true",
    "merge.directoryRenames": "false",
    "merge.conflictStyle": "merge",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.ext.allow": "never",
    "protocol.allow": "user",
    "safe.bareRepository": "all",
    "safe.directory": "*",
}


def pinned_environment() -> dict[str, str]:
    """Return the environment that cuts a git process off from the user's settings."""
    pinned = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_DEFAULT_HASH": "sha1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "HOME": os.devnull,
        "XDG_CONFIG_HOME": os.devnull,
        "LC_ALL": "C",
        "LANGUAGE": "C",
        "TZ": "UTC",
        "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    }
    for index, (key, value) in enumerate(_SETTINGS.items()):
        pinned[f"GIT_CONFIG_KEY_{index}"] = key
        pinned[f"GIT_CONFIG_VALUE_{index}"] = value
    return pinned


_KEPT_VARIABLES = frozenset({"GIT_PYTHON_GIT_EXECUTABLE", "GIT_PYTHON_TRACE", "GIT_EXEC_PATH"})
# What reaching another repository may need of the user's environment.
_NETWORK_VARIABLES = frozenset(
    {
        "GIT_ASKPASS",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_HTTP_PROXY_AUTHMETHOD",
        "GIT_PROXY_COMMAND",
        "GIT_PROXY_SSL_CAINFO",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_SSH_VARIANT",
        "GIT_SSL_CAINFO",
        "GIT_SSL_CAPATH",
        "GIT_SSL_CERT",
        "GIT_SSL_KEY",
        "GIT_SSL_NO_VERIFY",
    }
)
CUTS_OFF_USER = frozenset(
    {
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_CONFIG_GLOBAL",
        "HOME",
        "XDG_CONFIG_HOME",
    }
)
_environment_lock = threading.Lock()


@contextlib.contextmanager
def _without_foreign_variables(also_kept: frozenset[str]) -> Iterator[None]:
    """Hide git's own variables from what is started inside.

    GitPython starts from ``os.environ`` and can only add, and a git hook, for one, sets
    ``GIT_DIR`` and ``GIT_INDEX_FILE``.
    """
    kept = _KEPT_VARIABLES | also_kept
    with _environment_lock:
        hidden = {n: v for n, v in os.environ.items() if n.startswith("GIT_") and n not in kept}
        for name in hidden:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(hidden)


def start(
    directory: Path,
    arguments: Iterable[str | bytes],
    variables: Mapping[str, str],
    *,
    network: bool = False,
) -> "subprocess.Popen[bytes]":
    """Start git on a git directory, with pipes, under ``variables``.

    Args:
        directory: The git directory.
        arguments: The command and its arguments.
        variables: What :func:`pinned_environment` gave, and more.
        network: Whether what reaching another repository needs is passed on.

    Raises:
        EnvironmentLacks: git is missing.
    """
    words = [os.fsdecode(argument) for argument in arguments]
    try:
        with _without_foreign_variables(_NETWORK_VARIABLES if network else frozenset()):
            started = GitPython(str(directory)).execute(
                ["git", f"--git-dir={directory}", *words],
                as_process=True,
                istream=subprocess.PIPE,
                env=dict(variables),
            )
    except GitCommandNotFound as error:
        raise EnvironmentLacks("git was not found on PATH", "install git 2.38 or newer") from error
    except GitCommandError as error:
        raise ToolError(f"git {words[0]} could not be started: {error.stderr}") from error
    # The wrapper kills the process when it is collected; the process itself is what we keep.
    process: subprocess.Popen[bytes] = started.proc  # type: ignore[assignment]
    started.proc = None
    return process


def failure(arguments: tuple[str | bytes, ...], result: Result) -> ToolError:
    """Return the error for a command that ended with an unexpected status."""
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    # git's last words are often advice; the first fatal or error line says what happened.
    marked = [line for line in lines if line.startswith(("fatal:", "error:"))]
    line = (marked or lines[-1:])[0]
    words = [os.fsdecode(argument) for argument in arguments]
    while words[:1] == ["-c"]:
        words = words[2:]
    text = f"git {words[0]}: {line}"
    printed = result.stderr.decode("utf-8", "replace")
    if any(said in printed for said in _SAYS_DISK_FULL):
        return EnvironmentLacks(text, "free some disk space")
    if _SAYS_NO_RIGHTS.search(printed):
        return EnvironmentLacks(text, "make it writable")
    return ToolError(text)


# The system's words (LC_ALL is C), and git's own in fast-import.
_SAYS_DISK_FULL = ("No space left on device", "Disk quota exceeded", "Out of diskspace")
# Not ssh's "Permission denied (publickey)", which is another machine's word.
_SAYS_NO_RIGHTS = re.compile(
    r"Read-only file system|insufficient permission|Permission denied$", re.MULTILINE
)
