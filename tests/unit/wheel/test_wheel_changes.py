"""A series that needs a compiler is told so by name; what no wheel holds is counted."""

import pytest

from tools.errors import CheckFailed
from tools.wheel.changes import Change, sort_changes

PACKAGES = frozenset({"vllm"})
PROJECT = b'[build-system]\nrequires = ["torch"]\n[project]\nname = "vllm"\n[tool.ruff]\nx = 1\n'


@pytest.mark.parametrize(
    "path",
    [
        "csrc/ops.cu",
        "csrc/README.md",
        "cmake/utils.cmake",
        "CMakeLists.txt",
        "setup.py",
        "setup.cfg",
        "MANIFEST.in",
        "rust/src/lib.rs",
        "rust-toolchain.toml",
        "Cargo.lock",
        "requirements/build/cuda.txt",
        "requirements/build.txt",
        "requirements/common.txt",
        "requirements/cpu.txt",
        "requirements-cuda.txt",
        "vllm/_C.abi3.so",
        "vllm/ops/kernel.cu",
        "vllm/ops/fast.pyx",
    ],
)
def test_compiled_or_build_file_is_refused_by_name(path):
    for change in (Change(b"1", b"2"), Change(None, b"2"), Change(b"1", None)):
        with pytest.raises(CheckFailed, match="cannot be repacked") as caught:
            sort_changes({path: change, "vllm/a.py": Change(b"1", b"2")}, PACKAGES)
        assert path in caught.value.message
        assert caught.value.hint == "build from source instead"


def test_many_build_files_are_counted_and_the_first_named():
    changes = {f"csrc/{n}.cu": Change(None, b"") for n in range(9)}
    with pytest.raises(CheckFailed, match=r"touches 9 .*csrc/0\.cu.*\.\.\.") as caught:
        sort_changes(changes, PACKAGES)
    assert "csrc/8.cu" not in caught.value.message


@pytest.mark.parametrize(
    "path",
    [
        "docs/models/supported_models.md",
        "examples/offline_inference/vision_language.py",
        "tests/models/registry.py",
        "tests/kernels/helper.cu",
        "examples/x/CMakeLists.txt",
        "requirements/test.txt",
        "requirements/test/cuda.txt",
        "requirements/docs.in",
        "README.md",
        "vllm",
        "vllm_other/x.py",
    ],
)
def test_path_outside_the_packages_is_counted(path):
    found = sort_changes({path: Change(b"1", b"2"), "vllm/a.py": Change(b"1", b"2")}, PACKAGES)
    assert list(found.inside) == ["vllm/a.py"]
    assert found.outside == 1


@pytest.mark.parametrize(
    ("new", "refused"),
    [
        (PROJECT.replace(b"x = 1", b"x = 2"), False),
        (PROJECT.replace(b"torch", b"torch==2"), True),
        (PROJECT.replace(b'"vllm"', b'"other"'), True),
        (PROJECT + b"[tool.setuptools.packages.find]\nwhere = ['.']\n", True),
        (b"not toml [", True),
        (None, True),
    ],
)
def test_pyproject_is_refused_for_its_build_part_only(new, refused):
    changes = {"pyproject.toml": Change(PROJECT, new)}
    if refused:
        with pytest.raises(CheckFailed, match=r"pyproject\.toml"):
            sort_changes(changes, PACKAGES)
    else:
        assert sort_changes(changes, PACKAGES).outside == 1


def test_paths_are_sorted():
    changes = {f"vllm/{name}.py": Change(None, b"") for name in "bca"}
    assert list(sort_changes(changes, PACKAGES).inside) == ["vllm/a.py", "vllm/b.py", "vllm/c.py"]
