import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.smoke import checkpoint, quantised
from tools.smoke.checkpoint import Variant, Weights
from tools.smoke.tensors import TEXT, random_tensors
from tools.smoke.weights import spread

QUANTISED = Variant(quantised=True)


def value(code: int) -> float:
    """Decode E4M3 by its definition, apart from the table under test."""
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    size = mantissa / 8 * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


@pytest.mark.parametrize(
    ("number", "code"),
    [(0.0, 0x00), (1.0, 0x38), (-2.0, 0xC0), (448.0, 0x7E), (1e9, 0x7E), (2.0**-9, 0x01)],
)
def test_known_numbers_have_known_codes(number: float, code: int) -> None:
    assert quantised.float8(number) == code


@given(st.integers(0, 0xFE).filter(lambda code: code & 0x7F not in (0, 0x7F)))
def test_every_code_is_its_own_nearest(code: int) -> None:
    assert quantised.float8(value(code)) == code


@given(st.floats(-448, 448))
def test_no_code_is_nearer(number: float) -> None:
    error = abs(value(quantised.float8(number)) - number)
    assert all(error <= abs(value(code) - number) for code in range(0x7F))


def test_a_quantised_matrix_is_near_the_plain_one() -> None:
    plain = spread("x", (4, 64), 0.06)
    codes, scale = quantised.quantise(plain)
    (bits,) = struct.unpack("<H", scale.data[:2])
    (factor,) = struct.unpack("<f", struct.pack("<I", bits << 16))
    halves = struct.unpack(f"<{4 * 64}H", plain.data)
    numbers = [struct.unpack("<f", struct.pack("<I", half << 16))[0] for half in halves]
    largest = max(map(abs, numbers))
    assert (scale.shape, codes.kind, len(codes.data)) == ((4, 1), "F8_E4M3", 4 * 64)
    for number, code in zip(numbers, codes.data, strict=True):
        assert abs(value(code) * factor - number) <= largest / 16


def test_only_the_decoder_is_quantised() -> None:
    before, after = random_tensors(), quantised.quantised_tensors(random_tensors())
    changed = {name for name in before if before[name] != after[name]}
    assert len(changed) == 7 * TEXT.layers
    assert all(name.startswith("model.language_model.layers.") for name in changed)
    assert set(after) - set(before) == {f"{name}_scale" for name in changed}


def test_every_plain_linear_layer_is_on_the_list() -> None:
    config = json.loads(checkpoint.checkpoint_files(QUANTISED)["config.json"])
    ignored = config["quantization_config"]["ignore"]
    tensors = quantised.quantised_tensors(random_tensors())
    linear = {
        name.removesuffix(".weight")
        for name, tensor in tensors.items()
        if len(tensor.shape) == 2 and f"{name}_scale" not in tensors and "embed" not in name
    }
    assert {name for name in linear if not name.endswith("_scale")} == set(ignored)


def test_a_quantised_accepting_checkpoint_still_adds_nothing() -> None:
    files = checkpoint.checkpoint_files(Variant(weights=Weights.ACCEPTING, quantised=True))
    plain = checkpoint.checkpoint_files(Variant(weights=Weights.ACCEPTING))
    assert len(files["model.safetensors"]) < len(plain["model.safetensors"])
