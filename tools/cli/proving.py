"""Commands that prove a carried tree or its wheel: contract, smoke, reference."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.cli.common import (
    CORES,
    DeviceOption,
    JobsOption,
    JsonOption,
    OutputOption,
    Project,
    Refs,
    SourceOption,
    StockOption,
    TransformersOption,
    each,
    note,
    print_lines,
    print_rows,
    refuse_breaks,
    results,
)
from tools.cli.shipping import wheel_request
from tools.contract import ContractReport, unused_everywhere
from tools.contract.sarif import to_sarif
from tools.errors import CheckFailed, EnvironmentLacks
from tools.maintain import releases_since
from tools.maintain.contracts import ContractWish, check_each
from tools.maintain.parallel import spread
from tools.maintain.ship import build_wheel, built_wheel
from tools.report.contracts import contract_table, finding_line
from tools.report.wheels import smoke_table
from tools.smoke.reference import write_reference
from tools.smoke.results import SmokeReport
from tools.smoke.run_sets import RUN_SETS, run_set
from tools.smoke.smoke import smoke
from tools.upstream import Upstream
from tools.wheel.build import resolve_device

_OLDEST = "v0.10.0"


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(contract)
    app.command(name="smoke")(smoke_command)
    app.command()(reference)


def contract(
    refs: Refs = None,
    source: SourceOption = "auto",
    every: Annotated[bool, typer.Option("--all", help="Check every release.")] = False,
    stock: StockOption = False,
    package: Annotated[
        list[str] | None,
        typer.Option("--package", metavar="GLOB", help="Check these modules, not the overlay's."),
    ] = None,
    baseline: Annotated[
        str, typer.Option("--from", metavar="REF", help="Also compare with this release.")
    ] = "",
    since: Annotated[
        str, typer.Option("--since", metavar="REF", help="Date findings, from this release on.")
    ] = "",
    jobs: JobsOption = CORES,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF for code hosts.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check what the overlay and the patches assume about each REF, without running anything."""
    project = Project(source)
    wanted = releases_since(project.store, _OLDEST) if every else project.refs(refs)
    wish = ContractWish(
        stock,
        tuple(package or ()),
        project.commit(project.refs([baseline])[0], stock) if baseline else "",
        _history(project, project.refs([since])[0]) if since else (),
    )
    done = spread(partial(_check, source, wish), [project.obtain(ref) for ref in wanted], jobs)
    reports = dict(zip(wanted, done, strict=True))
    unused = unused_everywhere(done) if every and not package else ()
    if sarif:
        print_lines(to_sarif(report, ref) for ref, report in reports.items())
    elif as_json:
        print_rows([{"ref": ref, **report.to_dict()} for ref, report in reports.items()])
    else:
        for ref, report in reports.items():
            results.print(contract_table(ref, report))
        print_lines(map(finding_line, unused))
    refuse_breaks([(ref, error) for ref, report in reports.items() for error in report.errors])


def _check(
    source: str, wish: ContractWish, upstreams: tuple[Upstream, ...]
) -> tuple[ContractReport, ...]:
    """Check refs in this process, which may be one of several."""
    project = Project(source)
    return tuple(check_each(project.carrier, upstreams, wish, project.settings.cache, note))


def _history(project: Project, since: str) -> tuple[Upstream, ...]:
    return tuple(map(project.obtain, releases_since(project.store, since)))


def smoke_command(
    refs: Refs = None,
    source: SourceOption = "auto",
    device: DeviceOption = "auto",
    output: OutputOption = None,
    stock: StockOption = False,
    transformers: TransformersOption = "release",
    model: Annotated[
        str, typer.Option("--model", metavar="PATH_OR_ID", help="Ask this model, not the tiny one.")
    ] = "",
    runs: Annotated[
        str,
        typer.Option(
            "--runs",
            metavar="|".join(RUN_SETS),
            help="The usual cases, modes or checkpoints users run, the served API, or mutants.",
        ),
    ] = "usual",
    as_json: JsonOption = False,
) -> None:
    """Run the model of each REF's wheel on the real engine and compare with transformers."""
    project = Project(source)
    reports: list[SmokeReport] = []

    def wheel_of(ref: str) -> Path:
        carried = project.carrier.carry(project.obtain(ref))
        request = wheel_request(project, ref, output, device, None)
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
            model=model,
            runs=run_set(runs),
            progress=note,
        )
        reports.append(report)
        if not as_json:
            results.print(smoke_table(report))
        return report.to_json()

    each(project.refs(refs), one, as_json=as_json)
    failed = [report for report in reports if not report.passed]
    if failed and all(report.skipped for report in failed):
        raise EnvironmentLacks(
            "; ".join(report.summary for report in failed), "the table above says what is lacking"
        )
    if failed:
        raise CheckFailed(
            "; ".join(report.summary for report in failed),
            "the table above says with what; stock wheels are expected to fail" if stock else "",
        )


def reference() -> None:
    """Write the golden files anew with transformers."""
    project = Project()
    files = write_reference(project.settings.root, project.settings.cache, note)
    print_lines(str(file) for file in files)
