"""Upstream's own tests on two wheels: a table and data."""

from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from tools.smoke.upstream_tests import Comparison

OUTCOMES = ("passed", "failed", "skipped")


def comparison_table(comparison: Comparison) -> Table:
    """Return how many tests came out how on each wheel, and every difference."""
    table = Table(title=f"{comparison.release}: upstream's own tests")
    table.add_column("wheel", overflow="fold")
    for outcome in OUTCOMES:
        table.add_column(outcome, justify="right", no_wrap=True)
    for name, ran in (("stock", comparison.stock), ("carried", comparison.carried)):
        table.add_row(name, *(str(ran.count(outcome)) for outcome in OUTCOMES))
    for test in comparison.ours:
        table.add_row(escape(f"+ {test}: {comparison.carried.outcomes[test]}"))
    for difference in comparison.differences:
        text = f"{difference.test}: {difference.change.value} ({difference.detail})"
        table.add_row(f"[bold red]{escape(text)}[/]")
    return table


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return the same as JSON types, with every test's outcomes."""
    return {
        "release": comparison.release,
        "stock": dict(comparison.stock.outcomes),
        "carried": dict(comparison.carried.outcomes),
        "ours": list(comparison.ours),
        "differences": [
            {**asdict(difference), "change": difference.change.value}
            for difference in comparison.differences
        ],
    }
