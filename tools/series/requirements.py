"""What versions of other distributions a release admits, as its requirement files say."""

import re
from collections.abc import Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tools.tree import Tree

# Import name to distribution, where the two differ.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
    "sklearn": "scikit-learn",
    "google": "protobuf",
}
_FILES = ("requirements/common.txt", "requirements/cuda.txt")
_OLD_FILES = ("requirements-common.txt", "requirements-cuda.txt")
# Upstream's main platform; another one's pins would only narrow what is checked here.
_ENVIRONMENT = {
    "python_version": "3.12",
    "python_full_version": "3.12.0",
    "platform_machine": "x86_64",
    "platform_system": "Linux",
    "sys_platform": "linux",
}


def distribution_of(module: str) -> str:
    """Return the distribution that a dotted module name most likely belongs to."""
    top = module.partition(".")[0]
    return canonicalize_name(_DISTRIBUTIONS.get(top, top))


def admitted(tree: Tree, only: str = "") -> Mapping[str, SpecifierSet]:
    """Return what a release's requirement files ask of each distribution on Linux with CUDA.

    Args:
        tree: Upstream's tree.
        only: The one distribution to look for, by its usual name; "" for all.
    """
    found: dict[str, SpecifierSet] = {}
    seen: set[str] = set()
    pending = [*_FILES, *_OLD_FILES]
    while pending:
        path = pending.pop()
        content = tree.read(path)
        if content is None or path in seen:
            continue
        seen.add(path)
        for raw in content.decode("utf-8", "replace").splitlines():
            line = re.sub(r"(^|\s)#.*$", "", raw).strip()
            if line.startswith("-r"):
                folder = path.rpartition("/")[0]
                name = line.removeprefix("-r").strip()
                pending.append(f"{folder}/{name}" if folder else name)
                continue
            if not line.lower().startswith(only):
                continue
            try:
                requirement = Requirement(line)
            except InvalidRequirement:
                continue  # An option of pip's, or an empty line.
            if requirement.marker and not requirement.marker.evaluate(dict(_ENVIRONMENT)):
                continue
            name = canonicalize_name(requirement.name)
            found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return found
