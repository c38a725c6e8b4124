"""Commands that bring the series to refs: apply, export, matrix."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.carry import Carried, check_out, export
from tools.cli.common import (
    CORES,
    DryRunOption,
    JobsOption,
    JsonOption,
    OutputOption,
    Project,
    Refs,
    SourceOption,
    each,
    note,
    open_carrier,
    print_json,
    print_lines,
    refuse_breaks,
    results,
    write_report,
)
from tools.contract import ContractReport, Finding
from tools.errors import CheckFailed
from tools.git import GitTree
from tools.maintain import releases_since, run_matrix
from tools.maintain.contracts import carried_contract
from tools.report.console import carry_table
from tools.report.contracts import finding_line
from tools.report.data import carried_data
from tools.report.matrix import matrix_data, matrix_page, matrix_table

_OLDEST = "v0.10.0"


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(apply)
    app.command(name="export")(export_command)
    app.command()(matrix)


def apply(
    refs: Refs = None,
    source: SourceOption = "auto",
    output: OutputOption = None,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Carry series and overlay to each REF and check the result out under build/REF/src."""
    project = Project(source)
    failed: list[str] = []
    broken: list[tuple[str, Finding]] = []

    def one(ref: str) -> dict[str, Any]:
        carried, report = _carry_and_check(project, ref, keep=not dry_run)
        if not as_json:
            results.print(carry_table(carried))
            print_lines(map(finding_line, report.findings if report else ()))
        for line in report.unchecked if report else ():
            note(f"contract not checked: {line}")
        broken.extend((ref, finding) for finding in (report.errors if report else ()))
        data = carried_data(carried) | {"contract": report.to_dict() if report else None}
        if carried.conflicts:
            failed.append(ref)
        elif not dry_run:
            done = check_out(project.store.git, carried, project.directory(ref, output) / "src")
            note(f"{done.path}: {done.state} at {carried.commit[:12]}")
            data |= {"path": str(done.path), "state": done.state.value}
        return data

    each(project.refs(refs), one, as_json=as_json)
    _refuse_conflicts(failed)
    refuse_breaks(broken)


def _carry_and_check(
    project: Project, ref: str, *, keep: bool
) -> tuple[Carried, ContractReport | None]:
    """Carry to a ref and check the contract there."""
    upstream, cache = project.obtain(ref), project.settings.cache
    if not keep:
        return project.carrier.look(upstream, lambda c, tree: (c, carried_contract(cache, c, tree)))
    carried = project.carrier.carry(upstream)
    tree = GitTree(project.store.git, carried.commit)
    return carried, carried_contract(cache, carried, tree)


def export_command(
    refs: Refs = None,
    source: SourceOption = "auto",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the carried commits as git mailbox patches and a quilt series: build/REF/patches."""
    project = Project(source)
    failed: list[str] = []

    def one(ref: str) -> dict[str, Any]:
        carried: Carried = project.carrier.carry(project.obtain(ref))
        if carried.conflicts:
            failed.append(ref)
            return carried_data(carried)
        path: Path = project.directory(ref, output) / "patches"
        done = export(project.store.git, carried, path)
        if not as_json:
            print_lines(str(done.path / name) for name in done.patches)
        for line in done.notes:
            note(line)
        notes = list(done.notes)
        return {"ref": ref, "path": str(done.path), "patches": list(done.patches), "notes": notes}

    each(project.refs(refs), one, as_json=as_json)
    _refuse_conflicts(failed)


def matrix(
    refs: Refs = None,
    source: SourceOption = "auto",
    since: Annotated[
        str, typer.Option("--since", metavar="REF", help="The oldest release, without REFs.")
    ] = _OLDEST,
    jobs: JobsOption = CORES,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write a page.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show patches by releases: every REF, or every release with an sdist or wheel."""
    project = Project(source)
    oldest = project.refs([since])[0]
    wanted = project.refs(refs) if refs else releases_since(project.store, oldest)
    upstreams = [project.obtain(ref) for ref in wanted]
    expected = project.settings.root / "patches" / "expected.toml"
    done = run_matrix(
        partial(open_carrier, source),
        upstreams,
        expected,
        jobs=jobs,
        contract=partial(carried_contract, project.settings.cache),
        whole=not refs and since == _OLDEST,
    )
    if html:
        write_report(html, matrix_page(done))
    if as_json:
        print_json(matrix_data(done))
    else:
        results.print(matrix_table(done))
    if done.failures:
        first = done.failures[0]
        raise CheckFailed(
            f"{len(done.failures)} cells need a person, {first.outcome.name} at {first.ref} first",
            f"see it: python -m tools apply --dry-run {first.ref}",
        )
    refuse_breaks([(ref, one.finding) for one in done.contract_errors for ref in one.refs])


def _refuse_conflicts(refs: list[str]) -> None:
    if refs:
        raise CheckFailed(
            f"conflicts at {', '.join(refs)}: nothing was checked out there",
            f"solve them: python -m tools resolve {refs[0]}",
        )
