"""Conflicts laid out, and what became of them, for a terminal and as data."""

from typing import Any

from rich.console import Group
from rich.text import Text

from tools.maintain.payload import Comparison, Line
from tools.maintain.refresh import Refreshed
from tools.maintain.resolve import Resolving

_STYLES = {"-": "red", "+": "green", "!": "yellow"}


def resolving_data(done: Resolving) -> dict[str, Any]:
    """Return a conflict that was laid out."""
    record = done.record
    return {
        "ref": record.ref,
        "patch": record.step,
        "file": record.file,
        "rule": record.rule,
        "path": str(done.checkout.path),
        "state": done.checkout.state.value,
        "intent": str(done.intent),
        "stuck": [
            {
                "path": stuck.path.encode("utf-8", "backslashreplace").decode(),
                "reason": stuck.reason,
                "marked": stuck.marked,
                "base": stuck.base or None,
                "patched": stuck.patched or None,
                "target": stuck.target or None,
            }
            for stuck in record.stuck
        ],
    }


def resolving_text(done: Resolving) -> Text:
    """Return what a person has to do now."""
    record = done.record
    lines = [f"{record.file} stops at {record.ref}: {record.rule}"]
    for stuck in record.stuck:
        shown = stuck.path.encode("utf-8", "backslashreplace").decode()
        how = "" if stuck.marked else " (no markers: decide with git add or git rm)"
        lines.append(f"  {shown}: {stuck.reason}{how}")
    lines += [
        f"merge them in {done.checkout.path} ({done.checkout.state})",
        f"what the patch is for: {done.intent}",
        f"then: python -m tools refresh {record.ref}",
    ]
    return Text("\n".join(lines))


def refreshed_data(done: Refreshed) -> dict[str, Any]:
    """Return what became of a conflict."""
    comparison = done.comparison
    return {
        "ref": done.carried.upstream.ref.name,
        "patch": done.patch,
        "kept": done.kept.value,
        "files": list(done.files),
        "payload": {
            "before": comparison.before,
            "after": comparison.after,
            "same": comparison.before == comparison.after,
            "lost": [_shown(line) for line in comparison.lost],
            "gained": [_shown(line) for line in comparison.gained],
        },
        "drift": [_shown(line) for line in comparison.drift],
        "remaining": [outcome.name for outcome in done.carried.conflicts],
        "misfit": done.misfit or None,
    }


def refreshed_text(done: Refreshed) -> Group:
    """Return the payload before and after, the drift apart from it, and what was written."""
    comparison = done.comparison
    parts = [Text(f"{done.patch}: kept as a {done.kept}: {', '.join(done.files)}")]
    parts += _payload(comparison)
    if comparison.drift:
        parts.append(Text("the lines around it, before and now:"))
        parts += [_line(line) for line in comparison.drift]
    return Group(*parts)


def _payload(comparison: Comparison) -> list[Text]:
    if comparison.before == comparison.after:
        return [Text(f"the payload is the same ({comparison.after})")]
    parts = [Text(f"the payload changed ({comparison.before} to {comparison.after})")]
    for title, lines in (("no more", comparison.lost), ("now also", comparison.gained)):
        if lines:
            parts += [Text(f"{title}:"), *(_line(line) for line in lines)]
    return parts


def _line(line: Line) -> Text:
    return Text(f"  {_shown(line)}", style=_STYLES[line.sign])


def _shown(line: Line) -> str:
    return str(line).encode("utf-8", "backslashreplace").decode()
