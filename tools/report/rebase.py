"""A rebase for a terminal, for machines, as a pull request's text and as a page."""

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tools.carry import Outcome
from tools.contract import Finding, Severity
from tools.maintain.branch import BRANCH
from tools.maintain.payload import Line
from tools.maintain.proposal import Proposal, Smoked
from tools.maintain.rebase import Action, Move
from tools.report.console import STYLES
from tools.report.data import outcome_data
from tools.report.solving import resolving_data

_MOST_LINES = 40  # of one patch's drift; a pull request's text is bounded
_ACTION_STYLES = {
    Action.KEPT: "dim",
    Action.REFRESHED: "green",
    Action.VARIANT: "yellow",
    Action.RECORDED: "blue",
    Action.DROPPED: "magenta",
    Action.CONFLICT: "bold red",
}


def rebase_data(proposal: Proposal) -> dict[str, Any]:
    """Return a rebase for machines."""
    rebased, published = proposal.rebased, proposal.published
    upstream = rebased.carried.upstream
    return {
        "ref": upstream.ref.name,
        "source": upstream.source,
        "mergeable_unattended": proposal.mergeable_unattended,
        "reasons": list(proposal.reasons),
        "branch": BRANCH if published else None,
        "commit": published.commit if published else None,
        "parent": published.parent if published else None,
        "before": (published.before or None) if published else None,
        "state": published.state.value if published else "nothing to write",
        "files": {name: content is not None for name, content in rebased.files.items()},
        "proved": list(rebased.proved),
        "patches": [_move_data(move) for move in rebased.moves],
        "contract": _contract_data(proposal),
        "smoke": [
            {
                "device": smoke.name.device,
                "transformers": smoke.name.transformers,
                "passed": smoke.cell.passed,
                "date": smoke.cell.date,
                "current": smoke.current,
            }
            for smoke in proposal.smokes
        ],
        "resolve": resolving_data(proposal.resolving) if proposal.resolving else None,
    }


def _move_data(move: Move) -> dict[str, Any]:
    comparison = move.comparison
    return {
        **outcome_data(move.outcome),
        "action": move.action.value,
        "note": move.note or None,
        "expected": move.expected or None,
        "payload": {
            "before": comparison.before,
            "after": comparison.after,
            "same": move.same_payload,
            "lost": [shown(line) for line in comparison.lost],
            "gained": [shown(line) for line in comparison.gained],
        }
        if comparison
        else None,
        "drift": [shown(line) for line in comparison.drift] if comparison else [],
    }


def _contract_data(proposal: Proposal) -> dict[str, Any] | None:
    contracts = proposal.contracts
    if contracts is None:
        return None
    return {
        "compared_with": contracts.previous or None,
        **contracts.report.to_dict(),
        "fresh": [finding.to_dict() for finding in contracts.fresh],
    }


def shown(line: Line) -> str:
    """Return a changed line as one line of text that any terminal and JSON can hold."""
    return _plain(str(line))


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in text)


def rebase_text(proposal: Proposal) -> Group:
    """Return a rebase for a terminal."""
    rebased = proposal.rebased
    upstream = rebased.carried.upstream
    table = Table(title=f"the series on {upstream.ref.name} ({upstream.source}, {upstream.kind})")
    for name in ("patch", "outcome", "payload", "action"):
        table.add_column(name, no_wrap=True)
    table.add_column("why", overflow="fold")
    for move in needed(proposal):
        outcome = move.outcome
        table.add_row(
            Text(outcome.name),
            Text(outcome.outcome, style=STYLES[outcome.outcome]),
            Text(payload_word(move), style="" if move.same_payload else "yellow"),
            Text(move.action, style=_ACTION_STYLES[move.action]),
            Text(move.expected or move.note or outcome.rule),
        )
    idle = idle_names(proposal)
    parts: list[Any] = [table, *([Text(f"not needed there: {idle}")] if idle else [])]
    parts += [*_contract_text(proposal), *_smoke_text(proposal)]
    if proposal.reasons:
        parts.append(Text("a person must look:", style="yellow"))
        parts += [Text(f"  {reason}") for reason in proposal.reasons]
    else:
        parts.append(Text("only the lines around the patches changed: may be merged unattended"))
    return Group(*parts)


def needed(proposal: Proposal) -> list[Move]:
    """Return what is worth a row: all but the patches that have nothing to do and stay."""
    return [
        move
        for move in proposal.rebased.moves
        if move.outcome.outcome is not Outcome.NOT_NEEDED or move.action is not Action.KEPT
    ]


def idle_names(proposal: Proposal) -> str:
    """Return the patches that have nothing to do on the new base and stay, by name."""
    rows = needed(proposal)
    return ", ".join(m.outcome.name for m in proposal.rebased.moves if m not in rows)


def payload_word(move: Move) -> str:
    """Return how a patch's payload fared, in a word."""
    if move.comparison is None:
        return "-"
    return "same" if move.same_payload else "changed"


def _contract_text(proposal: Proposal) -> list[Text]:
    contracts = proposal.contracts
    if contracts is None:
        return [Text("contract: not checked, the carry has conflicts")]
    counts = ", ".join(f"{count} {name}" for name, count in severities(contracts.report.findings))
    lines = [Text(f"contract: {counts or 'no finding'}")]
    lines += [Text(f"  new: {finding_line(finding)}") for finding in contracts.fresh]
    return lines


def _smoke_text(proposal: Proposal) -> list[Text]:
    if not proposal.smokes:
        ref = proposal.rebased.carried.upstream.ref.name
        return [Text(f"smoke: not run on {ref}")]
    return [
        Text(f"smoke on {smoke.name}: {'passed' if smoke.cell.passed else 'failed'}{_of(smoke)}")
        for smoke in proposal.smokes
    ]


def _of(smoke: Smoked) -> str:
    return "" if smoke.current else f" on {smoke.cell.date}, of another carried commit"


def severities(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    """Return how many findings there are of each severity that occurs."""
    counts = [(s.value, sum(f.severity is s for f in findings)) for s in Severity]
    return [(f"{name}s" if count > 1 else name, count) for name, count in counts if count]


def finding_line(finding: Finding) -> str:
    """Return a finding in one line."""
    return f"{finding.code.code} {finding.path}:{finding.line} {finding.message}"


# Text for a code host -----------------------------------------------------------------------------


def code(text: object) -> str:
    """Return text as a Markdown code span that nothing in it can leave, also inside a table."""
    plain = _plain(" ".join(str(text).split()))
    longest = max((len(run) for run in _ticks(plain)), default=0)
    fence = "`" * (longest + 1)
    padded = f" {plain} " if plain[:1] == "`" or plain[-1:] == "`" else plain
    return f"{fence}{padded}{fence}".replace("|", "\\|") if plain else ""


def _ticks(text: str) -> list[str]:
    return ["`" * len(run) for run in "".join(c if c == "`" else " " for c in text).split()]


def drift_lines(move: Move) -> list[str]:
    """Return what changed around a patch, as lines of an indented block, within bounds."""
    drift = move.comparison.drift if move.comparison else ()
    lines = [shown(line) for line in drift[:_MOST_LINES]]
    left = len(drift) - len(lines)
    return [*lines, f"... and {left} lines more"] if left else lines


def _environment(*, autoescape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("tools.report"),
        autoescape=autoescape,  # noqa: S701  (Markdown is no HTML; see rebase_markdown)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "shown": shown}
    return environment


def _names(proposal: Proposal) -> dict[str, Any]:
    return {
        "proposal": proposal,
        "rebased": proposal.rebased,
        "ref": proposal.rebased.carried.upstream.ref.name,
        "contracts": proposal.contracts,
        "moves": needed(proposal),
        "idle": idle_names(proposal),
        "payload_word": payload_word,
        "drift_lines": drift_lines,
        "severities": severities,
    }


def rebase_markdown(proposal: Proposal) -> str:
    """Return the text of a pull request."""
    # Markdown, not HTML: what comes from upstream goes through ``code``.
    environment = _environment(autoescape=False)
    return environment.get_template("rebase.md").render(_names(proposal))


def rebase_page(proposal: Proposal) -> str:
    """Return a rebase as one HTML page that needs nothing beside it."""
    return _environment(autoescape=True).get_template("rebase.html").render(_names(proposal))
