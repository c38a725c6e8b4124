"""The record of what was proved: as a table, as data, and as the table that opens the README."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from tools.smoke.results import Verdict
from tools.smoke.verified import Cell, CellState
from tools.smoke.verify import Verification

_STYLES = {CellState.CURRENT: "green", CellState.STALE: "yellow", CellState.MISSING: "dim"}
# Causes named for one cell; the rest is counted.
_CAUSES = 2
_CAUSE_LENGTH = 110
# What stock upstream does, in words, the gravest first; what is in none of these is quoted.
_SYMPTOMS = (
    ("wrong tokens|^embeddings ", "**wrong answers to images and videos, without a word**"),
    ("does not recognize this architecture", "does not know the model"),
    ("failed to be inspected", "does not start (an import that its transformers lacks)"),
    ("Could not load libtorchcodec", "does not start (where FFmpeg is not installed)"),
    ("'sequence_lengths'", "does not start (`sequence_lengths`)"),
    ("has no attribute 'input_norm'", "stops at images and videos (`input_norm`)"),
    ("Config' object has no attribute 'vocab_size'", "MTP does not start on a saved config"),
    ("WorkerProc initialization failed", "MTP does not start"),
    ("USE_FP64_GUMBEL|Cannot inspect kernel", "MTP does not run"),
    ("num_speculative_tokens must be provided", "MTP has no default number of drafts"),
    ("validator 'validate_layer_type'", "refuses a config that lists the MTP layer"),
)
# What pydantic puts before the message of a validator.
_PREFACE = re.compile(r"^\S*ValidationError: \d+ validation errors? for \S+ (Value error, )?")


def verified_table(found: Sequence[Verification]) -> Table:
    """Return every cell with how it stands and what it proved."""
    table = Table(title="verified on the engine")
    for name in ("release", "kind", "transformers", "runs", "state", "checks"):
        table.add_column(name, no_wrap=True)
    table.add_column("detail", overflow="fold")
    for item in found:
        state = item.standing.state
        table.add_row(
            escape(item.name.release),
            f"{item.name.device} {item.name.kind}",
            escape(_transformers(item)),
            escape(item.name.runs),
            f"[{_STYLES[state]}]{state.value}[/]",
            "" if item.cell is None else _counts(item.cell),
            escape(item.standing.reason or ("" if item.cell is None else causes(item.cell))),
        )
    return table


def verified_data(found: Sequence[Verification]) -> list[dict[str, Any]]:
    """Return every cell for machines, without its single checks."""
    return [
        {
            "release": item.name.release,
            "device": item.name.device,
            "kind": item.name.kind,
            "transformers": _transformers(item),
            "runs": item.name.runs,
            "state": item.standing.state.value,
            "reason": item.standing.reason,
            "proved": item.proved,
            "date": item.cell.date if item.cell else "",
            "commit": item.cell.commit if item.cell else "",
            "checks": _verdicts(item.cell) if item.cell else {},
            "causes": causes(item.cell) if item.cell else "",
        }
        for item in found
    ]


def verified_markdown(stock: Sequence[Verification], carried: Sequence[Verification]) -> str:
    """Return one row a release: what the stock wheel answers, and what the carried one does."""
    others = {item.name.release: item for item in stock}
    lines = ["| release | transformers | stock wheel | carried wheel |", "|---|---|---|---|"]
    lines += [
        f"| {item.name.release} | {_transformers(item)} "
        f"| {_told(others.get(item.name.release))} | {_told(item)} |"
        for item in carried
    ]
    return "\n".join(lines) + "\n"


def causes(cell: Cell) -> str:
    """Return why checks failed, the most frequent causes first, or "" where none did."""
    if cell.error:
        return cell.error
    found = Counter(
        "wrong tokens" if "wrong tokens" in check.detail else check.detail
        for check in cell.checks
        if check.verdict is Verdict.FAILED
    )
    named = [f"{_shortened(cause)} ({count})" for cause, count in found.most_common(_CAUSES)]
    others = len(found) - len(named)
    return "; ".join(named) + (f"; {others} other causes" if others else "")


def _told(item: Verification | None) -> str:
    """Return a cell of the Markdown table; what is not current does not count."""
    if item is None or item.cell is None:
        return "not run"
    if item.standing.state is not CellState.CURRENT:
        return f"stale ({item.standing.reason})".replace("|", "\\|")
    counts = _verdicts(item.cell)
    numbers = ", ".join(
        f"{counts[verdict]} {word}"
        for verdict, word in (("passed", "pass"), ("failed", "fail"), ("skipped", "skipped"))
        if counts[verdict]
    )
    return ": ".join(filter(None, [symptoms(item.cell), numbers])).replace("|", "\\|")


def symptoms(cell: Cell) -> str:
    """Return in a few words what a user sees of a cell's faults, or "" where there are none."""
    if cell.error:
        return cell.error
    faults = {c.detail for c in cell.checks if c.verdict is Verdict.FAILED}
    found = [words for form, words in _SYMPTOMS if any(re.search(form, f) for f in faults)]
    told = re.compile("|".join(form for form, _ in _SYMPTOMS))
    found += sorted(_shortened(fault) for fault in faults if not told.search(fault))
    return ", ".join(found[:_CAUSES])


def _transformers(item: Verification) -> str:
    version = item.cell.versions.get("transformers", "") if item.cell else ""
    return version or item.name.transformers


def _verdicts(cell: Cell) -> dict[str, int]:
    found = Counter(check.verdict for check in cell.checks)
    return {verdict.value: found[verdict] for verdict in Verdict}


def _counts(cell: Cell) -> str:
    return "/".join(str(count) for count in _verdicts(cell).values())


def _shortened(text: str) -> str:
    text = _PREFACE.sub("", text)
    return text if len(text) <= _CAUSE_LENGTH else text[: _CAUSE_LENGTH - 1] + "…"
