"""Commands that move the series on, and that spread work over machines: rebase, ci-matrix."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tools.cli.common import (
    DryRunOption,
    JsonOption,
    OutputOption,
    Project,
    Refs,
    SourceOption,
    note,
    print_json,
    results,
    write_report,
)
from tools.errors import BadInput, CheckFailed
from tools.maintain import releases_since
from tools.maintain.branch import BRANCH, Repository, push, shown_remote
from tools.maintain.jobs import Device, jobs
from tools.maintain.notify import Notice, github
from tools.maintain.proposal import Proposal, Request, propose, supported_releases
from tools.report.jobs import github_matrix, gitlab_pipeline
from tools.report.rebase import rebase_data, rebase_markdown, rebase_page, rebase_text
from tools.upstream.index import Index


class Host(StrEnum):
    """Who spreads the jobs."""

    GITHUB = "github"
    GITLAB = "gitlab"


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(rebase)
    app.command(name="ci-matrix")(ci_matrix)


def rebase(
    to: Annotated[
        str, typer.Option("--to", metavar="REF", help="The new base; the newest release without.")
    ] = "",
    source: SourceOption = "auto",
    every: Annotated[
        bool, typer.Option("--refresh-all", help="Also write anew what text alone carries.")
    ] = False,
    body: Annotated[
        Path | None, typer.Option("--body", metavar="FILE", help="Also write the text of a PR.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page.")
    ] = None,
    push_to: Annotated[
        str, typer.Option("--push", metavar="REMOTE", help=f"Push {BRANCH} there.")
    ] = "",
    push_option: Annotated[
        list[str] | None,
        typer.Option("--push-option", metavar="TEXT", help="Passed to the remote's server."),
    ] = None,
    pull_request: Annotated[
        bool,
        typer.Option("--pull-request", help="Open one on GitHub, or bring it up to date."),
    ] = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Move the series onto a new base: one commit on the branch bot/rebase.

    Releases from oldest-ref on get the same trees as before. The work tree is left as it is. Exit
    code 0 says that the series stands on the new base, 1 that conflicts or contract errors are
    left; whether a person must look at all is in the JSON, mergeable_unattended.
    """
    if (pull_request and not push_to) or (dry_run and push_to):
        raise BadInput("a pull request needs --push, and --dry-run pushes nothing", "choose one")
    project = Project(source)
    tags = supported_releases(project.store, project.settings.oldest_ref)
    (ref,) = project.refs([to] if to else tags[-1:])
    proposal = propose(
        Request(
            store=project.store,
            carrier=project.carrier,
            root=project.settings.root,
            upstream=project.obtain(ref),
            supported=tuple(Project().obtain(tag) for tag in tags),
            directory=project.directory(ref, output),
            every=every,
            dry_run=dry_run,
        ),
        note,
    )
    text = rebase_markdown(proposal)
    for file, content in ((body, text), (html, rebase_page(proposal) if html else "")):
        if file:
            write_report(file, content)
    if as_json:
        print_json(rebase_data(proposal))
    else:
        results.print(rebase_text(proposal))
    _tell(proposal, dry_run=dry_run)
    if proposal.published and push_to:
        state = push(Repository.at(project.settings.root), push_to, tuple(push_option or ()))
        note(f"{BRANCH}: {state} at {shown_remote(push_to)}")
        if pull_request:
            notice = Notice("rebase", f"Rebase the series onto {ref}", text)
            sent = github(os.environ).pull_request(notice, BRANCH)
            note(f"{sent.where}: {sent.told}")
    if proposal.failed:
        raise CheckFailed(
            f"the series does not stand on {ref} yet: {proposal.reasons[0]}",
            f"solve conflicts with: python -m tools resolve {ref}"
            if proposal.rebased.conflicts
            else f"see: python -m tools contract {ref}",
        )


def _tell(proposal: Proposal, *, dry_run: bool) -> None:
    published = proposal.published
    if published is None:
        note("nothing to write: every patch serves the new base as it is")
    elif dry_run:
        names = ", ".join(f"patches/{name}" for name in proposal.rebased.files)
        note(f"{BRANCH} would change {names}")
    else:
        note(f"{BRANCH}: {published.state} at {published.commit[:12]}")
    if proposal.resolving:
        note(f"the first conflict is laid out in {proposal.resolving.checkout.path}")
    if proposal.unlaid:
        note(f"the first conflict is not laid out: {proposal.unlaid}")


def ci_matrix(
    refs: Refs = None,
    newest: Annotated[
        int, typer.Option("--newest", min=0, metavar="N", help="Only the newest N; 0 for all.")
    ] = 0,
    since: Annotated[
        str, typer.Option("--since", metavar="REF", help="The oldest release; oldest-ref without.")
    ] = "",
    device: Annotated[
        Device, typer.Option("--device", help="The engine; auto runs on the CPU what can.")
    ] = Device.AUTO,
    runner: Annotated[
        list[str] | None,
        typer.Option("--runner", metavar="LABEL", help="A label of the machines to use."),
    ] = None,
    form: Annotated[
        Host, typer.Option("--format", help="A job matrix for Actions, or a child pipeline.")
    ] = Host.GITHUB,
) -> None:
    """Print one job a release, for a host that spreads them over machines like this one.

    Without REFs: every release that has an sdist.
    """
    project = Project()
    oldest = project.refs([since or project.settings.oldest_ref])[0]
    wanted = project.refs(refs) if refs else releases_since(project.store, oldest)
    index = Index.configured(project.settings.cache, note)
    # A slice from -0 is all of it.
    found = jobs(wanted[-newest:], index, device, runner or ())
    render = github_matrix if form is Host.GITHUB else gitlab_pipeline
    sys.stdout.write(render(found))
