"""What both child scripts share: pixels from a job, a result written aside and renamed.

A child script runs in another environment, where this project is not installed: it and this
module import nothing but the standard library, and the rest by name when it is needed. So a
missing package is a result like any other, and the tools are checked without vLLM or torch.
"""

import base64
import hashlib
import importlib
import io
import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def frames(document: Mapping[str, Any]) -> Any:
    """Return a numpy array (frames, height, width, 3) of the pixels in a job."""
    numpy = importlib.import_module("numpy")
    raw = numpy.frombuffer(base64.b64decode(document["rgb"]), dtype=numpy.uint8)
    return raw.reshape(document["frames"], document["height"], document["width"], 3).copy()


def pictures(documents: list[Mapping[str, Any]]) -> list[Any]:
    """Return a PIL image for each picture in a job."""
    image = importlib.import_module("PIL.Image")
    return [image.fromarray(frames(document)[0]) for document in documents]


def data_url(picture: Any) -> str:
    """Return a picture as a ``data:`` URL, without loss."""
    file = io.BytesIO()
    picture.save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def projected(rows: Any) -> list[float]:
    """Return the rows of a torch matrix, each projected onto eight vectors of random signs."""
    numpy = importlib.import_module("numpy")
    matrix = rows.detach().double().cpu().numpy()
    bits = numpy.frombuffer(hashlib.shake_256(b"signs").digest(matrix.shape[1]), numpy.uint8)
    signs = numpy.unpackbits(bits).reshape(matrix.shape[1], 8) * 2.0 - 1.0
    return [float(value) for value in (matrix @ signs).ravel()]


def write_result(result: Mapping[str, Any], target: Path) -> None:
    """Write the result as JSON, aside and then renamed."""
    aside = target.with_suffix(".new")
    aside.write_text(json.dumps(result), encoding="utf-8")
    aside.replace(target)


def failure(error: BaseException) -> dict[str, str]:
    """Return an error as one line and as a traceback."""
    line = "".join(traceback.format_exception_only(type(error), error))
    trace = "".join(traceback.format_exception(error))
    return {"error": " ".join(line.split()), "trace": trace}
