"""Whether the engine answered right with a wheel, by the record of smokes, and on what it ran."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version
from uv import find_uv_bin

from tools.errors import CheckFailed, EnvironmentLacks
from tools.maintain.released import Proof
from tools.smoke.environment import engine_plan, environment, parse_wheel_tags, python_for
from tools.smoke.verified import FILE, CellName, CellState, Verified, content_of, load
from tools.upstream.index import Index

Notify = Callable[[str], None]


def prove(root: Path, release: str, device: str, wheel: Callable[[], Path]) -> Proof:
    """Return what the record says of a wheel, whatever its build number is.

    The usual smoke has to be on record, and every other one that is (modes, newest transformers)
    has to stand as well.

    Args:
        root: The project's root, where the record lies.
        release: Such as ``v0.32.0``.
        device: ``cpu`` or ``cuda``.
        wheel: Gives the wheel; not asked where nothing is recorded.

    Raises:
        BadInput: The record is malformed.
    """
    record = load(root / FILE)
    usual = _cell_name(release, device)
    if usual not in record.cells:
        return Proof(device, proved=False, detail=f"its smoke is {CellState.MISSING.value}")
    content = content_of(wheel())
    whose = (usual.release, usual.device, usual.kind)
    others = {n for n in record.cells if (n.release, n.device, n.kind) == whose} - {usual}
    for name in [usual, *sorted(others)]:
        which = "smoke" if name == usual else f"smoke of {name.transformers} {name.runs}"
        standing = record.standing(name, content)
        if standing.state is not CellState.CURRENT:
            why = f" ({standing.reason})" if standing.reason else ""
            return Proof(device, proved=False, detail=f"its {which} is {standing.state.value}{why}")
        if not record.cells[name].passed:
            return Proof(device, proved=False, detail=f"its {which} failed, {_when(record, name)}")
    return Proof(device, proved=True, detail=_when(record, usual))


def constraints(
    root: Path, release: str, device: str, wheel: Path, cache: Path, notify: Notify
) -> bytes:
    """Return the packages of the environment that a smoke passed in, as a constraints file.

    Args:
        root: The project's root, where the record lies.
        release: Such as ``v0.32.0``.
        device: ``cpu`` or ``cuda``.
        wheel: The wheel that was proved.
        cache: Where environments are; this one is installed again where it is gone.
        notify: Told what takes time.

    Raises:
        CheckFailed: The environment has other versions than the record.
        EnvironmentLacks: It cannot be installed, or uv cannot list it.
        Busy: Another run holds the environments.
    """
    name = _cell_name(release, device)
    cell = load(root / FILE).cells[name]
    plan = engine_plan(
        release,
        device=device,
        wheel=wheel,
        transformers=name.transformers,
        index=Index.configured(cache, notify),
    )
    with environment(plan, cache, notify) as place:
        command = [find_uv_bin(), "pip", "freeze", "--quiet", "--python", str(place.python)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentLacks(f"uv cannot list {place.root}: {done.stderr.strip()[:200]}")
    pins = parse_pins(done.stdout)
    for package, version in cell.versions.items():
        if package in pins and Version(pins[package]).public != Version(version).public:
            raise CheckFailed(
                f"{package} {pins[package]} would be installed for {release} on {device}, "
                f"and its smoke ran with {version}",
                f"run: python -m tools verify {release}",
            )
    python = ".".join(map(str, python_for(parse_wheel_tags(wheel))))
    lines = [f"# Proved for {release} on {device}, {cell.date}", f"# Python {python}"]
    return "\n".join([*lines, *(f"{n}=={v}" for n, v in pins.items())]).encode() + b"\n"


def _when(record: Verified, name: CellName) -> str:
    cell = record.cells[name]
    versions = ", ".join(f"{what} {version}" for what, version in sorted(cell.versions.items()))
    return f"{len(cell.checks)} checks on {cell.date}, {versions}"


def _cell_name(release: str, device: str) -> CellName:
    # What a user gets: the usual cases, with the transformers of the release's own time.
    return CellName(release, device, "carried", "release", "usual")


def parse_pins(text: str) -> dict[str, str]:
    """Return version by name from what ``pip freeze`` prints; what came from a file is left out."""
    pins = {}
    for line in text.splitlines():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        found = [item.version for item in requirement.specifier if item.operator == "=="]
        if found and requirement.url is None:
            pins[requirement.name] = found[0]
    return dict(sorted(pins.items()))
