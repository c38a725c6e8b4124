"""Ours beside GNU patch, ``git apply -3`` and ``git cherry-pick``, cell by cell, in one run.

Each tool gets, at each release, each hook patch of the series: as a patch with three lines of
context exported on the base that it was written on (the nearest variant first, then the others,
as ours does), to be brought onto the release with the earlier patches that ours carries there.
What a tool says it carried is judged by ``rivals_judge``. The table goes to ``RIVALS.md``.
"""

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.benchmarks.rivals_judge import Pair, Verdict, judge
from tools.carry import Carrier, Outcome, check_out
from tools.carry.written import Written
from tools.cli.common import Project
from tools.git import Entry, Git
from tools.maintain import releases_since
from tools.maintain.matrix import run_matrix
from tools.series import Series
from tools.upstream import Upstream

pytestmark = pytest.mark.network

TABLE = Path(__file__).parent / "RIVALS.md"
HOOKS = re.compile(r"00[01]\d-")
WHO = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@invalid", "GIT_COMMITTER_NAME": "x",
       "GIT_COMMITTER_EMAIL": "x@invalid"}  # fmt: skip
RANGES = (
    ("v0.10", "v0.10.0", "v0.10.2"),
    ("v0.11 to v0.13", "v0.11.0", "v0.13.0"),
    ("v0.14 to v0.19", "v0.14.0", "v0.19.1"),
    ("v0.20 to v0.33", "v0.20.0", "v0.33.0"),
)


_ABOUT = (
    "Written by `tests/benchmarks/test_rivals.py`; do not edit. Each cell is one hook patch at one "
    "of upstream's releases with an sdist. A tool gets the patch with three lines of context, in "
    "the nearest variant and then in the others, and the release with the earlier patches on it. "
    "What it says it carried is checked on Python's own `ast`."
)


@dataclass(frozen=True)
class Cell:
    """One patch at one release: the tree to bring it to, and how it was written."""

    ref: str
    patch: str
    head: str
    variants: tuple[Written, ...]
    outcome: Outcome
    used: Written
    ours: str

    @property
    def needed(self) -> bool:
        return self.outcome is not Outcome.NOT_NEEDED


class Ring:
    """A repository that borrows the store's objects, where the tools do their work."""

    def __init__(self, store: Git, directory: Path) -> None:
        self.directory = directory
        self.git = Git.create(directory / "ring.git")
        info = self.git.directory / "objects/info"
        (info / "alternates").write_bytes(os.fsencode(store.directory / "objects") + b"\n")
        self.work = directory / "work"
        self.work.mkdir()
        self.patches: dict[str, bytes] = {}

    def diff(self, written: Written) -> bytes:
        if written.patched not in self.patches:
            self.patches[written.patched] = self.git.run(
                "diff-tree", "-p", "-M", "--full-index", "--binary", "-U3",
                written.base, written.patched, "--",
            ).stdout  # fmt: skip
        return self.patches[written.patched]

    def pairs(self, old: str, new: str) -> list[Pair]:
        def text(entry: Entry | None) -> bytes:
            return self.git.read_blob(entry.oid) if entry else b""

        return [
            (os.fsdecode(change.path), text(change.old), text(change.new))
            for change in self.git.changes(old, new)
        ]


Tool = Callable[[Ring, Cell, Written], str | None]


def gnu_patch(*options: str) -> Tool:
    def run(ring: Ring, cell: Cell, written: Written) -> str | None:
        work = ring.directory / "files"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        paths = {change.path for change in written.changes}
        for path in paths:
            held = ring.git.entry(cell.head, path)
            if held:
                file = work / os.fsdecode(path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(ring.git.read_blob(held.oid))
        done = subprocess.run(
            ["patch", "-p1", "--batch", "--forward", "--no-backup-if-mismatch", *options],
            cwd=work,
            input=ring.diff(written),
            capture_output=True,
            check=False,
        )
        if done.returncode:
            return None
        edits: dict[bytes, Entry | None] = {}
        for path in paths:
            file = work / os.fsdecode(path)
            held = ring.git.entry(cell.head, path)
            mode = held.mode if held else "100644"
            edits[path] = (
                Entry(path, mode, ring.git.write_blob(file.read_bytes())) if file.exists() else None
            )
        return ring.git.edit_tree(cell.head, edits)

    return run


def git_apply(ring: Ring, cell: Cell, written: Written) -> str | None:
    index = {"GIT_INDEX_FILE": str(ring.directory / "index")}
    ring.git.run("read-tree", cell.head, environment=index)
    done = ring.git.run(
        "apply", "-3", "--cached", "-", stdin=ring.diff(written), environment=index,
        ok=tuple(range(256)),
    )  # fmt: skip
    if done.status:
        return None
    return ring.git.run("write-tree", environment=index).stdout.decode().strip()


def cherry_pick(ring: Ring, cell: Cell, written: Written) -> str | None:
    """In a worktree that holds the files of the patch alone, which git treats as a whole one."""
    at = {"GIT_WORK_TREE": str(ring.work)} | WHO
    git = ring.git
    info = git.directory / "info"
    info.mkdir(exist_ok=True)
    paths = (os.fsdecode(change.path) for change in written.changes)
    (info / "sparse-checkout").write_text("".join(f"/{path}\n" for path in paths))
    head = git.run("commit-tree", cell.head, "-m", "head", environment=WHO).stdout.decode().strip()
    git.update_ref("refs/heads/ring", head)
    git.run("symbolic-ref", "HEAD", "refs/heads/ring")
    sparse = ("-c", "core.bare=false", "-c", "core.sparseCheckout=true")
    git.run(*sparse, "read-tree", "--reset", "-u", "HEAD", environment=at)
    done = git.run(*sparse, "cherry-pick", written.patched, environment=at, ok=tuple(range(256)))
    if done.status:
        unmerged = git.run("ls-files", "--unmerged", environment=at).stdout
        git.run(*sparse, "cherry-pick", "--quit", environment=at, ok=tuple(range(256)))
        return None if unmerged or b"empty" not in done.stdout + done.stderr else cell.head
    return git.tree_of("HEAD")


def ours(ring: Ring, cell: Cell, written: Written) -> str | None:
    return cell.ours if written == cell.used and cell.outcome is not Outcome.CONFLICT else None


TOOLS: dict[str, Tool] = {
    "GNU patch": gnu_patch(),
    "GNU patch -F0 (as quilt is best run)": gnu_patch("-F0"),
    "git apply -3": git_apply,
    "git cherry-pick": cherry_pick,
    "ours": ours,
}


@pytest.fixture
def project(real_releases: Path) -> Iterator[Project]:
    opened = Project()
    yield opened
    opened.store.close()


class Table:
    """What each tool made of each cell."""

    def __init__(self) -> None:
        self.needed: dict[tuple[str, str], Counter[Verdict]] = {}
        self.needless: Counter[str] = Counter()
        self.cells: Counter[str] = Counter()
        self.failures: list[str] = []

    def add(self, tool: str, cell: Cell, verdict: Verdict, *, changed: bool) -> None:
        if not cell.needed:
            self.needless[tool] += changed
            self.cells["not needed"] += tool == "ours"
            return
        rows = self.needed.setdefault((tool, _range(cell.ref)), Counter())
        rows[verdict] += 1
        self.cells[_range(cell.ref)] += tool == "ours"
        if tool == "ours" and verdict is not Verdict.RIGHT:
            self.failures.append(f"{cell.ref} {cell.patch}: {verdict}")

    def total(self, tool: str) -> Counter[Verdict]:
        return sum((c for (name, _), c in self.needed.items() if name == tool), Counter())

    def render(self, tools: Sequence[str], versions: str) -> str:
        wrong = (Verdict.WRONG_PLACE, Verdict.DOUBLED, Verdict.BROKEN, Verdict.INCOMPLETE)
        wanted = sum(n for name, n in self.cells.items() if name != "not needed")
        lines = [
            "# The hook series on every release, by tool",
            "",
            _ABOUT,
            "",
            f"{wanted} cells need the patch, {self.cells['not needed']} do not. {versions}",
            "",
            "| tool | right | " + " | ".join(wrong) + " | refused | changed where not needed |",
            "|---|---" + "|---" * (len(wrong) + 2) + "|",
        ]
        for tool in tools:
            total = self.total(tool)
            counts = [total[Verdict.RIGHT], *(total[v] for v in wrong), total[Verdict.REFUSED]]
            shown = " | ".join(map(str, counts))
            lines.append(f"| {tool} | {shown} | {self.needless[tool]} |")
        lines += ["", "Right, by release:", ""]
        names = [name for name, _first, _last in RANGES]
        lines.append("| tool | " + " | ".join(names) + " |")
        lines.append("|---" * (len(names) + 1) + "|")
        for tool in tools:
            counts = [
                f"{self.needed.get((tool, name), Counter())[Verdict.RIGHT]} of {self.cells[name]}"
                for name in names
            ]
            lines.append(f"| {tool} | " + " | ".join(counts) + " |")
        return "\n".join(lines) + "\n"


def _range(ref: str) -> str:
    def place(tag: str) -> tuple[int, ...]:
        return tuple(map(int, tag.removeprefix("v").split(".")))

    return next(name for name, first, last in RANGES if place(first) <= place(ref) <= place(last))


def _cells(carrier: Carrier, upstream: Upstream) -> Iterator[Cell]:
    carried = carrier.carry(upstream)
    git = carrier.git
    head = upstream.tree
    for step, outcome in zip(carrier.series.steps, carried.outcomes, strict=True):
        after = git.tree_of(outcome.commit) if outcome.commit else head
        with git.quarantined() as inner:
            nearest = step.nearest(upstream.ref.name)
            variants = tuple(carrier.written(inner, patch) for patch in nearest)
        used = variants[[patch.file for patch in nearest].index(outcome.file)]
        yield Cell(upstream.ref.name, step.name, head, variants, outcome.outcome, used, after)
        head = after


def _meet(ring: Ring, cell: Cell, tool: Tool) -> tuple[Verdict, bool]:
    """Let a tool try each variant until it says that it is done; return the verdict on that."""
    for written in cell.variants:
        made = tool(ring, cell, written)
        if made is None:
            continue
        if made == cell.head:
            done = cell.outcome in (Outcome.UPSTREAMED, Outcome.NOT_NEEDED)
            return (Verdict.RIGHT if done else Verdict.INCOMPLETE), False
        pairs = ring.pairs(written.base, written.patched)
        return judge(pairs, ring.pairs(cell.head, made)), True
    return Verdict.REFUSED, False


def _versions() -> str:
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    patch = subprocess.run(["patch", "--version"], capture_output=True, text=True, check=True)
    return f"{git.strip()}, {patch.stdout.splitlines()[0]}."


@pytest.mark.benchmark(group="rivals: the hook series on every release")
def test_the_table(benchmark, project: Project, tmp_path: Path) -> None:
    if shutil.which("patch") is None:
        pytest.skip("patch is missing: apt-get install patch")
    hooks = Series(tuple(s for s in project.series.steps if HOOKS.match(s.name)))
    carrier = Carrier(
        project.store.git, hooks, project.overlay, lambda ref: project.obtain(ref).commit
    )
    table = Table()

    def run() -> None:
        for ref in releases_since(project.store, "v0.10.0"):
            ring_path = tmp_path / ref
            ring_path.mkdir()
            ring = Ring(project.store.git, ring_path)
            for cell in _cells(carrier, project.obtain(ref)):
                for name, tool in TOOLS.items():
                    verdict, changed = _meet(ring, cell, tool)
                    table.add(name, cell, verdict, changed=changed)
            ring.git.close()
            shutil.rmtree(ring_path)

    benchmark.pedantic(run, rounds=1)
    text = table.render(list(TOOLS), _versions())
    aside = TABLE.with_suffix(".new")
    aside.write_text(text, "utf-8")
    aside.replace(TABLE)
    mine = table.total("ours")
    expected = sum(mine.values()) - mine[Verdict.REFUSED]
    assert mine[Verdict.RIGHT] == expected, table.failures
    for tool in TOOLS:
        assert tool == "ours" or table.total(tool)[Verdict.RIGHT] < mine[Verdict.RIGHT]


@pytest.mark.benchmark(group="one carry of the series, onto v0.19.1")
def test_carry(benchmark, project: Project) -> None:
    upstream = project.obtain("v0.19.1")
    project.carrier.carry(upstream)

    def carry() -> None:
        project.carrier.carry(upstream, keep=False)

    benchmark.pedantic(carry, rounds=5, warmup_rounds=1)


@pytest.mark.benchmark(group="one carry of the series, onto v0.19.1")
def test_cherry_pick_in_a_worktree(benchmark, project: Project, tmp_path: Path, user_git) -> None:
    """The same commits, picked onto the release in a worktree that is there already."""
    carried = project.carrier.carry(project.obtain("v0.19.1"))
    commits = [outcome.commit for outcome in carried.outcomes if outcome.commit]
    done = check_out(project.store.git, carried, tmp_path / "src")
    user_git(done.path, "config", "user.name", "x")

    def setup() -> None:
        user_git(done.path, "reset", "-q", "--hard", carried.upstream.commit)

    def pick() -> None:
        user_git(done.path, "cherry-pick", *commits)

    benchmark.pedantic(pick, setup=setup, rounds=5)
    assert user_git(done.path, "rev-parse", "HEAD^{tree}").strip()


@pytest.mark.benchmark(group="the matrix over every release, warm")
@pytest.mark.parametrize("jobs", [1, 2])
def test_matrix(benchmark, project: Project, jobs: int) -> None:
    upstreams = [project.obtain(ref) for ref in releases_since(project.store, "v0.10.0")]
    expected = project.settings.root / "patches/expected.toml"
    run_matrix(_open, upstreams, expected, jobs=1)

    def run() -> None:
        run_matrix(_open, upstreams, expected, jobs=jobs)

    benchmark.pedantic(run, rounds=3)


def _open() -> Carrier:
    return Project().carrier
