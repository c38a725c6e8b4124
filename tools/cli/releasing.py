"""The command that releases: branch, tag, wheels and notes."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from tools.cli.common import (
    DryRunOption,
    JsonOption,
    OutputOption,
    Project,
    Refs,
    SourceOption,
    each,
    note,
    print_lines,
    results,
)
from tools.cli.shipping import RelaxLocal, UpstreamWheel, wheel_request
from tools.errors import BadInput
from tools.maintain.release import ReleaseRequest
from tools.maintain.release import release as make_release
from tools.report.releases import release_data, release_table
from tools.wheel.build import resolve_device


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(release)


def release(
    refs: Refs = None,
    source: SourceOption = "auto",
    to: Annotated[
        str, typer.Option("--to", metavar="URL|PATH", help="The repository; release-to without.")
    ] = "",
    device: Annotated[
        list[str] | None,
        typer.Option("--device", metavar="auto|cpu|cuda", help="May stand more than once."),
    ] = None,
    output: OutputOption = None,
    wheel: UpstreamWheel = None,
    relax_local: RelaxLocal = False,
    unverified: Annotated[
        bool,
        typer.Option("--unverified", help="Also what no smoke has proved; the tag will say so."),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Take a new number though nothing changed.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Push release/REF and REF+exaone.N, and write what belongs to it: build/REF/release/TAG."""
    project = Project(source)
    settings = project.settings
    target = to or settings.release_to
    if not target:
        raise BadInput(
            "no repository to release into",
            "name it with --to, or as release-to in [tool.vllm-exaone] of pyproject.toml",
        )
    devices = tuple(dict.fromkeys(map(resolve_device, device or ["auto"])))
    if wheel is not None and len(devices) > 1:
        raise BadInput("--wheel is for one device", "name one --device with it")

    def one(ref: str) -> dict[str, Any]:
        wanted = wheel_request(project, ref, output, devices[0], None)
        request = ReleaseRequest(
            to=target,
            devices=devices,
            out_dir=project.directory(ref, output) / "release",
            wheel=wheel,
            amendments=replace(wanted.amendments, relax_local=relax_local),
            unverified=unverified,
            again=again,
            dry_run=dry_run,
            signing_key=settings.signing_key,
            sign_sums=settings.sign_sums,
        )
        done = make_release(project.store, project.carrier, project.obtain(ref), request, note)
        if not as_json:
            results.print(release_table(done))
            print_lines(done.message.splitlines())
        note(f"{done.record.tag} in {done.shown}: {done.state}")
        return release_data(done)

    each(project.refs(refs), one, as_json=as_json)
