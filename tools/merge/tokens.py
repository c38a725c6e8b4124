"""Python text without its layout."""

import keyword
import re

_KEYWORDS = {word.encode() for word in keyword.kwlist}
_OPENERS, _CLOSERS = b"([{", b")]}"
_TOKEN = re.compile(
    rb"""
      (?P<string>[A-Za-z]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
                 |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    | \#[^\r\n]*
    | [^\W\d][\w.]* | [\w.]+ | [\x80-\xff]+
    | ->|:=|\*\*=?|//=?|<<=?|>>=?|[=!<>+\-*/%@&|^]=?
    | [^\s\\]
    """,
    re.VERBOSE | re.DOTALL,
)
_PLAIN_QUOTE = re.compile(rb"([A-Za-z]{0,2})'([^'\"\\\n]*)'\Z")
_TRAILING_COMMA = re.compile(rb",\s*(?:#[^\n]*\s*)*[)\]}]")
_DROPPED = b" \t\r\n\f\\,"
_QUOTES = bytes.maketrans(b"'", b'"')
# Text in which layout cannot hide: one name, number or operator.
_BARE = re.compile(rb"[\w.]+\Z")


def squeezed(text: bytes) -> bytes:
    """Return the text without blanks, commas and the choice of quotes.

    Much cheaper than :func:`tokens` and good enough to find what may be equal: equal tokens have
    equal squeezed text, but not the other way round.
    """
    return text.translate(_QUOTES, _DROPPED)


def tokens(text: bytes) -> bytes:
    """Return the tokens of an expression or a simple statement, separated by one blank."""
    if _BARE.match(text):
        return text
    found = [match.group() for match in _TOKEN.finditer(text)]
    if _TRAILING_COMMA.search(text):
        found = _without_trailing_commas(found)
    if b"'" in text:
        found = [_PLAIN_QUOTE.sub(rb'\1"\2"', token) for token in found]
    return b" ".join(found)


def _without_trailing_commas(found: list[bytes]) -> list[bytes]:
    out: list[bytes] = []
    # For each open bracket: commas so far, and whether it is a call or a subscript.
    stack: list[list[int]] = []
    for token in found:
        if len(token) == 1 and token in _OPENERS:
            before = out[-1] if out and out[-1] not in _KEYWORDS else b""
            follows = before[-1:].isalnum() or before[-1:] in (b"_", b")", b"]")
            stack.append([0, token == b"{" or follows == (token == b"(")])
        elif len(token) == 1 and token in _CLOSERS and stack:
            commas, free = stack.pop()
            at = len(out) - 1
            while at >= 0 and out[at].startswith(b"#"):
                at -= 1
            # `(a,)` and `x[a,]` are tuples: there the comma is no layout.
            if at >= 0 and out[at] == b"," and (free or commas > 1):
                del out[at]
        elif token == b"," and stack:
            stack[-1][0] += 1
        out.append(token)
    return out
