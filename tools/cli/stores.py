"""Commands about what is in the store: tags, store."""

import typer

from tools.cli.common import JsonOption, Project, print_json, results
from tools.report import tags_data, tags_table
from tools.upstream import list_releases


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(tags)


def tags(as_json: JsonOption = False) -> None:
    """List upstream's releases, and which of them are in the store."""
    rows = list_releases(Project().store)
    if as_json:
        print_json(tags_data(rows))
    else:
        results.print(tags_table(rows))
