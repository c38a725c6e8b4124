"""Releases: a table and data."""

from typing import Any

from rich.markup import escape
from rich.table import Table

from tools.maintain.release import Released


def release_table(done: Released) -> Table:
    """Return what a release pushed, or would push, and the files beside it."""
    record = done.record
    table = Table(title=f"{record.tag} in {done.shown}: {done.state}", show_header=False)
    table.add_column("what", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_row("tag", escape(record.tag))
    table.add_row("branch", escape(f"{done.branch} at {record.carried}"))
    table.add_row("upstream", record.upstream)
    for commit in done.commits:
        table.add_row("commit", escape(commit))
    for name, sha256 in sorted(record.files.items()):
        table.add_row("file", escape(f"{name}  {sha256}"))
    table.add_row("directory", escape(str(done.path or "none, on a dry run")))
    return table


def release_data(done: Released) -> dict[str, Any]:
    """Return a release for machines."""
    record = done.record
    return {
        "state": done.state.value,
        "tag": record.tag,
        "number": record.number,
        "branch": done.branch,
        "to": done.shown,
        "upstream": record.upstream,
        "carried": record.carried,
        "commits": list(done.commits),
        "files": dict(record.files),
        "proofs": {proof.device: [proof.proved, proof.detail] for proof in record.proofs},
        "message": done.message,
        "path": str(done.path) if done.path else None,
    }
