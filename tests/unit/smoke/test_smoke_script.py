import json

from tools.smoke import checkpoint, script, tokenizer
from tools.smoke.checkpoint import Variant, Weights

SCRIPTED = Variant(weights=Weights.SCRIPTED, chat=True)


def follow(token: int, count: int) -> tuple[int, ...]:
    found = []
    for _ in range(count):
        token = script.successor(token)
        found.append(token)
    return tuple(found)


def test_each_token_has_one_predecessor() -> None:
    assert sorted(map(script.successor, range(tokenizer.VOCABULARY))) == [
        *range(tokenizer.VOCABULARY)
    ]


def test_a_line_break_leads_to_a_thought_and_a_blank_line_to_the_answer() -> None:
    thinking, answering = script.thinking(), script.answering()
    assert follow(script.newline(), len(thinking)) == thinking
    (blank,) = (token for token, text in script.TOKENS.items() if text == script.BLANK)
    assert thinking[thinking.index(blank) + 1 :] == answering
    assert follow(blank, len(answering)) == answering
    assert thinking[-1] == answering[-1] == tokenizer.EOS


def test_the_script_says_a_thought_an_answer_and_a_call() -> None:
    name, arguments = script.called()
    said = tokenizer.decode(script.thinking(), script.TOKENS)
    call = f'{{"name": "{name}", "arguments": {arguments}}}'
    assert said == (
        f"{script.THOUGHT}</think>{script.BLANK}{script.ANSWER}"
        f"{script.OPEN}{call}{script.CLOSE}[|endofturn|]"
    )
    assert (name, json.loads(arguments)) == (script.FUNCTION, script.ARGUMENTS)


def test_the_scripted_tokenizer_holds_the_parts_as_ordinary_text() -> None:
    files = checkpoint.checkpoint_files(SCRIPTED)
    added = {e["id"]: e for e in json.loads(files["tokenizer.json"])["added_tokens"]}
    for token, text in script.TOKENS.items():
        assert (added[token]["content"], added[token]["special"]) == (text, False)


def test_without_a_script_the_tokenizer_is_the_same_as_before() -> None:
    assert tokenizer.tokenizer_files() == tokenizer.tokenizer_files({})
    assert not set(script.TOKENS) & {*tokenizer.SPECIAL}
    assert max(script.TOKENS) < tokenizer.FIRST_BYTE


def test_decoding_gives_back_what_the_vocabulary_spells() -> None:
    ids = tokenizer.vocabulary().ids
    letters = [ids[symbol] for symbol in "Caf"]
    accent = [ids[tokenizer.byte_symbols()[byte]] for byte in "é".encode()]
    text = tokenizer.decode([tokenizer.BOS, *letters, *accent, script.newline()])
    assert text == "[BOS]Café\n"
    assert tokenizer.decode(accent[:1]) == "\N{REPLACEMENT CHARACTER}"
