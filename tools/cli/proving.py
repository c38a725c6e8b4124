"""Commands that prove a wheel: smoke."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tools.cli.common import (
    DeviceOption,
    JsonOption,
    OutputOption,
    Project,
    Refs,
    SourceOption,
    each,
    note,
    results,
)
from tools.errors import CheckFailed
from tools.maintain.ship import build_wheel, built_wheel
from tools.report import smoke_table
from tools.smoke.results import SmokeReport
from tools.smoke.smoke import smoke
from tools.wheel.build import resolve_device


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(name="smoke")(smoke_command)


def smoke_command(
    refs: Refs = None,
    source: SourceOption = "auto",
    device: DeviceOption = "auto",
    output: OutputOption = None,
    stock: Annotated[
        bool, typer.Option("--stock", help="Upstream's wheel, without our changes.")
    ] = False,
    transformers: Annotated[
        str,
        typer.Option(
            "--transformers",
            metavar="release|newest|VERSION",
            help="As of the release's time, the newest admitted, or one version.",
        ),
    ] = "release",
    as_json: JsonOption = False,
) -> None:
    """Run the model of each REF's wheel on the real engine and compare with transformers."""
    project = Project(source)
    reports: list[SmokeReport] = []

    def wheel_of(ref: str) -> Path:
        carried = project.carrier.carry(project.obtain(ref))
        request = project.wheel_request(ref, output, device, None)
        held = built_wheel(carried, request)
        if held is not None:
            return held
        return build_wheel(project.store.git, carried, request, project.settings.cache, note).wheel

    def one(ref: str) -> dict[str, Any]:
        report = smoke(
            ref,
            wheel=None if stock else wheel_of(ref),
            device=resolve_device(device),
            root=project.settings.root,
            cache=project.settings.cache,
            transformers=transformers,
            progress=note,
        )
        reports.append(report)
        if not as_json:
            results.print(smoke_table(report))
        return report.to_json()

    each(project.refs(refs), one, as_json=as_json)
    failed = [report for report in reports if not report.passed]
    if failed:
        raise CheckFailed(
            "; ".join(report.summary for report in failed),
            "the table above says with what; stock wheels are expected to fail" if stock else "",
        )
