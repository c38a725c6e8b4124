"""What the README says of the project is what the project has."""

import re
from pathlib import Path

import typer
from packaging.version import Version

from tools.cli import make_app
from tools.report.verified import verified_markdown
from tools.smoke.verified import FILE, CellName, CellState, Standing, load
from tools.smoke.verify import Verification

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_table_is_what_the_record_holds() -> None:
    cells = load(ROOT / FILE).cells

    def usual(kind: str) -> list[Verification]:
        releases = sorted({name.release for name in cells}, key=lambda r: Version(r[1:]))
        names = [CellName(release, "cpu", kind, "release") for release in releases]
        current = Standing(CellState.CURRENT)
        return [Verification(name, current, cells[name]) for name in names if name in cells]

    assert verified_markdown(usual("stock"), usual("carried")) in README


def test_every_command_it_names_is_one() -> None:
    section = README.partition("## What next")[2]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ")]
    called = {word for row in rows for word in re.findall(r"`([a-z][a-z-]+)[ `]", row)}
    named = called - {"python", "checkpoints", "served"}
    group = typer.main.get_command(make_app())
    assert len(named) > 15
    assert named <= set(group.commands)  # type: ignore[attr-defined]
