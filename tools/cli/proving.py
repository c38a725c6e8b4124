"""Commands that prove a carried tree or its wheel: contract, smoke, reference."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from packaging.version import Version

from tools.cli.common import (
    DeviceOption,
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
    results,
)
from tools.cli.shipping import wheel_request
from tools.contract import ContractReport
from tools.contract.sarif import to_sarif
from tools.errors import CheckFailed
from tools.maintain import releases_since
from tools.maintain.contracts import (
    ContractRequest,
    check_contract,
    client_modules,
    upstream_trees,
)
from tools.maintain.ship import build_wheel, built_wheel
from tools.report.contracts import contract_table
from tools.report.wheels import smoke_table
from tools.smoke.reference import write_reference
from tools.smoke.results import SmokeReport
from tools.smoke.run_sets import RUN_SETS, run_set
from tools.smoke.smoke import smoke
from tools.tree import Tree
from tools.upstream import parse_ref
from tools.wheel.build import resolve_device


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(contract)
    app.command(name="smoke")(smoke_command)
    app.command()(reference)


def contract(
    refs: Refs = None,
    source: SourceOption = "auto",
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
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF for code hosts.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check what the overlay and the patches assume about each REF, without running anything."""
    project = Project(source)
    reports: list[tuple[str, ContractReport]] = []

    def one(ref: str) -> dict[str, Any]:
        report = check_contract(
            _contract_request(project, ref, stock, package, baseline, since),
            project.settings.cache,
            note,
        )
        reports.append((ref, report))
        if sarif:
            print_lines([to_sarif(report, ref)])
        elif not as_json:
            results.print(contract_table(ref, report))
        return {"ref": ref, **report.to_dict()}

    each(project.refs(refs), one, as_json=as_json)
    broken = [(ref, report.errors) for ref, report in reports if report.errors]
    if broken:
        ref, errors = broken[0]
        raise CheckFailed(
            f"{sum(len(found) for _, found in broken)} contract errors, at {ref} first: "
            f"{errors[0].code.code} {errors[0].path}:{errors[0].line} {errors[0].message}",
            errors[0].hint,
        )


def _contract_request(
    project: Project,
    ref: str,
    stock: bool,
    package: list[str] | None,
    baseline: str,
    since: str,
) -> ContractRequest:
    tree = project.tree(ref, stock)
    return ContractRequest(
        ref,
        tree,
        tuple(package or client_modules(project.overlay, tree)),
        project.tree(project.refs([baseline])[0], stock) if baseline else None,
        _history(project, project.refs([since])[0], ref) if since else (),
    )


def _history(project: Project, since: str, ref: str) -> Sequence[tuple[str, Callable[[], Tree]]]:
    end = parse_ref(ref).version
    tags = releases_since(project.store, since)
    earlier = [tag for tag in tags if end and Version(tag[1:]) < end]
    return upstream_trees(project.store.git, map(project.obtain, earlier))


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
