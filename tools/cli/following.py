"""Commands that follow upstream: bisect, survival, watch."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.common import (
    DeviceOption,
    DryRunOption,
    JsonOption,
    Project,
    SourceOption,
    note,
    print_json,
    results,
    write_report,
)
from tools.errors import CheckFailed, EnvironmentLacks, Unavailable
from tools.maintain import releases_since
from tools.maintain.bisect import bisect
from tools.maintain.line import obtain_offered, project_line
from tools.maintain.matrix import read_expected
from tools.maintain.notify import Channel, channels
from tools.maintain.questions import contract_question, outcome_question
from tools.maintain.survival import survive
from tools.maintain.watch import Plan, due_refs, inputs_digest, wanted_refs, watch
from tools.maintain.watched import Record, Stage
from tools.report.bisect import bisection_data, bisection_text
from tools.report.survival import survival_data, survival_page, survival_text
from tools.report.watch import due_text, watch_data, watch_notice, watch_text
from tools.smoke.verified import WATCHED


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(name="bisect")(bisect_command)
    app.command(name="watch")(watch_command)
    app.command()(survival)


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
        question = contract_question(
            project.carrier, project.settings.cache, contract, patch=patch, stock=stock
        )
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


def watch_command(
    since: Annotated[
        str,
        typer.Option("--since", metavar="REF", help="The oldest release; default-ref without."),
    ] = "",
    to: Annotated[str, typer.Option("--to", metavar="REF", help="The newest release.")] = "",
    branch: Annotated[
        list[str] | None, typer.Option("--branch", metavar="NAME", help="Follow this branch too.")
    ] = None,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="Follow release candidates too.")
    ] = False,
    until: Annotated[
        Stage, typer.Option("--until", help="How far to take each ref.")
    ] = Stage.SMOKE,
    smoke_unchanged: Annotated[
        bool,
        typer.Option(
            "--smoke-unchanged",
            help="Run the engine also where nothing changed within a minor release.",
        ),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="What is known; build/watch.json without."),
    ] = None,
    source: SourceOption = "auto",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Take each upstream ref that is new through carry, contract, build and smoke.

    What was done is kept in the state and not done again. The exit code is 1 as long as a ref
    needs a person, else 4 where this machine lacks something for a stage. With
    VLLM_EXAONE_WEBHOOK, or GITHUB_TOKEN and GITHUB_REPOSITORY, people are told.
    """
    project = Project(source)
    file = state or project.settings.root / "build" / "watch.json"
    oldest = project.refs([since] if since else None)[0]
    newest = project.refs([to])[0] if to else ""
    rows = wanted_refs(
        project.store, source, oldest, newest, branches=branch or [], candidates=candidates
    )
    expected = read_expected(project.settings.root / "patches" / "expected.toml")
    inputs = inputs_digest(project.carrier, expected)
    plan = Plan(rows, until, inputs, expected, smoke_unchanged)
    if dry_run:
        due = due_refs(file, plan)
        if as_json:
            print_json([row.ref.name for row in due])
        else:
            results.print(due_text(due))
        return

    def tell(channel: Channel, record: Record) -> None:
        channel.send(watch_notice(record))

    done = watch(
        file,
        plan,
        partial(obtain_offered, project.store, notify=note),
        project_line(project.carrier, project.settings, device, note, file.with_name(WATCHED.name)),
        tell={channel.name: partial(tell, channel) for channel in channels(os.environ)},
        notify=note,
    )
    if as_json:
        print_json(watch_data(done))
    else:
        results.print(watch_text(done))
    if done.standing:
        first = done.standing[0]
        raise CheckFailed(
            f"{len(done.standing)} refs need a person, {first.ref} first: {first.needs[0].text}",
            first.needs[0].advice,
        )
    if done.untold:
        raise Unavailable(f"{done.untold[0].ref} could not be told", "the next watch tries again")
    if done.lacking:
        record, stage = done.lacking[0]
        held = record.stages[stage]
        raise EnvironmentLacks(
            f"{len(done.lacking)} stages could not be done here, {record.ref} {stage} first: "
            f"{held.summary}",
            held.remedy,
        )


def survival(
    since: Annotated[
        str, typer.Option("--since", metavar="REF", help="The oldest release to look at.")
    ] = "v0.10.0",
    oldest: Annotated[
        str,
        typer.Option("--oldest", metavar="REF", help="The oldest supported; oldest-ref without."),
    ] = "",
    source: SourceOption = "auto",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how long each patch lives, whether its fields are true, and which may go."""
    project = Project(source)
    first, supported = project.refs([since, oldest or project.settings.oldest_ref])
    upstreams = [project.obtain(ref) for ref in releases_since(project.store, first)]
    found = survive(project.carrier, upstreams, supported)
    if html:
        write_report(html, survival_page(found))
    if as_json:
        print_json(survival_data(found))
    else:
        results.print(survival_text(found))
    if found.untrue:
        one = found.untrue[0]
        raise CheckFailed(
            f"{len(found.untrue)} fields are not true: {one.file}: {one.field} {one.text}",
            f"correct it in patches/{one.file}",
        )
