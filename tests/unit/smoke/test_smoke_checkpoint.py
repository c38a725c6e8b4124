import json
import struct
from pathlib import Path

import pytest

from tools.smoke import checkpoint, tokenizer
from tools.smoke.checkpoint import Shape, Variant, Weights
from tools.smoke.golden import load
from tools.smoke.tensors import TEXT, accepting_tensors, next_token, random_tensors
from tools.smoke.weights import bfloat16, spread

ROOT = Path(__file__).parents[3]
PUBLISHED, SAVED = Variant(Shape.PUBLISHED), Variant(Shape.SAVED)


def header(data: bytes) -> dict[str, dict[str, object]]:
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])


def config(variant: Variant) -> dict[str, object]:
    return json.loads(checkpoint.checkpoint_files(variant)["config.json"])


def test_the_bytes_are_those_the_golden_file_was_made_with() -> None:
    load(ROOT / "tests" / "golden" / "tokens.json").check_current()


def test_shapes_share_their_weights_and_differ_in_config_alone() -> None:
    one, other = checkpoint.checkpoint_files(PUBLISHED), checkpoint.checkpoint_files(SAVED)
    assert {name for name in one if one[name] != other[name]} == {"config.json"}


def test_safetensors_layout_has_no_gap_and_ends_with_the_file() -> None:
    data = checkpoint.checkpoint_files(PUBLISHED)["model.safetensors"]
    (length,) = struct.unpack("<Q", data[:8])
    entries = header(data)
    entries.pop("__metadata__")
    spans = sorted(entry["data_offsets"] for entry in entries.values())
    assert length % 8 == 0
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == len(data) - 8 - length


def test_published_config_spells_what_the_vendor_spells() -> None:
    document = config(PUBLISHED)
    text = document["text_config"]
    assert text["model_type"] == "exaone4_5_text"
    assert text["rope_scaling"]["rope_theta"] == 1e6
    assert "rope_parameters" not in text
    assert "head_dim" not in text
    assert document["vocab_size"] == text["vocab_size"] == tokenizer.VOCABULARY


def test_saved_config_spells_what_transformers_5_spells() -> None:
    document = config(SAVED)
    text = document["text_config"]
    assert text["model_type"] == "exaone4"
    assert text["rope_parameters"]["rope_type"] == "llama3"
    assert "rope_scaling" not in text
    assert "vocab_size" not in document


def test_extra_layer_type_is_one_more_and_nothing_else_changes() -> None:
    plain, extra = config(PUBLISHED), config(Variant(extra_layer_type=True))
    assert extra["text_config"].pop("layer_types") == [
        *plain["text_config"].pop("layer_types"),
        "sliding_attention",
    ]
    assert plain == extra


def test_windows_are_smaller_than_what_the_prompts_hold() -> None:
    golden = load(ROOT / "tests" / "golden" / "tokens.json")
    shortest = min(len(a.prompt_ids) for a in golden.answers[Shape.PUBLISHED].values())
    assert PUBLISHED.window < shortest / 2
    assert TEXT.layer_types.count("full_attention") == 1


def test_accepting_successor_is_a_permutation_and_the_head_holds_it() -> None:
    tensors = accepting_tensors()
    width = 2 * TEXT.hidden
    embedding = tensors["model.language_model.embed_tokens.weight"].data
    head = tensors["lm_head.weight"].data
    followers = {next_token(token) for token in range(tokenizer.VOCABULARY)}
    assert followers == set(range(tokenizer.VOCABULARY))
    for token in range(tokenizer.VOCABULARY):
        follower = next_token(token)
        row = head[width * follower : width * (follower + 1)]
        assert row == embedding[width * token : width * (token + 1)]


def test_accepting_decoder_layers_add_nothing() -> None:
    tensors = accepting_tensors()
    norms = [
        n for n in tensors if n.endswith(("attention_layernorm.weight", "forward_layernorm.weight"))
    ]
    assert len(norms) == 2 * (TEXT.layers + 1)
    assert all(set(tensors[name].data) == {0} for name in norms)


def test_a_written_checkpoint_is_found_again_and_not_rewritten(tmp_path: Path) -> None:
    first = checkpoint.write_checkpoint(PUBLISHED, tmp_path / "cache")
    stamp = (first / "config.json").stat().st_mtime_ns
    assert checkpoint.write_checkpoint(PUBLISHED, tmp_path / "cache") == first
    assert (first / "config.json").stat().st_mtime_ns == stamp
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.name]


def test_a_changed_window_has_another_directory(tmp_path: Path) -> None:
    wide = Variant(window=4096)
    assert checkpoint.write_checkpoint(wide, tmp_path) != checkpoint.write_checkpoint(
        PUBLISHED, tmp_path
    )


def test_two_writers_of_one_checkpoint_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"config.json": b"{}"}
    target = tmp_path / "checkpoint"
    rename = Path.rename

    def lose_the_race(self: Path, to: Path) -> Path:
        to.mkdir()
        (to / "config.json").write_bytes(b"{}")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", lose_the_race)
    checkpoint.publish(files, target)
    assert (target / "config.json").read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.0, "803f"), (-2.0, "00c0"), (0.0, "0000"), (1 + 2**-8, "803f"), (1 + 3 * 2**-8, "823f")],
)
def test_bfloat16_rounds_to_nearest_and_ties_to_even(value: float, expected: str) -> None:
    assert bfloat16(value).hex() == expected


def test_a_tensor_depends_on_its_name_alone() -> None:
    assert spread("a", (4, 8), 1.0) == spread("a", (4, 8), 1.0)
    assert spread("a", (4, 8), 1.0) != spread("b", (4, 8), 1.0)


def test_placeholder_tokens_are_never_answered() -> None:
    tensors = random_tensors()
    width = 2 * TEXT.hidden
    for token in (tokenizer.IMAGE, tokenizer.VIDEO):
        row = tensors["lm_head.weight"].data[width * token : width * (token + 1)]
        assert set(row) == {0}


def test_accepting_weights_are_not_the_random_ones() -> None:
    accepting = checkpoint.checkpoint_files(Variant(weights=Weights.ACCEPTING))
    assert (
        accepting["model.safetensors"]
        != checkpoint.checkpoint_files(PUBLISHED)["model.safetensors"]
    )


def test_undrafted_weights_lack_the_mtp_module_alone() -> None:
    files = checkpoint.checkpoint_files(Variant(weights=Weights.UNDRAFTED))
    lacking = set(header(checkpoint.checkpoint_files(PUBLISHED)["model.safetensors"])) - set(
        header(files["model.safetensors"])
    )
    assert lacking == {name for name in random_tensors() if name.startswith("mtp.")}
