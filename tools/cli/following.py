"""Commands that follow upstream: bisect, survival, watch."""

from typing import Annotated

import typer

from tools.cli.common import JsonOption, Project, SourceOption, note, print_json, results
from tools.maintain.bisect import bisect
from tools.maintain.questions import contract_question, outcome_question
from tools.report.bisect import bisection_data, bisection_text


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(name="bisect")(bisect_command)


def bisect_command(
    good: Annotated[
        str, typer.Option("--good", metavar="REF", help="An older ref, where all is well.")
    ],
    bad: Annotated[str, typer.Option("--bad", metavar="REF", help="A newer one, where it is not.")],
    patch: Annotated[
        str, typer.Argument(metavar="[PATCH]", help="A patch, as patches/series names it.")
    ] = "",
    outcome: Annotated[
        str,
        typer.Option("--outcome", help="The outcome that is bad; the bad end's own without."),
    ] = "",
    contract: Annotated[
        str,
        typer.Option(
            "--contract",
            metavar="CODE[:TEXT]",
            help="Ask for a contract finding instead, on trees without PATCH where one is named.",
        ),
    ] = "",
    stock: Annotated[
        bool, typer.Option("--stock", help="Ask for the finding in upstream's own tree.")
    ] = False,
    every: Annotated[
        bool | None,
        typer.Option(
            "--every/--halves", help="Ask at every release, as for outcomes, or in halves."
        ),
    ] = None,
    source: SourceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Name the upstream release, and with a git source the commit, that changed an answer.

    The series is carried in memory: nothing is checked out, built or kept.
    """
    project = Project(source)
    ends = tuple(project.refs([good, bad]))
    if contract:
        question = contract_question(project.carrier, contract, patch=patch, stock=stock)
    else:
        question = outcome_question(
            project.carrier, patch, outcome, lambda: project.obtain(ends[1])
        )
    done = bisect(
        project.store,
        (ends[0], ends[1]),
        question,
        source=source,
        every=not contract if every is None else every,
        notify=note,
    )
    if as_json:
        print_json(bisection_data(done))
    else:
        results.print(bisection_text(done))
