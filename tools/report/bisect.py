"""What turned an answer: a table for a terminal, and data."""

from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tools.maintain.bisect import Bisection, Run
from tools.upstream.history import Logged


def bisection_text(done: Bisection) -> Group:
    """Return every answer that was had, and below it what turned it."""
    parts: list[Table | Text] = []
    if done.releases:
        parts += [_table(done.question, done.releases), *_verdict(done.releases, "release")]
    if done.commits:
        parts += [_table(done.question, done.commits), *_verdict(done.commits, "commit")]
    if done.culprit:
        parts.append(Text(_shown(done.culprit), style="bold"))
    if done.note:
        parts.append(Text(f"no commit found: {done.note}", style="yellow"))
    return Group(*parts)


def bisection_data(done: Bisection) -> dict[str, Any]:
    """Return a bisection for machines."""
    culprit = done.culprit
    return {
        "question": done.question,
        "release": done.releases.bad if done.releases else None,
        "releases": _run_data(done.releases),
        "commit": culprit.commit if culprit else None,
        "subject": culprit.subject if culprit else None,
        "pull_request": culprit.pull_request if culprit else None,
        "commits": _run_data(done.commits),
        "note": done.note or None,
    }


def _run_data(run: Run | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "last_good": run.good,
        "first_bad": run.bad,
        "refs": len(run.names),
        "complete": run.complete,
        "monotonic": run.monotonic,
        "turns": [vars(turn) for turn in run.turns],
        "answers": [
            {"ref": name, "bad": answer.bad, "found": answer.found}
            for name, answer in run.answers.items()
        ],
    }


def _table(title: str, run: Run) -> Table:
    table = Table(title=escape(title))
    table.add_column("ref", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for name, answer in run.answers.items():
        mark = "[bold red]bad[/]" if answer.bad else "[green]good[/]"
        table.add_row(name[:12] if len(name) == 40 else name, mark, escape(answer.found))
    return table


def _verdict(run: Run, kind: str) -> list[Text]:
    lines = [Text(f"first bad {kind}: {run.bad}, after {run.good}", style="bold")]
    asked = f"{len(run.answers)} of {len(run.names)} asked"
    if not run.monotonic:
        turns = "; ".join(
            f"{'bad' if turn.to_bad else 'good again'} at {turn.after}" for turn in run.turns
        )
        lines.append(Text(f"it turned {len(run.turns)} times: {turns} ({asked})", style="yellow"))
    elif not run.complete:
        lines.append(Text(f"{asked}: where it turns more than once, --every tells"))
    return lines


def _shown(culprit: Logged) -> str:
    number = culprit.pull_request
    return f"{culprit.commit[:12]} {culprit.subject}" + (
        f" [pull request {number}]" if number else ""
    )
