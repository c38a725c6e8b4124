"""Commands that run upstream's own tests and examples on a carried wheel."""

from pathlib import Path
from typing import Any

import typer

from tools.cli.common import JsonOption, Project, Refs, SourceOption, each, note, results
from tools.cli.shipping import wheel_request
from tools.errors import CheckFailed
from tools.git import GitTree
from tools.maintain.ship import build_wheel, built_wheel
from tools.report.upstream_tests import comparison_data, comparison_table
from tools.report.wheels import smoke_table
from tools.smoke.examples import run_examples
from tools.smoke.results import SmokeReport
from tools.smoke.upstream_tests import Comparison, upstream_tests


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command(name="upstream-tests")(upstream_tests_command)
    app.command(name="examples")(examples_command)


def _carried(project: Project, ref: str) -> tuple[GitTree, GitTree, Path]:
    """Return upstream's tree at a ref, the carried one, and its CPU wheel."""
    git = project.store.git
    carried = project.carrier.carry(project.obtain(ref))
    request = wheel_request(project, ref, None, "cpu", None)
    wheel = built_wheel(carried, request)
    if wheel is None:
        wheel = build_wheel(git, carried, request, project.settings.cache, note).wheel
    return GitTree(git, carried.upstream.commit), GitTree(git, carried.commit), wheel


def upstream_tests_command(
    refs: Refs = None, source: SourceOption = "auto", as_json: JsonOption = False
) -> None:
    """Run upstream's own tests of what the series touches on REF's stock and carried wheel."""
    project = Project(source)
    found: list[Comparison] = []

    def one(ref: str) -> dict[str, Any]:
        stock, carried, wheel = _carried(project, ref)
        comparison = upstream_tests(
            ref,
            stock=stock,
            carried=carried,
            wheel=wheel,
            cache=project.settings.cache,
            progress=note,
        )
        found.append(comparison)
        if not as_json:
            results.print(comparison_table(comparison))
        return comparison_data(comparison)

    each(project.refs(refs), one, as_json=as_json)
    changed = [comparison for comparison in found if comparison.differences]
    if changed:
        first = changed[0].differences[0]
        raise CheckFailed(
            f"{changed[0].release}: {len(changed[0].differences)} of upstream's tests differ, "
            f"{first.test} first: {first.change.value}",
            "run it alone on both wheels: a test that is not stable is no finding",
        )


def examples_command(
    refs: Refs = None, source: SourceOption = "auto", as_json: JsonOption = False
) -> None:
    """Run the offline examples of REF's carried tree on the tiny checkpoint."""
    project = Project(source)
    found: list[SmokeReport] = []

    def one(ref: str) -> dict[str, Any]:
        _, tree, wheel = _carried(project, ref)
        report = run_examples(
            ref, tree=tree, wheel=wheel, cache=project.settings.cache, progress=note
        )
        found.append(report)
        if not as_json:
            results.print(smoke_table(report))
        return report.to_json()

    each(project.refs(refs), one, as_json=as_json)
    failed = [report.summary for report in found if not report.passed]
    if failed:
        raise CheckFailed("; ".join(failed), "the table above says with what")
