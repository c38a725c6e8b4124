"""The ordered series: quilt's ``series`` file and the patches that it lists."""

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from tools.errors import BadInput
from tools.series.patch import Patch, parse_patch


@dataclass(frozen=True)
class Step:
    """One place in the series: a patch and its variants, which bring the same change.

    A variant carries the change written on another base; see :meth:`nearest`.
    """

    name: str
    variants: tuple[Patch, ...]

    def nearest(self, ref: str) -> tuple[Patch, ...]:
        """Return the variants, the one whose base lies nearest to ``ref`` first.

        For a ref that is no release the newest base counts as the nearest.
        """
        try:
            wanted = _position(ref)
        except InvalidVersion:
            wanted = max(_position(patch.base) for patch in self.variants)
        return tuple(sorted(self.variants, key=lambda p: (abs(_position(p.base) - wanted), p.file)))


def _position(release: str) -> int:
    """Return where a release stands on a line: minor releases are far apart, micro ones near."""
    version = Version(release.removeprefix("v"))
    return (version.major * 1000 + version.minor) * 1000 + version.micro


@dataclass(frozen=True)
class Series:
    """The steps in the order in which they are carried."""

    steps: tuple[Step, ...]

    def before(self, name: str) -> "Series":
        """Return the series up to, and without, the step ``name``."""
        names = [step.name for step in self.steps]
        return Series(self.steps[: names.index(name)])

    @property
    def patches(self) -> tuple[Patch, ...]:
        """Every patch, variants included."""
        return tuple(patch for step in self.steps for patch in step.variants)


def read_series(directory: Path) -> Series:
    """Read ``series`` in ``directory`` and the patches that it lists.

    The format is quilt's: one file name a line, ``#`` begins a comment. A variant stands directly
    after the patch whose change it carries, or after another variant of it.

    Raises:
        BadInput: A patch is missing, listed twice, malformed, or present but not listed.
    """
    listing = directory / "series"
    try:
        lines = listing.read_text("utf-8").splitlines()
    except OSError as error:
        raise BadInput(
            f"cannot read {listing}: {error.strerror}", "run from the project"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{listing} is not UTF-8", "write it anew") from error
    names = [name for line in lines if (name := re.sub(r"(^|\s)#.*", "", line).strip())]
    for number, name in enumerate(names):
        if "/" in name or name in names[:number]:
            raise BadInput(f"{listing} lists {name!r} twice or outside patches/", "remove the line")
    unlisted = sorted({p.name for p in directory.glob("*.patch")} - set(names))
    if unlisted:
        raise BadInput(f"{listing} does not list {unlisted[0]}", "add it, or remove the file")
    steps: list[Step] = []
    for name in names:
        try:
            patch = parse_patch(name, (directory / name).read_bytes())
        except OSError as error:
            raise BadInput(
                f"cannot read patches/{name}: {error.strerror}", f"remove it from {listing}"
            ) from error
        if steps and steps[-1].name == patch.name:
            steps[-1] = Step(patch.name, (*steps[-1].variants, patch))
        elif any(step.name == patch.name for step in steps):
            raise BadInput(f"{listing}: {name} stands apart from its variants", "move it to them")
        else:
            steps.append(Step(patch.name, (patch,)))
    return Series(tuple(steps))
