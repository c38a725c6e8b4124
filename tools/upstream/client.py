"""The package index over the network: its pages and files, and every failure as one line."""

import contextlib
from collections.abc import Iterator
from datetime import UTC
from urllib.parse import urlsplit, urlunsplit

import requests
from packaging.version import InvalidVersion, Version
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    NoSuchProjectError,
    PyPISimple,
    UnsupportedContentTypeError,
)

from tools.errors import Unavailable
from tools.upstream import downloads
from tools.upstream.page import IndexFile, IndexUnreachable

_TIMEOUT = (15.0, 60.0)


def page(endpoint: str, project: str) -> tuple[IndexFile, ...]:
    """Return the sdists and wheels of a project that have a valid version.

    Args:
        endpoint: The base URL of the simple API; "" for the client's default.
        project: The project's name.

    Raises:
        IndexUnreachable: The index cannot be read.
        Unavailable: It has no such project.
    """
    endpoint = endpoint or PYPI_SIMPLE_ENDPOINT
    try:
        with PyPISimple(endpoint, session=_session()) as simple:
            read = simple.get_project_page(project, timeout=_TIMEOUT)
    except NoSuchProjectError as error:
        raise Unavailable(f"the package index has no project {project}") from error
    except (requests.RequestException, UnsupportedContentTypeError, ValueError) as error:
        raise IndexUnreachable(
            f"the package index {_shown(endpoint)} cannot be read: {_reason(error)}",
            "check the network, or the index that pip or uv is configured for",
        ) from error
    found = []
    for package in read.packages:
        version, kind = package.version, package.package_type
        if version is None or kind not in ("sdist", "wheel") or not _is_version(version):
            continue
        if not downloads.is_plain_name(package.filename):
            continue
        uploaded = package.upload_time
        found.append(
            IndexFile(
                package.filename,
                package.url,
                package.digests.get("sha256", "").lower(),
                version,
                kind,
                uploaded.astimezone(UTC).isoformat() if uploaded else "",
                package.size,
            )
        )
    return tuple(sorted(found, key=lambda f: (Version(f.version), f.filename)))


@contextlib.contextmanager
def stream(file: IndexFile, start: int) -> Iterator[downloads.Stream]:
    """Yield a file's bytes from ``start`` on, or all of them where the server gives no parts.

    Raises:
        Unavailable: The file cannot be read.
    """
    # Identity: a digest is over the file, and a range over what is sent.
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with (
            _session() as session,
            session.get(file.url, stream=True, timeout=_TIMEOUT, headers=headers) as answer,
        ):
            if start and answer.status_code == 416:  # what is there is longer than the file
                yield downloads.Stream((), resumed=True)
                return
            answer.raise_for_status()
            yield downloads.Stream(
                answer.iter_content(1 << 18), resumed=start > 0 and answer.status_code == 206
            )
    except requests.RequestException as error:
        raise Unavailable(
            f"the download of {file.filename} failed: {_reason(error)}",
            "check the network and run it again: it continues where it stopped",
        ) from error


def _session() -> requests.Session:
    session = requests.Session()
    adapter = requests.adapters.HTTPAdapter(max_retries=2)
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    return session


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _shown(url: str) -> str:
    """Return a URL without the credentials that it may hold."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


def _reason(error: Exception) -> str:
    # The innermost cause says what happened; requests wraps it in text with object addresses.
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "the server's certificate was not accepted"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error) or type(error).__name__
