"""From a carried tree to its wheel: which wheel of upstream's is repacked, and where it goes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from tools.carry import Carried
from tools.contract.check import check
from tools.errors import BadInput, CheckFailed, ToolError
from tools.git import Git, GitTree
from tools.maintain.contracts import client_modules
from tools.overlay import Overlay
from tools.settings import Settings
from tools.upstream import parse_ref
from tools.upstream.index import Index
from tools.wheel.build import BuildJob, BuildResult, build, distribution_for, resolve_device
from tools.wheel.container import Recipe, container_recipe, write_recipe
from tools.wheel.inspect import inspect
from tools.wheel.metadata import LOCAL_LABEL, Amendments
from tools.wheel.provenance import BuildInputs, changes_between, provenance_of
from tools.wheel.publish import output_directory
from tools.wheel.repack import epoch_from_environment

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
        check: Read every byte back with others' tools before the wheel takes its name.
        epoch: ``SOURCE_DATE_EPOCH``, or None where it is not set.
    """

    device: str
    out_dir: Path
    build_number: int
    wheel: Path | None = None
    amendments: Amendments = field(default_factory=Amendments)
    delta: bool = False
    check: bool = True
    epoch: int | None = field(default_factory=epoch_from_environment)

    @classmethod
    def of(
        cls, settings: Settings, ref: str, device: str, out_dir: Path, number: int | None = None
    ) -> "WheelRequest":
        """Return the request for the wheel that the project ships of a ref.

        Args:
            settings: Whose build number and narrowed requirements count.
            ref: The ref.
            device: ``auto``, ``cpu`` or ``cuda``.
            out_dir: Where it goes.
            number: Another build number.
        """
        narrow = settings.narrowed(parse_ref(ref).version)
        chosen = number or settings.build_number
        return cls(device, out_dir, chosen, amendments=Amendments(narrow))

    @property
    def inputs(self) -> BuildInputs:
        """What decides the wheel's bytes beside the carried tree and upstream's wheel."""
        device = resolve_device(self.device)
        return BuildInputs(device, self.build_number, self.amendments, self.epoch)


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
    refuse_conflicts(carried)
    ref = carried.upstream.ref
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
            provenance=provenance_of(carried, tool_version(), _contract(git, carried)),
            amendments=request.amendments,
            wheel_sha256=digest,
            check=request.check,
            delta=request.delta,
            epoch=request.epoch,
        )
    )


def recipes_of(
    release: str, device: str, done: BuildResult, image: str | None = None
) -> tuple[Recipe, ...]:
    """Return the container recipes for what was built, from upstream's images.

    Args:
        release: Such as ``v0.32.0``.
        device: ``cpu`` or ``cuda``. The repackager's CPU wheel fits no image of upstream's, whose
            CPU image holds the distribution ``vllm``: for that one the CUDA wheel's delta fits.
        done: The build.
        image: Another image, or upstream's by its digest.

    Raises:
        BadInput: The image's name is none.
    """
    if device != "cuda":
        return ()
    made = [container_recipe(release, "cuda", done.wheel.name, done.sha256, image)]
    if done.delta is not None:
        delta = (done.delta.wheel.name, done.delta.sha256)
        made.append(container_recipe(release, "cuda", *delta, image))
        made += [] if image else [container_recipe(release, "cpu", *delta)]
    return tuple(made)


def check_image(device: str) -> None:
    """Refuse a recipe for a wheel that is in no image of upstream's.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        BadInput: It is for the CPU.
    """
    if resolve_device(device) != "cuda":
        raise BadInput(
            f"no image of upstream's holds {distribution_for('cpu')}, the CPU wheel's distribution",
            "build with --device cuda --delta: that delta is for upstream's CPU image, too",
        )


def write_recipes(
    release: str, request: WheelRequest, done: BuildResult, image: str | None
) -> tuple[Path, ...]:
    """Write the container recipes beside a wheel; see :func:`recipes_of`.

    Raises:
        BadInput: The image's name is none.
        EnvironmentLacks: The disk is full.
        Busy: Another run writes to the same directory.
    """
    recipes = recipes_of(release, request.inputs.device, done, image)
    with output_directory(request.out_dir) as out_dir:
        return tuple(write_recipe(out_dir, recipe) for recipe in recipes)


def refuse_conflicts(carried: Carried) -> None:
    """Stop where a patch needs a person.

    Raises:
        CheckFailed: The message names the first one.
    """
    if carried.conflicts:
        ref = carried.upstream.ref.name
        raise CheckFailed(
            f"{carried.conflicts[0].name} is in conflict at {ref}: nothing is built",
            f"solve it: python -m tools resolve {ref}",
        )


def built_wheel(carried: Carried, request: WheelRequest) -> Path | None:
    """Return the wheel of exactly this tree and request where an earlier build left it, or None."""
    distribution = distribution_for(request.inputs.device)
    pattern = f"{distribution.replace('-', '_')}-*{LOCAL_LABEL}.{request.build_number}-*.whl"
    for wheel in sorted(request.out_dir.glob(pattern)):
        try:
            held = inspect(wheel)
        except ToolError:
            continue  # a damaged wheel is none: it is built again
        made_from = (held.provenance.get("carried_commit"), held.provenance.get("tool_version"))
        if (
            made_from == (carried.commit, tool_version())
            and held.inputs == request.inputs
            and not held.faults
        ):
            return wheel
    return None


def _contract(git: Git, carried: Carried) -> dict[str, int | str]:
    """Return how the overlay's modules fit the carried tree itself.

    What they use of other distributions is left out: which of their versions there are changes
    from day to day, and the wheel's bytes must not.
    """
    tree = GitTree(git, carried.commit)
    modules = client_modules(Overlay(tuple(laid.file for laid in carried.overlay)), tree)
    report = check(tree, modules=modules) if modules else None
    return {"modules": len(modules), "errors": len(report.errors) if report else 0}


def tool_version() -> str:
    """Return the version of these tools; a checkout that is not installed says so."""
    try:
        return metadata.version("vllm-exaone-tools")
    except metadata.PackageNotFoundError:
        return _UNINSTALLED
