"""What probes say of an upstream tree, kept between runs.

A probe's answer follows from the tree and from how it is asked. The tree is in the name of a file,
the asking (the source of the probes, and the Python whose parser they use) in it. Upstream's trees
never change, so most runs parse nothing.
"""

import contextlib
import functools
import hashlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tools.errors import ToolError
from tools.series.probes import Probe
from tools.tree import Tree
from tools.upstream.downloads import write_aside


@functools.cache
def _asking() -> str:
    """Return a hash of what answers follow from beside the tree."""
    digest = hashlib.sha256(repr(sys.version_info[:3]).encode())
    for name in ("probes.py", "requirements.py"):
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()


@dataclass
class Answers:
    """The answers of one tree.

    Args:
        tree: The tree that is asked.
        file: Where its answers are kept; nothing whole there means that none are.
    """

    tree: Tree
    file: Path
    _known: dict[str, bool] | None = field(default=None, repr=False)
    _learnt: bool = False

    def holds(self, probe: Probe) -> bool:
        """Return what ``probe`` says of the tree.

        Raises:
            BadInput: The file asked about is not valid Python.
        """
        if self._known is None:
            self._known = self._read()
        if probe.text not in self._known:
            self._known[probe.text] = probe.holds(self.tree)
            self._learnt = True
        return self._known[probe.text]

    def keep(self) -> None:
        """Write the answers down where some are new; a cache that is only read still serves."""
        if not self._learnt:
            return
        data = {"asking": _asking(), "answers": self._known}
        with contextlib.suppress(ToolError):
            write_aside(self.file, json.dumps(data, sort_keys=True).encode())
        self._learnt = False

    def _read(self) -> dict[str, bool]:
        try:
            held = json.loads(self.file.read_bytes())
            if held["asking"] == _asking():
                return {str(text): bool(answer) for text, answer in held["answers"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            pass
        return {}
