"""Weights from names alone, and the safetensors file that holds them.

Every value follows from a hash of the tensor's name, so the file has the same bytes on every
machine, whatever Python, numpy or torch it has (none of the latter two is needed). Values are
bfloat16, like the published checkpoint's: converting them to float32 is exact.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

LEVELS = 256
BFLOAT16 = "BF16"
FLOAT8 = "F8_E4M3"
SIZES = {BFLOAT16: 2, FLOAT8: 1}


@dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint.

    Args:
        shape: Its shape.
        data: Its little-endian elements, row by row.
        kind: What the elements are, as a safetensors file names it.
    """

    shape: tuple[int, ...]
    data: bytes
    kind: str = BFLOAT16

    def __post_init__(self) -> None:
        if len(self.data) != SIZES[self.kind] * math.prod(self.shape):
            raise ValueError(f"{len(self.data)} bytes do not fill the shape {self.shape}")


def bfloat16(value: float) -> bytes:
    """Return ``value`` rounded to the nearest bfloat16 (ties to even), little-endian."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    # The upper half of a float32 is a bfloat16; adding just under half a unit rounds it.
    return struct.pack("<H", (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


def spread(name: str, shape: tuple[int, ...], std: float, mean: float = 0.0) -> Tensor:
    """Return a tensor of 256 evenly spaced levels, chosen by a hash of ``name``.

    Args:
        name: The tensor's name, with any seed in it.
        shape: The tensor's shape.
        std: Standard deviation of the (uniform) distribution.
        mean: Its mean.
    """
    step = std * math.sqrt(12.0) / LEVELS
    levels = [bfloat16(mean + step * (level - (LEVELS - 1) / 2)) for level in range(LEVELS)]
    return _from_levels(name, shape, levels)


def fill(shape: tuple[int, ...], value: float) -> Tensor:
    """Return a tensor whose elements all are ``value``."""
    return Tensor(shape, bfloat16(value) * math.prod(shape))


def stack_rows(rows: Sequence[bytes], width: int) -> Tensor:
    """Return a matrix of the given rows, each ``width`` bfloat16 values."""
    return Tensor((len(rows), width), b"".join(rows))


def rows_of(tensor: Tensor) -> list[bytes]:
    """Return the bytes of each row of a matrix."""
    height, width = tensor.shape
    return [tensor.data[2 * width * row : 2 * width * (row + 1)] for row in range(height)]


def from_function(shape: tuple[int, int], value: Callable[[int, int], float]) -> Tensor:
    """Return a matrix from a function of row and column."""
    cells = (bfloat16(value(row, column)) for row in range(shape[0]) for column in range(shape[1]))
    return Tensor(shape, b"".join(cells))


def _from_levels(name: str, shape: tuple[int, ...], levels: Sequence[bytes]) -> Tensor:
    """Return a tensor whose elements are picked from 256 levels by the hash stream of ``name``."""
    count = math.prod(shape)
    stream = hashlib.shake_256(name.encode()).digest(count)
    data = bytearray(2 * count)
    # Two byte-wise translations, interleaved: millions of values without a Python loop.
    data[0::2] = stream.translate(bytes(level[0] for level in levels))
    data[1::2] = stream.translate(bytes(level[1] for level in levels))
    return Tensor(shape, bytes(data))


def safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Return a safetensors file: header length, JSON header padded to 8 bytes, then the data.

    The layout is that of https://huggingface.co/docs/safetensors (format section): offsets are
    relative to the end of the header and leave no gap.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        end = offset + len(tensors[name].data)
        header[name] = {
            "dtype": tensors[name].kind,
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors[n].data for n in sorted(tensors))
