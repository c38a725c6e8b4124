"""What a watch did and what it asks of a person: a table, data, and a notice."""

from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tools.maintain.notify import Notice
from tools.maintain.watch import Watched
from tools.maintain.watched import Need, Record, Result, Stage, record_rows
from tools.upstream.history import Offered

_STYLES = {
    Result.DONE: "green",
    Result.FAILED: "bold red",
    Result.SKIPPED: "dim",
    Result.LACKING: "yellow",
}


def watch_text(done: Watched) -> Group:
    """Return what each ref came to, and below it what a person has to do."""
    if not done.worked:
        parts: list[Table | Text] = [Text("nothing new upstream")]
    else:
        table = Table(title="taken through the line")
        for name in ("ref", *Stage):
            table.add_column(str(name), overflow="fold", no_wrap=name == "ref")
        table.add_column("s", justify="right", no_wrap=True)
        for worked in done.worked:
            cells = [_cell(worked.record, stage) for stage in Stage]
            table.add_row(worked.record.ref, *cells, f"{worked.seconds:.1f}")
        parts = [table]
    shown = {(worked.record.ref, worked.record.commit) for worked in done.worked}
    for record in done.state.current:
        fresh = (record.ref, record.commit) in shown
        for need in record.needs:
            if need.blocking or fresh:
                style = "bold red" if need.blocking else "yellow"
                parts.append(Text(f"{record.ref}: {need.text}", style=style))
                parts.append(Text(f"  {need.advice}"))
    for record, stage in done.lacking:
        held = record.stages[stage]
        parts.append(Text(f"{record.ref} {stage}: {held.summary}", style="yellow"))
        parts.append(Text(f"  {held.remedy}"))
    return Group(*parts)


def due_text(due: list[Offered]) -> Text:
    """Return the refs that a watch would work on."""
    return Text("\n".join(row.ref.name for row in due) or "nothing new upstream")


def watch_data(done: Watched) -> dict[str, Any]:
    """Return a watch for machines."""
    return {
        "worked": [
            {
                **record_rows([worked.record])[0],
                "done": [stage.value for stage in worked.stages],
                "seconds": round(worked.seconds, 1),
            }
            for worked in done.worked
        ],
        "blocked": [record.ref for record in done.standing],
        "needs": [
            {"ref": record.ref, **vars(need), "stage": need.stage.value}
            for record in done.state.current
            for need in record.needs
        ],
        "lacking": [
            {
                "ref": record.ref,
                "stage": stage.value,
                "text": record.stages[stage].summary,
                "advice": record.stages[stage].remedy,
            }
            for record, stage in done.lacking
        ],
        "untold": [record.ref for record in done.untold],
    }


def watch_notice(record: Record) -> Notice:
    """Return what to tell people of a ref that asks something of them."""
    count = sum(need.blocking for need in record.needs)
    what = f"{count} to mend" if count else f"{len(record.needs)} to look at"
    lines = ["| stage | came to | |", "|---|---|---|"]
    lines += [
        f"| {stage} | {held.result} | {_plain(held.summary)} |"
        for stage in Stage
        if (held := record.stages.get(stage))
    ]
    for title, blocking in (("To do", True), ("To look at", False)):
        needs = [need for need in record.needs if need.blocking == blocking]
        if needs:
            lines += ["", f"## {title}", "", *(_item(need) for need in needs)]
    body = "\n".join(lines)
    return Notice(f"watch/{record.ref.lower()}", f"{record.ref} needs a person: {what}", body)


def _item(need: Need) -> str:
    return f"- **{_plain(need.about)}** ({need.stage}): {_plain(need.text)}. {_plain(need.advice)}"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is, in a table too."""
    return "".join(
        f"\\{sign}" if sign in r"\`*_[]<>|#@" else sign for sign in " ".join(text.split())
    )


def _cell(record: Record, stage: Stage) -> str:
    held = record.stages.get(stage)
    if held is None:
        return "[dim]-[/]"
    return f"[{_STYLES[held.result]}]{held.result}[/] {escape(held.summary)}"
