"""``python -m tools`` in a project of a test's own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_tools(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command there, as a user would, and return how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "tools", *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
