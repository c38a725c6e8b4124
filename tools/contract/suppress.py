"""Ignore comments: ``# contract: ignore[CODE] reason``, on the line of the finding or above it."""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tools.contract.findings import CODES, Code, Finding, Site
from tools.contract.source import ModuleInfo

_COMMENT = re.compile(r"#\s*contract:\s*ignore\b(?:\[([^\]]*)\])?\s*(.*)")


@dataclass(frozen=True)
class Ignore:
    """One ignore comment.

    Attributes:
        path: File it stands in.
        line: Its own line.
        covers: The lines that it covers: its own, or where it stands alone the next line of code.
        codes: The rules that it names.
        reason: Why.
    """

    path: str
    line: int
    covers: frozenset[int]
    codes: frozenset[str]
    reason: str


def ignores(module: ModuleInfo) -> Iterator[Ignore]:
    """Yield the ignore comments of a module, malformed ones included."""
    if b"contract:" not in module.source:
        return
    try:
        tokens = list(tokenize.tokenize(io.BytesIO(module.source).readline))
    except (tokenize.TokenError, SyntaxError):
        return
    code_lines = sorted(
        {
            token.start[0]
            for token in tokens
            if token.type
            not in {
                tokenize.COMMENT,
                tokenize.NL,
                tokenize.NEWLINE,
                tokenize.INDENT,
                tokenize.DEDENT,
                tokenize.ENCODING,
                tokenize.ENDMARKER,
            }
        }
    )
    for token in tokens:
        match = _COMMENT.match(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        line = token.start[0]
        covers = {line}
        if line not in code_lines:
            covers.add(next((other for other in code_lines if other > line), line))
        codes = frozenset(code.strip() for code in (match[1] or "").split(",") if code.strip())
        yield Ignore(module.path, line, frozenset(covers), codes, match[2].strip())


def apply_ignores(
    findings: Iterable[Finding], modules: Iterable[ModuleInfo]
) -> tuple[list[Finding], list[Finding]]:
    """Divide findings into those that stand and those that a comment with a reason covers.

    A comment that covers nothing, or names no known code or no reason, is itself a finding.
    """
    comments = [ignore for module in modules for ignore in ignores(module)]
    valid = [c for c in comments if c.codes and c.reason and c.codes <= CODES.keys()]
    standing: list[Finding] = []
    covered: list[Finding] = []
    used: set[tuple[Ignore, str]] = set()
    for finding in findings:
        hits = [
            c
            for c in valid
            if c.path == finding.path and finding.line in c.covers and finding.code.code in c.codes
        ]
        (covered if hits else standing).append(finding)
        used.update((hit, finding.code.code) for hit in hits)
    for comment in comments:
        if comment not in valid:
            unknown = sorted(comment.codes - CODES.keys())
            what = f"unknown code {', '.join(unknown)}" if unknown else "no code or no reason"
            standing.append(_about(Code.BAD_IGNORE, comment, f"the ignore comment has {what}"))
            continue
        for code in sorted(comment.codes):
            if (comment, code) not in used:
                text = f"nothing here needs ignore[{code}]"
                standing.append(_about(Code.UNUSED_IGNORE, comment, text))
    return standing, covered


def _about(code: Code, comment: Ignore, message: str) -> Finding:
    here = Site(comment.path, comment.line)
    hint = "write `# contract: ignore[CODE] reason`" if code is Code.BAD_IGNORE else "remove it"
    return Finding(code, comment.path, comment.line, message, (here,), hint)
