"""What the scripted checkpoint says: a thought, an answer, and a call of a function.

In the accepting kind of checkpoint each token has one successor, whatever came before. So a script
in which no token comes twice is said word for word from any of its tokens on: after the mark that
opens reasoning the model thinks first, after an empty thought it answers at once. Its parts are
single tokens, in places of the tokenizer that are reserved otherwise.
"""

import functools
import itertools
import json

from tools.smoke import tokenizer

_THOUGHT = ("They ask for the weather,", " so I look it up.")
_ANSWER = ("One moment,", " please.")
THOUGHT, ANSWER = "".join(_THOUGHT), "".join(_ANSWER)
FUNCTION = "weather"
ARGUMENTS = {"city": "Seoul", "days": 2}
BLANK = "\n\n"
OPEN, CLOSE = "<tool_call>", "</tool_call>"
# All in several parts, so that each arrives in several pieces when it is streamed.
_CALL = ('{"name": "weather", ', '"arguments": ', '{"city": "Seoul", ', '"days": 2}}')
_FIRST = 80
_TEXTS = (*_THOUGHT, BLANK, *_ANSWER, OPEN, *_CALL, CLOSE)
TOKENS = {_FIRST + place: text for place, text in enumerate(_TEXTS)}
_THINKING = tuple(TOKENS)[: len(_THOUGHT)]
_BLANK, *_REST = tuple(TOKENS)[len(_THOUGHT) :]


def newline() -> int:
    """Return the token of one line break, after which the model thinks."""
    return tokenizer.vocabulary().ids[tokenizer.byte_symbols()[0x0A]]


def thinking() -> tuple[int, ...]:
    """Return what follows one line break, to the end of the turn."""
    return (*_THINKING, tokenizer.END_THINK, _BLANK, *answering())


def answering() -> tuple[int, ...]:
    """Return what follows a blank line, to the end of the turn."""
    return (*_REST, tokenizer.EOS)


@functools.cache
def _successors() -> dict[int, int]:
    chain = (newline(), *thinking())
    follows = dict(itertools.pairwise(chain))
    # The other tokens follow each other in any way that makes a permutation of it all.
    sources = [token for token in range(tokenizer.VOCABULARY) if token not in follows]
    taken = set(follows.values())
    targets = [token for token in range(tokenizer.VOCABULARY) if token not in taken]
    return follows | dict(zip(sources, targets, strict=True))


def successor(token: int) -> int:
    """Return the token that the scripted checkpoint puts after ``token`` (a permutation)."""
    return _successors()[token]


def called() -> tuple[str, str]:
    """Return the function that the script calls, and its arguments as the model writes them."""
    written = "".join(_CALL)
    return json.loads(written)["name"], written.partition('"arguments": ')[2].removesuffix("}")
