"""The command that brings the record of what was proved up to date."""

from typing import Annotated

import typer

from tools.cli.common import (
    DeviceOption,
    DryRunOption,
    JsonOption,
    Project,
    Refs,
    SourceOption,
    StockOption,
    TransformersOption,
    note,
    print_json,
    print_lines,
    results,
)
from tools.cli.shipping import wheel_request
from tools.errors import CheckFailed
from tools.maintain.ship import build_wheel, built_wheel
from tools.report.verified import verified_data, verified_markdown, verified_table
from tools.smoke.run_sets import RUN_SETS
from tools.smoke.verify import Asked, Built, Verification, engine_releases, verify
from tools.upstream.index import Index
from tools.wheel.build import resolve_device


def register(app: typer.Typer) -> None:
    """Add this module's command to ``app``."""
    app.command(name="verify")(verify_command)


def verify_command(
    refs: Refs = None,
    source: SourceOption = "auto",
    device: DeviceOption = "auto",
    stock: StockOption = False,
    transformers: TransformersOption = "release",
    runs: Annotated[
        str, typer.Option("--runs", metavar="|".join(RUN_SETS), help="What to ask.")
    ] = "usual",
    subset: Annotated[
        bool, typer.Option("--subset", help="The releases that are verified on every change.")
    ] = False,
    dry_run: DryRunOption = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print stock beside carried, as the README has it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the smoke of each REF whose recorded result is not current; all releases without REF."""
    project = Project(source)
    settings = project.settings
    device = resolve_device(device)
    if refs:
        releases = project.refs(refs)
    elif subset:
        releases = project.refs(list(settings.verify_on_change))
    else:
        releases = engine_releases(Index.configured(settings.cache, note), device)

    def carried(ref: str) -> Built:
        tree = project.carrier.carry(project.obtain(ref))
        request = wheel_request(project, ref, None, device, None)
        held = built_wheel(tree, request)
        if held is None:
            done = build_wheel(project.store.git, tree, request, settings.cache, note)
            held = done.wheel
        return Built(held, tree.commit)

    def run(*, of_stock: bool) -> list[Verification]:
        return verify(
            releases,
            Asked(device, of_stock, transformers, runs),
            built=(lambda _ref: Built()) if of_stock else carried,
            root=settings.root,
            cache=settings.cache,
            run=not dry_run,
            progress=note,
        )

    found = run(of_stock=stock)
    if markdown:
        print_lines(verified_markdown(run(of_stock=True), found).splitlines())
    elif as_json:
        print_json(verified_data(found))
    else:
        results.print(verified_table(found))
    # A stock wheel may fail, for that is what its cell shows; a carried one may not.
    open_cells = [f for f in found if not (f.proved or (stock and f.settled))]
    if open_cells:
        raise CheckFailed(
            f"{len(open_cells)} of {len(found)} cells are not proved, {open_cells[0].name} first",
            "the table above says why",
        )
