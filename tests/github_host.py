"""A server on this machine that answers as GitHub does, and remembers what it was asked."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "ghs_this_is_a_secret"
REPOSITORY = "owner/project"


@dataclass
class Answer:
    """What the server says to one request, before it goes on as usual."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    carried_out: bool = False
    drop: bool = False


@dataclass
class Host:
    """A server with the issues and pull requests of one repository."""

    url: str = ""
    issues: list[dict[str, Any]] = field(default_factory=list)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    script: list[Answer | None] = field(default_factory=list)
    seen: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)

    def carry_out(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        bare, _, query = path.partition("?")
        prefix = f"/repos/{REPOSITORY}"
        if bare == "/hook/very-secret":
            return 200, None
        if not bare.startswith(prefix):
            return 404, {"message": "Not Found"}
        if bare == prefix:
            return 200, {"default_branch": "main"}
        kind, _, number = bare.removeprefix(prefix + "/").partition("/")
        rows = {"issues": self.issues, "pulls": self.pulls}[kind]
        if method == "GET":
            return 200, self.listing(kind, rows, query)
        if method == "PATCH":
            row = next(row for row in rows if row["number"] == int(number))
            row.update({name: body[name] for name in ("title", "body")})
            return 200, row
        made = {
            "number": len(rows) + 1,
            "html_url": f"https://code.invalid/{kind}/{len(rows) + 1}",
            "user": {"type": "Bot"},
            "author_association": "NONE",
            "head": {"ref": body.get("head")},
            **{name: body[name] for name in ("title", "body")},
        }
        rows.append(made)
        return 201, made

    def listing(self, kind: str, rows: list[dict[str, Any]], query: str) -> list[dict[str, Any]]:
        values = dict(part.split("=") for part in query.split("&"))
        if kind == "pulls":
            assert values == {"state": "open", "head": "owner%3Abot%2Frebase", "base": "main"}
            return rows
        page, size = int(values["page"]), int(values["per_page"])
        return rows[(page - 1) * size : page * size]


@contextlib.contextmanager
def serve() -> Iterator[Host]:
    """Serve one repository for as long as the context is open."""
    found = Host()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw else None
            found.seen.append((self.command, self.path, dict(self.headers), body))
            answer = found.script.pop(0) if found.script else None
            status, data = 0, None
            if answer is None or answer.carried_out:
                status, data = found.carry_out(self.command, self.path, body)
            if answer is not None:
                if answer.drop:
                    self.close_connection = True
                    return
                status, data = answer.status, {"message": f"no, not with {TOKEN}\n"}
            content = json.dumps(data).encode() if data is not None else b""
            self.send_response(status)
            for name, value in (answer.headers if answer else {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815  (the names that the base class asks for)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
