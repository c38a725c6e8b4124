"""Archives made on the spot, and a package index on the loopback that serves and breaks them."""

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.settings import Settings

MTIME = 1_750_000_000


@dataclass
class FakeIndex:
    """A simple index: files by name, and what it does wrong."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    cut_after: int | None = None
    status: int | None = None
    ranges: bool = True

    def page(self, project: str) -> dict[str, Any]:
        stem = project.replace("-", "_")
        return {
            "meta": {"api-version": "1.1"},
            "name": project,
            "versions": [],
            "files": [
                {
                    "filename": name,
                    "url": f"{self.url}/files/{name}",
                    "hashes": {"sha256": hashlib.sha256(content).hexdigest()},
                    "size": len(content),
                    "upload-time": "2026-01-02T03:04:05.000006Z",
                    **self.claims.get(name, {}),
                }
                for name, content in self.files.items()
                if name.startswith(f"{stem}-")
            ],
        }

    def downloads(self) -> list[str | None]:
        return [asked for path, asked in self.requests if path.startswith("/files/")]


def _handler(index: FakeIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            index.requests.append((self.path, asked))
            if index.status is not None:
                self.send_error(index.status)
                return
            if self.path.startswith("/simple/"):
                project = self.path.removeprefix("/simple/").strip("/")
                body = json.dumps(index.page(project)).encode()
                if not index.page(project)["files"]:
                    self.send_error(404)
                    return
                self.answer(200, body, "application/vnd.pypi.simple.v1+json")
                return
            body = index.files[self.path.removeprefix("/files/")]
            status = 200
            if asked is not None and index.ranges:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(body):
                    self.send_error(416)
                    return
                body, status = body[start:], 206
            self.answer(status, body, "application/octet-stream")

        def answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = index.cut_after if self.path.startswith("/files/") else None
            self.wfile.write(body if cut is None else body[:cut])
            if cut is not None:
                self.close_connection = True

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIndex]:
    """An empty package index that these tools are configured for."""
    made = FakeIndex()
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(made)) as server:
        made.url = f"http://127.0.0.1:{server.server_address[1]}"
        for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("PIP_INDEX_URL", f"{made.url}/simple")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings whose git source does not exist."""
    return Settings(
        root=tmp_path,
        default_ref="v1.2.3",
        git_url=str(tmp_path / "nowhere.git"),
        build_number=1,
        cache=tmp_path / "cache",
    )


def sdist_of(
    version: str, files: dict[str, bytes], *more: tuple[tarfile.TarInfo, bytes], mtime: int = MTIME
) -> bytes:
    """Return an sdist; ``more`` are members put in as they are."""
    top = f"vllm-{version}"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as tar:
        held = {"PKG-INFO": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n".encode()}
        for name, content in {**held, **files}.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mtime = len(content), mtime
            info.mode = 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(info, io.BytesIO(content))
        for info, content in more:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def wheel_of(version: str, files: dict[str, bytes], distribution: str = "vllm") -> bytes:
    """Return a wheel with as much metadata as is looked at."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        held = {f"{distribution}-{version}.dist-info/METADATA": metadata.encode()}
        for name, content in {**files, **held}.items():
            info = zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6))
            info.external_attr = 0o100644 << 16
            archive.writestr(info, content)
    return out.getvalue()


@pytest.fixture
def make_sdist() -> Callable[..., bytes]:
    return sdist_of


@pytest.fixture
def make_wheel() -> Callable[..., bytes]:
    return wheel_of
