"""A project of its own with one small patch, for commands that are run from outside."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.command_line import run_tools

OLD = b"TABLE = 1\n\n\ndef run():\n    return TABLE\n"
# What no merge can bring the patch to.
NEW = OLD.replace(b"return TABLE", b"return table()")


class SmallProject:
    """A project whose one patch adds to what ``vllm/run.py`` returned in v1.0.0.

    Args:
        root: Where it goes.
        settings: Its ``[tool.vllm-exaone]``.
        user_git: Runs git as a user does.
        fields: Of the patch, beside its base.
    """

    def __init__(
        self, root: Path, settings: str, user_git: Callable[..., str], fields: str = ""
    ) -> None:
        self.root = root
        (root / "patches").mkdir(parents=True)
        (root / "vllm_exaone").mkdir()
        (root / "vllm_exaone/overlay.toml").write_text("")
        (root / "pyproject.toml").write_text(f"[tool.vllm-exaone]\n{settings}")
        work = root / "work"
        (work / "vllm").mkdir(parents=True)
        user_git(work, "init", "-q")
        (work / "vllm/run.py").write_bytes(OLD)
        user_git(work, "add", "-A")
        user_git(work, "commit", "-qm", "base")
        (work / "vllm/run.py").write_bytes(OLD.replace(b"return TABLE", b"return TABLE + 1"))
        user_git(work, "commit", "-qam", f"Add one\n\nWhy.\n\nBase: v1.0.0\n{fields}")
        user_git(
            work, "format-patch", "-1", "--full-index", "-U1", "--output",
            str(root / "patches/0001-one.patch"),
        )  # fmt: skip
        (root / "patches/series").write_text("0001-one.patch\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the tools in it."""
        return run_tools(self.root, *arguments)
