"""From a carried tree to its wheel: which wheel of upstream's is repacked, and where it goes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from tools.carry import Carried
from tools.errors import BadInput, CheckFailed, ToolError
from tools.git import Git
from tools.upstream.index import Index
from tools.wheel.build import BuildJob, BuildResult, build, distribution_for, resolve_device
from tools.wheel.inspect import inspect
from tools.wheel.metadata import LOCAL_LABEL, Amendments
from tools.wheel.provenance import changes_between, provenance_of

Notify = Callable[[str], None]
_UNINSTALLED = "0+source"


@dataclass(frozen=True)
class WheelRequest:
    """Which wheel is wanted of a carried tree.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        out_dir: Where it goes.
        build_number: The N of ``+exaone.N``.
        wheel: Upstream's wheel, where it is not to be fetched from the index.
        amendments: What METADATA shall say otherwise.
        delta: Write the delta wheel as well.
    """

    device: str
    out_dir: Path
    build_number: int
    wheel: Path | None = None
    amendments: Amendments = field(default_factory=Amendments)
    delta: bool = False


def build_wheel(
    git: Git, carried: Carried, request: WheelRequest, cache: Path, notify: Notify
) -> BuildResult:
    """Build the wheel of a carried tree from upstream's wheel of the very same release.

    Args:
        git: The store.
        carried: The tree.
        request: Which wheel.
        cache: Where downloads are kept.
        notify: Told what takes time.

    Raises:
        BadInput: The ref is no release, so that upstream has no wheel of it.
        CheckFailed: The carry has conflicts, or a check of the wheel failed.
        Unavailable: Upstream's wheel cannot be had.
    """
    ref = carried.upstream.ref
    if carried.conflicts:
        first = carried.conflicts[0]
        raise CheckFailed(
            f"{first.name} is in conflict at {ref.name}: nothing is built",
            f"solve it: python -m tools resolve {ref.name}",
        )
    if ref.version is None:
        raise BadInput(
            f"upstream publishes no wheel of {ref.name}, which is no release",
            "build a release tag such as v0.32.0, or build from source",
        )
    device = resolve_device(request.device)
    wheel, digest = request.wheel, ""
    if wheel is None:
        fetched = Index.configured(cache, notify).fetch_wheel(distribution_for(device), ref.version)
        wheel, digest = fetched.path, fetched.sha256
    elif not wheel.is_file():
        raise BadInput(f"there is no wheel {wheel}", "name upstream's wheel of this release")
    return build(
        BuildJob(
            release=ref.name,
            device=device,
            wheel=wheel,
            out_dir=request.out_dir,
            build_number=request.build_number,
            changes=changes_between(git, carried.upstream.commit, carried.commit),
            provenance=provenance_of(carried, tool_version()),
            amendments=request.amendments,
            wheel_sha256=digest,
            delta=request.delta,
        )
    )


def built_wheel(carried: Carried, request: WheelRequest) -> Path | None:
    """Return the wheel of exactly this carried tree where an earlier build left it, or None."""
    distribution = distribution_for(resolve_device(request.device))
    pattern = f"{distribution.replace('-', '_')}-*{LOCAL_LABEL}.{request.build_number}-*.whl"
    for wheel in sorted(request.out_dir.glob(pattern)):
        try:
            held = inspect(wheel)
        except ToolError:
            continue  # a damaged wheel is none: it is built again
        if held.provenance.get("carried_commit") == carried.commit and not held.faults:
            return wheel
    return None


def tool_version() -> str:
    """Return the version of these tools; a checkout that is not installed says so."""
    try:
        return metadata.version("vllm-exaone-tools")
    except metadata.PackageNotFoundError:
        return _UNINSTALLED
