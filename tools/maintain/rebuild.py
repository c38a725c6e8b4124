"""A wheel of ours derived again from what it says of itself, and compared byte for byte."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.carry import Carried
from tools.errors import BadInput, CheckFailed
from tools.git import Git
from tools.maintain.ship import WheelRequest, build_wheel
from tools.wheel.inspect import Inspection, differences

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Rebuilt:
    """A wheel that was built again.

    Attributes:
        sha256: The digest of the new one; the same as the old one's where all is well.
        differences: The members at which the two part.
    """

    sha256: str
    differences: tuple[str, ...]


def recorded_source(found: Inspection, given: str) -> str:
    """Return the source to take upstream's tree from: what was asked for, or as it was recorded.

    Args:
        found: The wheel.
        given: What the user asked for; ``auto`` stands for the recorded one.

    Raises:
        BadInput: It was built from a path, which only its user knows.
    """
    recorded = str(found.provenance.get("source"))
    if given != "auto":
        return given
    if recorded not in ("index", "git"):
        raise BadInput(
            f"{found.wheel.name} was built from a tree at a path of the machine that built it",
            "give that tree: --source PATH",
        )
    return recorded


def rebuild(
    git: Git,
    carried: Carried,
    found: Inspection,
    upstream: Path | None,
    cache: Path,
    notify: Notify,
) -> Rebuilt:
    """Build a wheel again and compare the two.

    Args:
        git: The store.
        carried: The ref that the wheel names, carried with the series and overlay at hand.
        found: The wheel.
        upstream: Upstream's wheel, where it is not to be fetched from the index.
        cache: Where downloads are kept.
        notify: Told what takes time.

    Raises:
        CheckFailed: The series or the overlay at hand are not those of the wheel.
        BadInput: Upstream's wheel is damaged or of another release.
        Unavailable: Upstream's wheel cannot be had.
        EnvironmentLacks: The disk is full.
    """
    made_from = str(found.provenance.get("carried_commit"))
    if carried.commit != made_from:
        raise CheckFailed(
            f"{found.wheel.name} was made from {made_from[:12]}, and the series and overlay at "
            f"hand make {carried.commit[:12]} of {carried.upstream.ref.name}",
            "check out the revision of this project that the wheel was built with",
        )
    with tempfile.TemporaryDirectory(prefix="vllm-exaone-") as scratch:
        done = build_wheel(
            git,
            carried,
            WheelRequest(
                device=found.inputs.device,
                out_dir=Path(scratch),
                build_number=found.inputs.number,
                wheel=upstream,
                amendments=found.inputs.amendments,
                delta=found.is_delta,
                check=False,
                epoch=found.inputs.epoch,
            ),
            cache,
            notify,
        )
        made = done.delta if found.is_delta and done.delta else done
        return Rebuilt(made.sha256, differences(found.wheel, made.wheel))
