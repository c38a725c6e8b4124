"""rebase from the command line: the branch, the reports, exit codes, and what is left alone."""

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.version import Version

from tools.__main__ import main
from tools.cli.common import Project
from tools.settings import Settings
from tools.smoke.verified import FILE, WATCHED, Cell, CellName, Facts, Verified, save
from tools.upstream import Store
from tools.upstream.archive import Snapshot, SourceFile

TABLE = b'TABLE = {\n    "a": 1,\n    "b": 2,\n    "d": 4,\n}\n'
RUN = b"def run(x):\n    y = x + 1\n    return y\n"
MOVED = TABLE.replace(b'"d": 4', b'"dd": 44').replace(b'"b": 2', b'"b": 22')
RELEASES = {
    "v1.0.0": (TABLE, RUN),
    "v1.1.0": (MOVED, RUN),
    "v1.2.0": (MOVED, RUN.replace(b"x + 1", b"compute(x)")),
}
PROJECT = """
[tool.vllm-exaone]
default-ref = "v1.1.0"
oldest-ref = "v1.0.0"
git-url = "https://invalid.invalid/x.git"
build-number = 1
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


class Line:
    """A project of its own under git, three releases, and a remote."""

    def __init__(
        self, root: Path, user_git: Callable[..., str], capture: pytest.CaptureFixture[str]
    ) -> None:
        self.root, self.git, self.capture = root, user_git, capture
        (root / "patches").mkdir(parents=True)
        (root / "vllm_exaone").mkdir()
        (root / "vllm_exaone/overlay.toml").write_text("")
        (root / "pyproject.toml").write_text(PROJECT)
        (root / ".gitignore").write_text("/build/\n")
        with Store.open(Settings.load(root)) as store:
            for tag, (table, run) in RELEASES.items():
                files = tuple(
                    SourceFile(f"vllm/{name}.py", False, content)
                    for name, content in (("table", table), ("run", run))
                )
                facts = {"Kind": "sdist", "File": f"vllm-{tag}.tar.gz", "Sha256": "0" * 64}
                store.add(f"index/{tag}", Snapshot(files, 1, Version(tag)), tag, facts)
        self._patches()
        user_git(root, "init", "-q", "-b", "main")
        user_git(root, "add", "-A")
        user_git(root, "commit", "-qm", "start")
        user_git(root.parent, "init", "-q", "--bare", str(root.parent / "remote.git"))
        user_git(root, "remote", "add", "origin", str(root.parent / "remote.git"))

    def _patches(self) -> None:
        work = self.root.parent / "work"
        (work / "vllm").mkdir(parents=True)
        self.git(work, "init", "-q")
        (work / "vllm/table.py").write_bytes(TABLE)
        (work / "vllm/run.py").write_bytes(RUN)
        self.git(work, "add", "-A")
        self.git(work, "commit", "-qm", "base")
        edits = {
            "table": TABLE.replace(b'    "d"', b'    "c": 3,\n    "d"'),
            "run": RUN.replace(b"x + 1", b"(x + 1) * 2"),
        }
        for number, (name, content) in enumerate(edits.items(), 1):
            (work / f"vllm/{name}.py").write_bytes(content)
            self.git(work, "commit", "-qam", f"Change the {name}\n\nWhy.\n\nBase: v1.0.0")
            self.git(
                work, "format-patch", "-1", "--full-index", "-U1", "--output",
                str(self.root / f"patches/000{number}-{name}.patch"),
            )  # fmt: skip
        (self.root / "patches/series").write_text("0001-table.patch\n0002-run.patch\n")

    def prove(self, ref: str, file: Path) -> None:
        """Put a smoke of the carried tree of a ref on a record."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            project = Project()
            commit = project.carrier.carry(project.obtain(ref)).commit
        facts = Facts("0" * 64, "0" * 64, "5.0.0")
        cell = Cell(facts, "2026-11-30T00:00:00Z", commit, "w.whl", {}, True, 1.0, ())
        save(Verified({CellName(ref, "cpu", "carried", "release"): cell}), self.root / file)

    def run(self, *arguments: str) -> Done:
        """Run a command of ``python -m tools`` in this process, which spares the imports."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            # No index: what is in the store is all that there is.
            patch.setenv("UV_INDEX_URL", "http://127.0.0.1:1/simple")
            patch.setattr(sys, "argv", ["python -m tools", *arguments])
            handler = signal.getsignal(signal.SIGTERM)
            try:
                code = main()
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                signal.signal(signal.SIGTERM, handler)
        return Done(code, *self.capture.readouterr())


@pytest.fixture
def line(tmp_path: Path, user_git: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(tmp_path / "project", user_git, capsys)


@pytest.mark.parametrize("record", [FILE, WATCHED])
def test_what_only_drifted_may_be_merged_by_a_machine(line: Line, record: Path) -> None:
    line.prove("v1.1.0", record)
    done = line.run(
        "rebase", "--to", "v1.1.0", "--json", "--body", "build/body.md", "--html", "page.html"
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["mergeable_unattended"], data["reasons"]) == (True, [])
    assert (data["branch"], data["state"]) == ("bot/rebase", "created")
    assert data["files"] == {"0001-table.patch": True}
    assert data["proved"] == ["v1.0.0", "v1.1.0", "v1.2.0"]
    assert [p["action"] for p in data["patches"]] == ["refreshed", "kept"]
    assert data["patches"][0]["payload"]["same"] is True
    assert line.git(line.root, "rev-parse", "bot/rebase").strip() == data["commit"]
    assert "Base: v1.1.0" in line.git(line.root, "show", "bot/rebase:patches/0001-table.patch")
    assert "Base: v1.0.0" in (line.root / "patches/0001-table.patch").read_text()
    body = (line.root / "build/body.md").read_text()
    assert "**May be merged unattended**" in body
    assert "| `0001-table` | structural | same | refreshed | `written on v1.1.0 now` |" in body
    assert "Not on record for `v1.1.0`" not in body
    assert "<summary>What changed around 0001-table</summary>" in body
    page = (line.root / "page.html").read_text()
    assert "written on v1.1.0 now" in page
    assert "&#34;dd&#34;: 44" in page
    assert "<script" not in page


def test_with_a_conflict_the_rest_is_published_and_the_conflict_laid_out(line: Line) -> None:
    done = line.run("rebase", "--body", "body.md", "--json")
    assert done.returncode == 1
    assert "the series does not stand on v1.2.0 yet: 0002-run is in conflict" in done.stderr
    assert "python -m tools resolve v1.2.0" in done.stderr
    data = json.loads(done.stdout)
    assert (data["ref"], data["mergeable_unattended"]) == ("v1.2.0", False)
    assert [p["action"] for p in data["patches"]] == ["refreshed", "conflict"]
    assert data["contract"] is None
    assert data["files"] == {"0001-table.patch": True}
    laid = Path(data["resolve"]["path"])
    assert "<<<<<<< v1.2.0" in (laid / "vllm/run.py").read_text()
    body = (line.root / "body.md").read_text()
    assert "## Conflicts" in body
    assert "vllm/run.py:2" in body
    (laid / "vllm/run.py").write_bytes(RUN.replace(b"x + 1", b"compute(x) * 2"))
    again = line.run("rebase")
    assert again.returncode == 1
    assert "has changes of yours" in again.stderr
    assert line.run("refresh", "v1.2.0").returncode == 0
    unclean = line.run("rebase")
    assert unclean.returncode == 2
    assert "is not as HEAD has it" in unclean.stderr
    line.git(line.root, "add", "patches")
    line.git(line.root, "commit", "-qm", "solve it")
    assert line.run("rebase").returncode == 0


def test_a_dry_run_shows_it_all_and_moves_nothing(line: Line) -> None:
    (line.root / "patches/0001-table.patch").open("a").close()
    done = line.run("rebase", "--to", "v1.1.0", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "refreshed" in done.stdout
    assert "no smoke of this very tree is on record" in done.stdout
    assert "may be merged unattended" not in done.stdout
    assert "bot/rebase would change patches/0001-table.patch" in done.stderr
    assert line.git(line.root, "branch", "--list", "bot/*") == ""
    assert line.run("rebase", "--to", "v1.2.0", "--dry-run").returncode == 1
    assert not (line.root / "build").exists()
    assert line.run("rebase", "--dry-run", "--push", "origin").returncode == 2
    assert line.run("rebase", "--pull-request").returncode == 2


def test_nothing_to_write_makes_no_branch(line: Line) -> None:
    done = line.run("rebase", "--to", "v1.0.0", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["commit"], data["state"]) == (None, "nothing to write")
    assert "every patch serves the new base as it is" in done.stderr
    assert line.git(line.root, "branch", "--list", "bot/*") == ""


def test_the_branch_is_pushed_and_a_pull_request_needs_a_token(line: Line) -> None:
    done = line.run("rebase", "--to", "v1.1.0", "--push", "origin")
    assert done.returncode == 0, done.stderr
    assert "bot/rebase: created at origin" in done.stderr
    remote = line.root.parent / "remote.git"
    pushed = line.git(remote, "rev-parse", "bot/rebase")
    assert pushed == line.git(line.root, "rev-parse", "bot/rebase")
    lacking = line.run("rebase", "--to", "v1.1.0", "--push", "origin", "--pull-request")
    assert lacking.returncode == 4
    assert "GITHUB_TOKEN is not set" in lacking.stderr
