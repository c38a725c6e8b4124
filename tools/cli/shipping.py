"""Commands about wheels: build, inspect."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.cli.common import (
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
from tools.maintain.rebuild import Rebuilt, rebuild, recorded_source
from tools.maintain.ship import WheelRequest, build_wheel, check_image, write_recipes
from tools.maintain.ship_source import SourceRequest, build_from_source
from tools.report.wheels import (
    build_data,
    build_table,
    inspection_data,
    inspection_table,
    source_data,
    source_table,
)
from tools.wheel.inspect import inspect as inspect_wheel

BuildNumber = Annotated[
    int | None, typer.Option("--build-number", min=1, help="The N of +exaone.N; from pyproject.")
]
UpstreamWheel = Annotated[
    Path | None, typer.Option("--wheel", metavar="FILE", help="Upstream's wheel to repack.")
]
RelaxLocal = Annotated[
    bool, typer.Option("--relax-local", help="Turn torch==X+cpu into torch==X in METADATA.")
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
    return WheelRequest.of(project.settings, ref, device, directory, build_number)


def build(
    refs: Refs = None,
    source: SourceOption = "auto",
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="auto|cpu|cuda|rocm",
            help="Which of upstream's wheels; rocm from source only.",
        ),
    ] = "auto",
    output: OutputOption = None,
    build_number: BuildNumber = None,
    wheel: UpstreamWheel = None,
    relax_local: RelaxLocal = False,
    delta: Annotated[bool, typer.Option("--delta", help="Write the delta wheel as well.")] = False,
    containerfile: Annotated[
        bool, typer.Option("--containerfile", help="Write a recipe from upstream's image as well.")
    ] = False,
    image: Annotated[
        str, typer.Option("--image", metavar="NAME", help="Another image for it, or a digest.")
    ] = "",
    from_source: Annotated[
        bool, typer.Option("--from-source", help="Run upstream's own build on the carried tree.")
    ] = False,
    sdist: Annotated[
        bool, typer.Option("--sdist", help="From source, and only the source distribution.")
    ] = False,
    precompiled: Annotated[
        Path | None,
        typer.Option("--precompiled", metavar="WHEEL", help="From source, compiled parts of this."),
    ] = None,
    architectures: Annotated[
        str, typer.Option("--arch", metavar="LIST", help="From source: TORCH_CUDA_ARCH_LIST.")
    ] = "",
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="From source: compilers at a time.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Build the wheel of each REF from upstream's wheel of the same release: build/REF/dist."""
    project = Project(source)
    by_source = from_source or sdist or precompiled is not None
    if containerfile and not by_source:
        check_image(device)

    def repacked(ref: str) -> dict[str, Any]:
        carried = project.carrier.carry(project.obtain(ref))
        request = wheel_request(project, ref, output, device, build_number)
        request = replace(
            request,
            wheel=wheel,
            amendments=replace(request.amendments, relax_local=relax_local),
            delta=delta,
        )
        done = build_wheel(project.store.git, carried, request, project.settings.cache, note)
        recipes = write_recipes(ref, request, done, image or None) if containerfile else ()
        if not as_json:
            results.print(build_table(done))
        for path in (done.wheel, *recipes):
            note(f"{path}: built")
        return {**build_data(done), "recipes": [str(path) for path in recipes]}

    def compiled(ref: str) -> dict[str, Any]:
        carried = project.carrier.carry(project.obtain(ref))
        request = SourceRequest(
            device=device,
            directory=project.directory(ref, output),
            build_number=build_number or project.settings.build_number,
            sdist=sdist,
            jobs=jobs,
            architectures=architectures,
            precompiled=precompiled,
        )
        done = build_from_source(project.store.git, carried, request, note)
        if not as_json:
            results.print(source_table(done))
        note(f"{done.path}: built")
        return source_data(done)

    each(project.refs(refs), compiled if by_source else repacked, as_json=as_json)


def inspect(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="A wheel that build made.")],
    again: Annotated[
        bool, typer.Option("--rebuild", help="Build it again from its ref, and compare the bytes.")
    ] = False,
    upstream: UpstreamWheel = None,
    source: SourceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show what a wheel was made of, and whether its bytes bear that out."""
    found = inspect_wheel(wheel)
    made: Rebuilt | None = None
    if again:
        project = Project(recorded_source(found, source))
        (ref,) = project.refs([found.provenance["ref"]])
        carried = project.carrier.carry(project.obtain(ref))
        cache = project.settings.cache
        made = rebuild(project.store.git, carried, found, upstream, cache, note)
    if as_json:
        print_json(inspection_data(found, made))
    else:
        results.print(inspection_table(found, made))
    if found.faults:
        raise CheckFailed(f"{wheel.name}: {found.faults[0]}", "do not use this wheel")
    if made and made.sha256 != found.sha256:
        shown = ", ".join(made.differences[:5]) or "the order or the padding of its members"
        raise CheckFailed(f"{wheel.name} was built again and differs: {shown}")
