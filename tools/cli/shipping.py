"""Commands about wheels: build, inspect."""

from dataclasses import replace
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
    print_json,
    results,
)
from tools.errors import CheckFailed
from tools.maintain.ship import WheelRequest, build_wheel
from tools.report.wheels import build_data, build_table, inspection_data, inspection_table
from tools.wheel.inspect import inspect as inspect_wheel
from tools.wheel.metadata import Amendments

BuildNumber = Annotated[
    int | None, typer.Option("--build-number", min=1, help="The N of +exaone.N; from pyproject.")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(build)
    app.command()(inspect)


def wheel_request(
    project: Project, ref: str, output: Path | None, device: str, build_number: int | None
) -> WheelRequest:
    """Return the request for the wheel of ``ref``; without a number, pyproject's counts."""
    directory = project.directory(ref, output) / "dist"
    return WheelRequest(device, directory, build_number or project.settings.build_number)


def build(
    refs: Refs = None,
    source: SourceOption = "auto",
    device: DeviceOption = "auto",
    output: OutputOption = None,
    build_number: BuildNumber = None,
    wheel: Annotated[
        Path | None, typer.Option("--wheel", metavar="FILE", help="Upstream's wheel to repack.")
    ] = None,
    relax_local: Annotated[
        bool, typer.Option("--relax-local", help="Turn torch==X+cpu into torch==X in METADATA.")
    ] = False,
    delta: Annotated[bool, typer.Option("--delta", help="Write the delta wheel as well.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Build the wheel of each REF from upstream's wheel of the same release: build/REF/dist."""
    project = Project(source)

    def one(ref: str) -> dict[str, Any]:
        carried = project.carrier.carry(project.obtain(ref))
        request = replace(
            wheel_request(project, ref, output, device, build_number),
            wheel=wheel,
            amendments=Amendments(relax_local=relax_local),
            delta=delta,
        )
        done = build_wheel(project.store.git, carried, request, project.settings.cache, note)
        if not as_json:
            results.print(build_table(done))
        note(f"{done.wheel}: built")
        return build_data(done)

    each(project.refs(refs), one, as_json=as_json)


def inspect(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="A wheel that build made.")],
    as_json: JsonOption = False,
) -> None:
    """Show what a wheel was made of, and whether its bytes bear that out."""
    found = inspect_wheel(wheel)
    if as_json:
        print_json(inspection_data(found))
    else:
        results.print(inspection_table(found))
    if found.faults:
        raise CheckFailed(f"{wheel.name}: {found.faults[0]}", "do not use this wheel")
