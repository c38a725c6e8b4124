import json

from hypothesis import given
from hypothesis import strategies as st

from tools.smoke import tokenizer

SYMBOLS = tokenizer.byte_symbols()
IDS = tokenizer.vocabulary().ids


def test_vocabulary_is_dense_and_has_exaones_ids() -> None:
    vocab = tokenizer.vocabulary()
    assert sorted(vocab.ids.values()) == list(range(tokenizer.VOCABULARY))
    for text, token in {"[PAD]": 0, "[BOS]": 1, "[|endofturn|]": 53, "<|image_pad|>": 67}.items():
        assert vocab.ids[text] == token
    assert vocab.ids["<vision>"] == 73
    assert vocab.ids["</vision>"] == 74


def test_each_merge_joins_known_tokens_into_a_known_one() -> None:
    vocab = tokenizer.vocabulary()
    for left, right in vocab.merges:
        assert {left, right, left + right} <= vocab.ids.keys()
    assert len(vocab.merges) == tokenizer.VOCABULARY - tokenizer.FIRST_BYTE - 256


def test_bytes_have_distinct_printable_symbols() -> None:
    symbols = tokenizer.byte_symbols()
    assert len(set(symbols)) == 256
    assert symbols[ord("A")] == "A"
    assert symbols[0x20] == "\u0120"


@given(st.text())
def test_any_text_has_only_known_symbols(text: str) -> None:
    assert all(SYMBOLS[byte] in IDS for byte in text.encode())


def test_files_name_no_class_or_list_that_transformers_4_refuses() -> None:
    files = tokenizer.tokenizer_files()
    config = files["tokenizer_config.json"]
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "extra_special_tokens" not in config
    assert json.loads(json.dumps(files)) == files


def test_reasoning_marks_stay_visible_in_decoded_text() -> None:
    added = {t["content"]: t for t in tokenizer.tokenizer_files()["tokenizer.json"]["added_tokens"]}
    assert not added["<think>"]["special"]
    assert added["<|image_pad|>"]["special"]
