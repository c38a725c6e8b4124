"""Wheels and what runs of them showed: tables and data."""

from collections import Counter
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from tools.maintain.rebuild import Rebuilt
from tools.maintain.ship_source import SourceBuilt
from tools.smoke.results import SmokeReport, Verdict
from tools.wheel.build import BuildResult
from tools.wheel.changes import Outcome
from tools.wheel.inspect import Inspection

_VERDICTS = {Verdict.PASSED: "green", Verdict.FAILED: "bold red", Verdict.SKIPPED: "dim"}


def build_table(done: BuildResult) -> Table:
    """Return what a build put into the wheel, and how the wheel was checked."""
    table = Table(title=done.wheel.name, caption=f"sha256 {done.sha256}, {done.size:,} bytes")
    table.add_column("member", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    for member in done.plan.members:
        # Upstream's wheel has another text there than upstream's tree: both changes are in.
        own = " into the wheel's own text" if member.outcome is Outcome.MERGED else ""
        table.add_row(escape(member.path), f"{member.outcome.value}{own}")
    for line in done.plan.notes:
        table.add_row(escape(line), "metadata")
    for check in done.checks:
        table.add_row(escape(f"{check.name}: {check.detail}"), "[green]checked[/]")
    return table


def build_data(done: BuildResult) -> dict[str, Any]:
    """Return a build for machines."""
    return {
        "wheel": str(done.wheel),
        "sha256": done.sha256,
        "size": done.size,
        "sums": str(done.sums),
        "upstream_version": str(done.plan.upstream_version),
        "members": {member.path: member.outcome.value for member in done.plan.members},
        "paths_outside_the_wheel": done.plan.outside,
        "requirements_changed": list(done.plan.notes),
        "checks": [asdict(check) for check in done.checks],
        "delta": str(done.delta.wheel) if done.delta else None,
    }


def source_table(done: SourceBuilt) -> Table:
    """Return what upstream's own build made; of a source distribution, files by directory."""
    table = Table(title=done.path.name, caption=f"sha256 {done.sha256}", show_header=False)
    table.add_column("what", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_row("version", escape(str(done.version)))
    counts = Counter(name.partition("/")[0] + "/" for name in done.files if "/" in name)
    for directory, count in sorted(counts.items()):
        table.add_row("files", escape(f"{count:5} {directory}"))
    for name in done.files:
        if "/" not in name:
            table.add_row("file", escape(name))
    return table


def source_data(done: SourceBuilt) -> dict[str, Any]:
    """Return a source build for machines."""
    return {
        "path": str(done.path),
        "sha256": done.sha256,
        "version": str(done.version),
        "files": list(done.files),
    }


def inspection_table(found: Inspection, made: Rebuilt | None = None) -> Table:
    """Return what a wheel says of itself, and how it came out when it was built again."""
    table = Table(title=found.wheel.name, show_header=False)
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    provenance = found.provenance
    rows = {
        "distribution": f"{found.name} {found.version}",
        "sha256": found.sha256,
        "upstream": f"{provenance.get('ref')} {provenance.get('commit')}",
        "carried": str(provenance.get("carried_commit")),
        "contract": ", ".join(f"{n} {what}" for what, n in provenance.get("contract", {}).items()),
        "repacked from": str(provenance.get("upstream_wheel", {}).get("name")),
    }
    for key, value in rows.items():
        table.add_row(key, escape(value))
    for patch in provenance.get("patches", []):
        table.add_row(escape(patch["name"]), escape(f"{patch['outcome']}  {patch['sha256']}"))
    for file in provenance.get("overlay", []):
        table.add_row("overlay", escape(f"{file['target']}  {file['sha256']}"))
    for requirement in provenance.get("requirements_changed", []):
        table.add_row("metadata", escape(requirement))
    for fault in found.faults:
        table.add_row("[bold red]fault[/]", escape(fault))
    if made:
        same = made.sha256 == found.sha256
        verdict = "[green]built again[/]" if same else "[bold red]built again[/]"
        table.add_row(verdict, "the same bytes" if same else made.sha256)
    for path in made.differences if made else ():
        table.add_row("[bold red]differs[/]", escape(path))
    return table


def inspection_data(found: Inspection, made: Rebuilt | None = None) -> dict[str, Any]:
    """Return an inspection for machines."""
    return {
        **asdict(found),
        "wheel": str(found.wheel),
        "provenance": dict(found.provenance),
        "rebuilt": asdict(made) if made else None,
    }


def smoke_table(report: SmokeReport) -> Table:
    """Return every check of one wheel."""
    kind = "stock" if report.stock else "carried"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    table = Table(
        title=f"{report.release} {report.device}, {kind}: {report.wheel}",
        caption=f"{versions}; {report.seconds:.0f} s" if versions else None,
    )
    for name in ("run", "case", "verdict"):
        table.add_column(name, no_wrap=True)
    table.add_column("detail", overflow="fold")
    table.add_column("s", justify="right", no_wrap=True)
    for check in report.checks:
        style = _VERDICTS[check.verdict]
        table.add_row(
            escape(check.run),
            escape(check.case),
            f"[{style}]{check.verdict.value}[/]",
            escape(check.detail),
            f"{check.seconds:.1f}",
        )
    return table
