"""Sources: a ref from the index, from git over several transports, and from a local path."""

import os
import pickle
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools.errors import BadInput, Unavailable
from tools.settings import Settings
from tools.upstream import Store, list_releases, obtain
from tools.upstream import index as index_module
from tools.upstream.page import IndexUnreachable
from tools.upstream.remote import Unreachable

UserGit = Callable[..., str]
Maker = Callable[..., bytes]
SDIST = "vllm-1.2.3.tar.gz"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store.open(settings) as opened:
        yield opened


@pytest.fixture
def upstream_git(tmp_path: Path, user_git: UserGit) -> Path:
    """A repository like upstream's: three tagged commits, a branch, a link, a submodule's entry."""
    path = tmp_path / "upstream"
    path.mkdir()
    user_git(path, "init", "-q", "-b", "main")
    for number in range(1, 4):
        (path / "vllm").mkdir(exist_ok=True)
        (path / "vllm" / "__init__.py").write_bytes(b"version = %d\r\n" % number)
        (path / f"f{number}").write_text(f"{number}\n")
        user_git(path, "add", ".")
        user_git(path, "commit", "-q", "-m", f"commit {number}\n\nUpstream-Kind: sdist")
        user_git(path, "tag", "-a", "-m", "tag", f"v1.0.{number}")
    user_git(path, "tag", "nightly")
    user_git(path, "checkout", "-q", "-b", "fix/one")
    (path / "link").symlink_to("f1")
    user_git(path, "add", ".")
    user_git(path, "commit", "-q", "-m", "a link")
    user_git(path, "checkout", "-q", "main")
    return path


def with_git(store: Store, url: str) -> Store:
    return Store(replace(store.settings, git_url=url), store.git, store.lock_seconds)


def commit_of(user_git: UserGit, path: Path, revision: str) -> str:
    return user_git(path, "rev-parse", f"{revision}^{{commit}}").strip()


# The package index ------------------------------------------------------------------------------


def test_a_release_comes_from_the_index_once(
    store: Store, index: Any, make_sdist: Maker, told: list[str]
) -> None:
    index.files[SDIST] = make_sdist("1.2.3", {"vllm/__init__.py": b"a\r\n", "run.sh": b"x"})
    first = obtain(store, "1.2.3", notify=told.append)
    sha256 = index.page("vllm")["files"][0]["hashes"]["sha256"]
    assert (first.ref.name, first.source, first.kind) == ("v1.2.3", "index", "sdist")
    assert dict(first.digests) == {SDIST: sha256}
    assert first.tree == store.git.tree_of(first.commit)
    assert told == [f"downloading {SDIST}", f"importing {SDIST}"]
    index.status = 500
    assert obtain(store, "v1.2.3") == first
    assert obtain(store, "v1.2.3", "index") == first


def test_what_was_obtained_crosses_processes(store: Store, index: Any, make_sdist: Maker) -> None:
    """The matrix sends it to worker processes: a read-only view of a mapping cannot be sent."""
    index.files[SDIST] = make_sdist("1.2.3", {"run.sh": b"x"})
    found = obtain(store, "v1.2.3")
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_release_with_wheels_only_is_marked(store: Store, index: Any, make_wheel: Maker) -> None:
    wheels = [f"vllm-1.2.3-cp38-abi3-manylinux_2_31_{arch}.whl" for arch in ("aarch64", "x86_64")]
    for name in wheels:
        index.files[name] = make_wheel("1.2.3", {"vllm/__init__.py": name.encode()})
    found = obtain(store, "v1.2.3")
    assert (found.source, found.kind, list(found.digests)) == ("index", "wheel", wheels[1:])
    assert [e.path for e in store.git.listing(found.commit)] == [b"vllm/__init__.py"]


def test_an_archive_of_another_release_is_refused(
    store: Store, index: Any, make_sdist: Maker
) -> None:
    index.files[SDIST] = make_sdist("1.2.4", {"a": b""})
    with pytest.raises(BadInput, match=r"version 1\.2\.4, not v1\.2\.3"):
        obtain(store, "v1.2.3")
    assert store.names() == {}


def test_what_fails_leaves_the_store_as_it_was(store: Store, index: Any, make_sdist: Maker) -> None:
    index.files[SDIST] = make_sdist("1.2.3", {"../x": b""})
    index.files["vllm-1.2.4.tar.gz"] = make_sdist("1.2.4", {"a": b""})
    index.claims["vllm-1.2.4.tar.gz"] = {"hashes": {"sha256": "0" * 64}}
    before = sorted(store.git.directory.rglob("*"))
    with pytest.raises(BadInput, match="refused"):
        obtain(store, "v1.2.3")
    with pytest.raises(Unavailable, match="damaged"):
        obtain(store, "v1.2.4")
    for ref in ("v9.9.9", "--upload-pack=x", "v1..2", "main"):
        with pytest.raises((Unavailable, BadInput)):
            obtain(store, ref, "index")
    assert sorted(store.git.directory.rglob("*")) == before


def test_unknown_releases_name_the_nearest(store: Store, index: Any, make_sdist: Maker) -> None:
    for version in ("1.2.3", "1.2.4", "1.3.0"):
        index.files[f"vllm-{version}.tar.gz"] = make_sdist(version, {})
    with pytest.raises(Unavailable, match=r"no tag v9\.9\.9 on the package index") as caught:
        obtain(store, "v9.9.9")
    assert "v1.3.0" in caught.value.hint
    assert str(store.settings.git_url) in caught.value.message
    with pytest.raises(Unavailable) as caught:
        obtain(store, "v1.2.5", "index")
    assert "v1.2.4" in caught.value.hint
    with pytest.raises(BadInput, match="releases only"):
        obtain(store, "main", "index")


def test_releases_are_listed_with_what_is_in_the_store(
    store: Store, index: Any, make_sdist: Maker, make_wheel: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.files["vllm-1.10.0.tar.gz"] = make_sdist("1.10.0", {})
    index.files["vllm-1.9.0.tar.gz"] = make_sdist("1.9.0", {})
    index.files["vllm-1.9.1-py3-none-any.whl"] = make_wheel("1.9.1", {})
    obtain(store, "v1.9.0")
    rows = list_releases(store)
    assert [(r.tag, r.in_store, r.sdist, r.wheel) for r in rows] == [
        ("v1.9.0", True, True, False),
        ("v1.9.1", False, False, True),
        ("v1.10.0", False, True, False),
    ]
    assert all(r.uploaded is not None and r.uploaded.year == 2026 for r in rows)
    index.status = 500
    monkeypatch.setattr(index_module, "PAGE_SECONDS", -1)
    assert list_releases(store) == rows, "offline, from the page kept"
    for page in (store.settings.cache / "index").rglob("*.json"):
        page.unlink()
    (row,) = list_releases(store)
    assert (row.tag, row.in_store, row.uploaded) == ("v1.9.0", True, None)


def test_without_index_and_store_there_is_nothing_to_list(store: Store, index: Any) -> None:
    index.status = 500
    with pytest.raises(IndexUnreachable):
        list_releases(store)


# Git --------------------------------------------------------------------------------------------


def test_a_tag_that_was_moved_is_fetched_anew_where_that_is_known(
    store: Store, upstream_git: Path, user_git: UserGit
) -> None:
    with_tags = with_git(store, str(upstream_git))
    first = obtain(with_tags, "v1.0.3", "git")
    old = commit_of(user_git, upstream_git, "v1.0.2")
    user_git(upstream_git, "tag", "-f", "-a", "-m", "again", "v1.0.3", old)
    assert obtain(with_tags, "v1.0.3", "git") == first, "nobody asked"
    assert obtain(with_tags, "v1.0.3", "git", commit=first.commit) == first
    moved = obtain(with_tags, "v1.0.3", "git", commit=old)
    assert (moved.commit, moved.ref) == (old, first.ref)
    assert obtain(with_tags, "v1.0.3", "git") == moved


class HttpGit:
    """`git http-backend` behind a loopback server, or the files alone as a plain web server."""

    def __init__(self, root: Path, *, smart: bool) -> None:
        self.paths: list[str] = []
        held = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                held.paths.append(self.path)
                if smart:
                    self.backend(b"")
                    return
                file = root / self.path.partition("?")[0].lstrip("/")
                if not file.is_file():
                    self.send_error(404)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(file.read_bytes())

            def do_POST(self) -> None:
                held.paths.append(self.path)
                if self.headers.get("Transfer-Encoding") == "chunked":
                    self.send_error(501)
                    return
                self.backend(self.rfile.read(int(self.headers["Content-Length"])))

            def backend(self, body: bytes) -> None:
                path, _, query = self.path.partition("?")
                done = subprocess.run(
                    ["git", "http-backend"],
                    input=body,
                    capture_output=True,
                    check=True,
                    env={
                        **os.environ,
                        "GIT_PROJECT_ROOT": str(root),
                        "GIT_HTTP_EXPORT_ALL": "1",
                        "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                        "PATH_INFO": path,
                        "QUERY_STRING": query,
                        "REQUEST_METHOD": self.command,
                        "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                        "CONTENT_LENGTH": str(len(body)),
                        "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                    },
                )
                head, _, content = done.stdout.partition(b"\r\n\r\n")
                self.send_response(200)
                for row in head.decode().split("\r\n"):
                    self.send_header(*row.split(": ", 1))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))

    def __enter__(self) -> str:
        self.thread.start()
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_error: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(params=["path", "file", "filter", "http", "dumb"])
def git_url(request: pytest.FixtureRequest, upstream_git: Path, user_git: UserGit) -> Iterator[str]:
    """Upstream's repository as servers of different abilities offer it."""
    if request.param == "path":
        yield str(upstream_git)
    elif request.param == "file":
        yield f"file://{upstream_git}"
    else:
        user_git(upstream_git, "config", "uploadpack.allowFilter", "true")
        user_git(upstream_git, "config", "http.uploadpack", "true")
        user_git(upstream_git, "update-server-info")
        if request.param == "filter":
            yield f"file://{upstream_git}"
        else:
            with HttpGit(upstream_git.parent, smart=request.param == "http") as url:
                yield f"{url}/upstream/.git"


def test_tags_branches_and_commits_come_with_their_own_ids(
    store: Store, upstream_git: Path, git_url: str, user_git: UserGit
) -> None:
    reached = with_git(store, git_url)
    old = commit_of(user_git, upstream_git, "v1.0.1")
    for ref, revision in {
        "v1.0.2": "v1.0.2",
        "main": "main",
        "fix/one": "fix/one",
        "nightly": "nightly",
        old: old,
        commit_of(user_git, upstream_git, "v1.0.3")[:8]: "v1.0.3",
    }.items():
        found = obtain(reached, ref, "git")
        assert found.commit == commit_of(user_git, upstream_git, revision)
        assert (found.source, found.kind, dict(found.digests)) == ("git", "commit", {})
        listed = user_git(upstream_git, "ls-tree", "-r", "-z", revision)
        assert reached.git.run("ls-tree", "-r", "-z", found.commit).stdout.decode() == listed
    user_git(store.git.directory, "fsck", "--strict", "--no-dangling")
    # No history: each commit stands alone, and what was borrowed came along.
    assert reached.git.run("rev-list", "--count", "main", ok=(0, 128)).status == 128
    assert reached.git.run("rev-list", "--count", found.commit).stdout == b"1\n"


def test_only_files_that_the_store_lacks_are_asked_for(
    store: Store, upstream_git: Path, user_git: UserGit
) -> None:
    user_git(upstream_git, "config", "uploadpack.allowFilter", "true")
    user_git(upstream_git, "config", "uploadpack.allowAnySHA1InWant", "true")
    reached = with_git(store, f"file://{upstream_git}")
    packs = store.git.directory / "objects" / "pack"
    obtain(reached, "v1.0.2", "git")
    before = set(packs.glob("*.idx"))
    obtain(reached, "v1.0.3", "git")
    (fresh,) = set(packs.glob("*.idx")) - before
    rows = reached.git.run("verify-pack", "-v", str(fresh)).stdout.decode().splitlines()
    kinds = sorted(row.split()[1] for row in rows if len(row.split()) >= 5 and len(row) > 40)
    # Two changed files, their two directories, one commit; f1 and f2 are in the store.
    assert [k for k in kinds if k in ("blob", "commit", "tree")] == [
        "blob",
        "blob",
        "commit",
        "tree",
        "tree",
    ]


def test_an_abbreviated_commit_inside_the_history_is_found(
    store: Store, upstream_git: Path, git_url: str, user_git: UserGit
) -> None:
    (upstream_git / "f").write_text("x")
    user_git(upstream_git, "add", ".")
    user_git(upstream_git, "commit", "-q", "-m", "in between")
    inside = commit_of(user_git, upstream_git, "main")
    user_git(upstream_git, "commit", "-q", "--allow-empty", "-m", "tip")
    user_git(upstream_git, "update-server-info")
    reached = with_git(store, git_url)
    assert obtain(reached, inside[:9], "git").commit == inside
    user_git(upstream_git, "branch", "-m", "main", "gone")
    assert obtain(reached, inside[:9], "git").commit == inside, "from the store"


def test_a_tag_is_kept_and_a_branch_is_followed(
    store: Store, upstream_git: Path, user_git: UserGit, told: list[str]
) -> None:
    reached = with_git(store, str(upstream_git))
    tag, branch = obtain(reached, "v1.0.3", "git"), obtain(reached, "main", "git")
    assert tag.commit == branch.commit
    user_git(upstream_git, "commit", "-q", "--allow-empty", "-m", "more")
    moved = obtain(reached, "main", "git")
    assert moved.commit == commit_of(user_git, upstream_git, "main") != branch.commit
    upstream_git.rename(upstream_git.with_name("away"))
    assert obtain(reached, "v1.0.3", "git") == tag
    assert obtain(reached, "main", "git", told.append) == moved
    assert "as it was fetched last" in told[-1]
    with pytest.raises(Unreachable):
        obtain(reached, "v1.0.1", "git")


def test_unknown_git_refs_name_the_nearest(store: Store, upstream_git: Path) -> None:
    reached = with_git(store, str(upstream_git))
    with pytest.raises(Unavailable) as caught:
        obtain(reached, "v1.0.33", "git")
    assert "v1.0.3" in caught.value.hint
    with pytest.raises(Unavailable) as caught:
        obtain(reached, "mian", "git")
    assert "main" in caught.value.hint
    for commit in ("0" * 40, "0" * 9):
        with pytest.raises(Unavailable, match="no commit 0"):
            obtain(reached, commit, "git")
    assert store.names() == {}
    assert list((store.settings.cache / "incoming").iterdir()) == []


def test_a_repository_that_is_away_is_one_line_without_credentials(store: Store) -> None:
    reached = with_git(store, "http://me:secret@127.0.0.1:9/x.git")
    with pytest.raises(Unreachable) as caught:
        obtain(reached, "main", "git")
    assert caught.value.exit_code == 3
    assert "secret" not in caught.value.message
    assert "\n" not in caught.value.message


def test_auto_asks_the_store_then_the_index_then_git(
    store: Store, index: Any, make_sdist: Maker, upstream_git: Path, told: list[str]
) -> None:
    index.files["vllm-1.0.1.tar.gz"] = make_sdist("1.0.1", {"vllm/__init__.py": b""})
    reached = with_git(store, str(upstream_git))
    assert obtain(reached, "v1.0.2", "git").source == "git"
    asked = len(index.requests)
    assert obtain(reached, "v1.0.2").source == "git", "it is in the store"
    assert len(index.requests) == asked
    assert obtain(reached, "v1.0.1").source == "index"
    assert obtain(reached, "v1.0.3").source == "git", "the index lacks it"
    assert obtain(reached, "main").source == "git"
    both = {obtain(reached, "v1.0.1", source).commit for source in ("git", "index", "auto")}
    assert len(both) == 2, "the sources' refs are apart"


def test_auto_goes_to_git_when_the_index_is_away(
    store: Store, index: Any, upstream_git: Path
) -> None:
    index.status = 500
    assert obtain(with_git(store, str(upstream_git)), "v1.0.3").source == "git"
    with pytest.raises(IndexUnreachable, match="HTTP status 500"):
        obtain(store, "v1.0.3")


def test_hooks_and_helpers_of_a_repository_do_not_run(
    store: Store, upstream_git: Path, tmp_path: Path, user_git: UserGit
) -> None:
    touched = tmp_path / "touched"
    for name in ("post-checkout", "reference-transaction", "pre-auto-gc", "post-index-change"):
        hook = upstream_git / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {touched}\n")
        hook.chmod(0o755)
    user_git(upstream_git, "config", "uploadpack.packObjectsHook", f"touch {touched};")
    user_git(upstream_git, "config", "core.fsmonitor", f"touch {touched};")
    obtain(store, "v1.0.3", str(upstream_git))
    assert not touched.exists()


# A local path -----------------------------------------------------------------------------------


def test_a_checkout_and_a_bare_repository(
    store: Store, upstream_git: Path, tmp_path: Path, user_git: UserGit
) -> None:
    bare = tmp_path / "bare.git"
    user_git(tmp_path, "clone", "-q", "--bare", str(upstream_git), str(bare))
    tree = tmp_path / "worktree"
    user_git(upstream_git, "worktree", "add", "-q", str(tree), "fix/one")
    for path in (upstream_git, bare, tree):
        found = obtain(store, "v1.0.2", str(path))
        assert (found.source, found.kind) == ("path", "commit")
        assert found.commit == commit_of(user_git, upstream_git, "v1.0.2")
    user_git(upstream_git, "tag", "-f", "v1.0.2", "v1.0.3^{commit}")
    moved = obtain(store, "v1.0.2", str(upstream_git))
    assert moved.commit == commit_of(user_git, upstream_git, "v1.0.3"), "asked each time"


def test_an_sdist_file(store: Store, index: Any, make_sdist: Maker, tmp_path: Path) -> None:
    content = index.files[SDIST] = make_sdist("1.2.3", {"a": b"1"})
    path = tmp_path / "renamed ü.tar.gz"
    path.write_bytes(content)
    found = obtain(store, "v1.2.3", str(path))
    assert (found.source, found.kind) == ("path", "sdist")
    assert found.tree == obtain(store, "v1.2.3", "index").tree
    assert obtain(store, "v1.2.3", str(path)) == found
    for ref in ("v1.2.4", "main"):
        with pytest.raises(BadInput, match=r"version 1\.2\.3, not"):
            obtain(store, ref, str(path))


@pytest.mark.parametrize("source", ["", "nowhere", "--x", "a\0b", "/dev/null", "."])
def test_what_is_no_source_is_refused(store: Store, source: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(store.settings.root)
    with pytest.raises(BadInput) as caught:
        obtain(store, "v1.2.3", source)
    assert caught.value.message.isprintable()
