"""Commands about the store and this machine: tags, store gc, doctor."""

from dataclasses import asdict

import typer

from tools.cli.common import JsonOption, Project, note, print_json, print_lines, results
from tools.errors import EnvironmentLacks
from tools.maintain.doctor import examine
from tools.report.console import tags_table
from tools.report.data import tags_data
from tools.report.doctor import doctor_table
from tools.upstream import list_releases


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(tags)
    app.command()(doctor)
    store = typer.Typer(help="Care for the store in the cache.", no_args_is_help=True)
    store.command()(gc)
    app.add_typer(store, name="store")


def tags(as_json: JsonOption = False) -> None:
    """List upstream's releases, and which of them are in the store."""
    rows = list_releases(Project().store)
    if as_json:
        print_json(tags_data(rows))
    else:
        results.print(tags_table(rows))


def gc() -> None:
    """Check, pack and prune the store, and remove what killed runs left in the cache."""
    project = Project()
    forgotten = project.carrier.expire()
    done = project.store.gc(note)
    if forgotten:
        print_lines([f"forgot {forgotten} written patches that the series no longer has"])
    print_lines(f"removed {name}" for name in done.removed)
    print_lines([f"{done.before >> 20} MiB before, {done.after >> 20} MiB after"])


def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine has of what the tools need, and how to get what it lacks."""
    found = examine(Project().settings.cache)
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        results.print(doctor_table(found))
    lacking = [finding for finding in found if finding.lacking]
    if lacking:
        names = ", ".join(finding.name for finding in lacking)
        raise EnvironmentLacks(f"this machine lacks: {names}", lacking[0].advice)
