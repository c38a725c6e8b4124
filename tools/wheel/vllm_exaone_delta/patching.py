"""Installing, verifying and uninstalling a delta, so that a kill at any moment can be mended.

Before the first file changes, everything that will change is copied into a state directory beside
``vllm`` (which takes its name by one rename), and every new file is written aside. Then each file
changes by one rename. A kill leaves each file old or new as a whole, and the state directory to go
on or back from: ``install`` and ``uninstall`` both start from whatever they find.

Files are never written in place: uv installs by hard links into its cache, and a write through one
of them would change every other environment too. Compiled ``.pyc`` files of changed sources are
kept in the state directory and put back, because installers list them in RECORD.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .manifest import DeltaError, Entry, Manifest, sha256_of

STATE = ".vllm_exaone_delta"
ASIDE = ".exaone-aside"


class State(Enum):
    """How an installed vLLM stands to a delta."""

    STOCK = "stock"
    INSTALLED = "installed"
    PRESENT = "has these changes without this delta"
    INTERRUPTED = "interrupted"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class Status:
    """What was found.

    Attributes:
        state: The whole.
        foreign: Files that are not what they were before, nor changed by this delta.
    """

    state: State
    foreign: tuple[str, ...] = ()


def status(manifest: Manifest, site: Path) -> Status:
    """Compare every file of a delta with what is installed."""
    states = {entry.path: _state_of(entry, site) for entry in manifest.entries}
    found = set(states.values())
    recorded = _recorded(site) is not None
    if not recorded and found == {State.INSTALLED}:
        # The full wheel, or a vLLM that somebody patched alike.
        return Status(State.PRESENT)
    unexpected = {State.FOREIGN} if recorded else {State.FOREIGN, State.INSTALLED}
    foreign = tuple(path for path, state in states.items() if state in unexpected)
    if foreign:
        return Status(State.FOREIGN, foreign)
    if not recorded:
        return Status(State.STOCK)
    return Status(State.INSTALLED if found == {State.INSTALLED} else State.INTERRUPTED)


def install(manifest: Manifest, site: Path, payload: Path) -> bool:
    """Lay the changed files into an installed vLLM.

    Args:
        manifest: What to change.
        site: The directory that holds ``vllm``.
        payload: The new files, named by their SHA-256.

    Returns:
        Whether anything changed; False where it is installed already.

    Raises:
        DeltaError: A file is not what this delta expects, another delta is installed, the payload
            is damaged, or the directory may not be written; then nothing was changed.
    """
    with _locked(site):
        found = status(manifest, site)
        other = _recorded(site)
        if other is not None and other != manifest:
            raise DeltaError(
                f"the delta {other.version} is installed; uninstall it first "
                "(python -m vllm_exaone_delta uninstall)"
            )
        if found.state is State.FOREIGN:
            raise DeltaError(
                f"{len(found.foreign)} files are not those of {manifest.distribution} "
                f"{manifest.upstream}, nothing was changed: {', '.join(found.foreign)}"
            )
        if found.state in (State.INSTALLED, State.PRESENT):
            return False
        for entry in manifest.entries:
            if entry.new is not None and sha256_of(payload / entry.new) != entry.new:
                raise DeltaError(f"the new text of {entry.path} is damaged; reinstall the delta")
        if other is None:
            _record(manifest, site)
        prepared = []
        for entry in manifest.entries:
            if entry.new is not None and _state_of(entry, site) is not State.INSTALLED:
                target = site / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                prepared.append((_aside(target, payload / entry.new, entry.mode, None), target))
        # Additions come first and removals last, so that no file refers to one that is not there.
        added = {site / entry.path for entry in manifest.entries if entry.old is None}
        for aside, target in sorted(prepared, key=lambda pair: pair[1] not in added):
            aside.replace(target)
        for entry in manifest.entries:
            if entry.new is None:
                (site / entry.path).unlink(missing_ok=True)
            _drop_compiled(site / entry.path)
        return True


def uninstall(site: Path) -> Manifest | None:
    """Put back every file that an install changed, byte for byte.

    Args:
        site: The directory that holds ``vllm``.

    Returns:
        The delta that was taken out, or None where none is installed.

    Raises:
        DeltaError: A file was changed since by somebody else, or the directory may not be written;
            then nothing was changed.
    """
    with _locked(site):
        manifest = _recorded(site)
        if manifest is None:
            return None
        changed = [e.path for e in manifest.entries if _state_of(e, site) is State.FOREIGN]
        if changed:
            raise DeltaError(
                f"{len(changed)} files were changed since the delta {manifest.version} was "
                f"installed, nothing was changed: {', '.join(changed)}"
            )
        notes = json.loads((site / STATE / "notes.json").read_bytes())
        # Before the kept ones are looked at: some of these may be the kept ones, some later ones.
        for entry in manifest.entries:
            _drop_compiled(site / entry.path)
        prepared = []
        for note in notes["kept"]:
            target = site / note["path"]
            if sha256_of(target) != note["sha256"] or target.stat().st_mtime_ns != note["mtime_ns"]:
                source = site / STATE / note["sha256"]
                aside = _aside(target, source, note["mode"], note["mtime_ns"])
                prepared.append((aside, target))
        for aside, target in prepared:
            aside.replace(target)
        for entry in manifest.entries:
            if entry.old is None:
                (site / entry.path).unlink(missing_ok=True)
        for path in reversed(notes["directories"]):
            shutil.rmtree(site / path / "__pycache__", ignore_errors=True)
            if (site / path).is_dir() and not any((site / path).iterdir()):
                (site / path).rmdir()
        # Renamed first, so that a kill does not leave half a record under its name.
        aside = site / f"{STATE}{ASIDE}"
        (site / STATE).replace(aside)
        shutil.rmtree(aside)
        return manifest


def _state_of(entry: Entry, site: Path) -> State:
    digest = sha256_of(site / entry.path)
    if digest == entry.new:
        return State.INSTALLED
    return State.STOCK if digest == entry.old else State.FOREIGN


def _recorded(site: Path) -> Manifest | None:
    try:
        data = (site / STATE / "manifest.json").read_bytes()
    except FileNotFoundError:
        return None
    return Manifest.parse(data, f"{site / STATE}")


def _record(manifest: Manifest, site: Path) -> None:
    """Copy everything that an install changes into the state directory."""
    aside = site / f"{STATE}{ASIDE}"
    aside.mkdir()
    kept = []
    directories: list[str] = []
    for entry in manifest.entries:
        target = site / entry.path
        missing = [p for p in reversed(target.relative_to(site).parents) if not (site / p).is_dir()]
        directories += [p.as_posix() for p in missing if p.as_posix() not in directories]
        for path in [target, *_compiled(target)]:
            digest = sha256_of(path)
            if digest is None:
                continue
            about = path.stat()
            _write(aside / digest, path.read_bytes())
            kept.append(
                {
                    "path": path.relative_to(site).as_posix(),
                    "sha256": digest,
                    "mode": about.st_mode & 0o7777,
                    "mtime_ns": about.st_mtime_ns,
                }
            )
    notes = {"kept": kept, "directories": directories}
    _write(aside / "notes.json", json.dumps(notes).encode())
    _write(aside / "manifest.json", manifest.render())
    aside.replace(site / STATE)


def _aside(target: Path, source: Path, mode: int, mtime_ns: int | None) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}{ASIDE}")
    _write(aside, source.read_bytes())
    aside.chmod(mode)
    if mtime_ns is not None:
        os.utime(aside, ns=(mtime_ns, mtime_ns))
    return aside


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _compiled(source: Path) -> list[Path]:
    if source.suffix != ".py":
        return []
    cache = source.parent / "__pycache__"
    return sorted(p for p in cache.glob("*.pyc") if p.name.split(".")[0] == source.stem)


def _drop_compiled(source: Path) -> None:
    for path in _compiled(source):
        path.unlink(missing_ok=True)


@contextmanager
def _locked(site: Path) -> Iterator[None]:
    """Hold the directory against other runs, and clear what a killed one wrote aside."""
    try:
        descriptor = os.open(site, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(site / f"{STATE}{ASIDE}", ignore_errors=True)
            for leftover in (site / "vllm").rglob(f".*{ASIDE}"):
                leftover.unlink()
            yield
        finally:
            os.close(descriptor)
    except BlockingIOError:
        raise DeltaError(f"another run is changing {site}; wait for it", 5) from None
    except OSError as error:
        place = error.filename or site
        raise DeltaError(f"cannot write {place}: {error.strerror}", 4) from None
