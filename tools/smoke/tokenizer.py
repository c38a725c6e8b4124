"""The tokenizer of the tiny checkpoint: 512 byte-level BPE tokens at EXAONE's special ids.

The files are written by hand so that transformers 4.57 and 5.x read them alike: a saved tokenizer
of 5.x names classes and list-valued fields that 4.x refuses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

VOCABULARY = 512
# Ids of the published tokenizer; the other ids below FIRST_BYTE are reserved tokens.
PAD, BOS, EOS, THINK, END_THINK = 0, 1, 53, 54, 55
IMAGE, VIDEO, VISION, END_VISION = 67, 68, 73, 74
SPECIAL = {
    PAD: "[PAD]",
    BOS: "[BOS]",
    EOS: "[|endofturn|]",
    THINK: "<think>",
    END_THINK: "</think>",
    2: "[|system|]",
    3: "[|user|]",
    4: "[|assistant|]",
    5: "[|tool|]",
    IMAGE: "<|image_pad|>",
    VIDEO: "<|video_pad|>",
    VISION: "<vision>",
    END_VISION: "</vision>",
}
# Reasoning marks are ordinary text to a decoder: parsers look for them in what a user sees.
VISIBLE = (THINK, END_THINK)
FIRST_BYTE = 100
NO_MORE: Mapping[int, str] = MappingProxyType({})
TEXT = (
    "the of and in to is that for it with as was on are this by from be or which an at "
    "what image picture video shows colour left right first second frame answer describe between "
    "one two three user model question small large same other where there under over"
)


@dataclass(frozen=True)
class Vocabulary:
    """Token text to id, and the merges in order of rank."""

    ids: dict[str, int]
    merges: tuple[tuple[str, str], ...]


def byte_symbols() -> list[str]:
    """Return the printable character that stands for each of the 256 bytes in byte-level BPE.

    Printable Latin-1 characters stand for themselves and the rest for U+0100 onwards in order,
    which is the mapping of GPT-2 that the `ByteLevel` steps of a tokenizer file imply.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]


def vocabulary(more: Mapping[int, str] = NO_MORE) -> Vocabulary:
    """Return the vocabulary: reserved tokens, bytes, then merges that build common words.

    Args:
        more: Texts of reserved tokens by id.
    """
    names = {**SPECIAL, **more}
    ids = {names.get(token, f"[unused{token}]"): token for token in range(FIRST_BYTE)}
    symbols = byte_symbols()
    for symbol in symbols:
        ids[symbol] = len(ids)
    merges: list[tuple[str, str]] = []
    for word in TEXT.split():
        built = symbols[0x20]
        for letter in word:
            if built + letter not in ids and len(ids) < VOCABULARY:
                ids[built + letter] = len(ids)
                merges.append((built, letter))
            if built + letter not in ids:
                break
            built += letter
    return Vocabulary(ids, tuple(merges))


def decode(tokens: Sequence[int], more: Mapping[int, str] = NO_MORE) -> str:
    """Return the text of tokens, special ones included.

    Args:
        tokens: Ids.
        more: Texts of reserved tokens by id.
    """
    texts = {token: text for text, token in vocabulary(more).ids.items()}
    values = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    data = bytearray()
    for token in tokens:
        text = texts[token]
        data += text.encode() if token < FIRST_BYTE else bytes(values[symbol] for symbol in text)
    return data.decode("utf-8", errors="replace")


def tokenizer_files(more: Mapping[int, str] = NO_MORE) -> dict[str, object]:
    """Return the JSON documents of the tokenizer by file name.

    Args:
        more: Texts of reserved tokens by id; they are ordinary text to a decoder.
    """
    vocab = vocabulary(more)
    added = [
        {
            "id": token,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token not in VISIBLE and token not in more,
        }
        for text, token in vocab.ids.items()
        if token < FIRST_BYTE
    ]
    # The BPE model holds every id, so that the reserved ones are not handed out again.
    byte_level = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"add_prefix_space": False, **byte_level},
        "post_processor": None,
        "decoder": {"add_prefix_space": True, **byte_level},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab.ids,
            "merges": [list(pair) for pair in vocab.merges],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "pad_token": SPECIAL[PAD],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "added_tokens_decoder": {
            str(entry["id"]): {key: value for key, value in entry.items() if key != "id"}
            for entry in added
        },
    }
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
