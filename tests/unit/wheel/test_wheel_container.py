"""The container recipe names exactly one image and one wheel, and passes the linter."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.errors import BadInput
from tools.wheel.container import container_recipe, write_recipe

FULL = "vllm-0.32.0+exaone.1-cp38-abi3-manylinux_2_28_x86_64.whl"
DELTA = "vllm_exaone_delta-0.32.0+exaone.1-py3-none-any.whl"
SUM = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("device", "wheel", "name", "image"),
    [
        ("cuda", FULL, "Containerfile.cuda", "docker.io/vllm/vllm-openai:v0.32.0"),
        ("cuda", DELTA, "Containerfile.cuda.delta", "docker.io/vllm/vllm-openai:v0.32.0"),
        ("cpu", DELTA, "Containerfile.cpu.delta", "docker.io/vllm/vllm-openai-cpu:v0.32.0-x86_64"),
    ],
)
def test_recipe_is_from_upstreams_image_and_passes_the_linter(tmp_path, device, wheel, name, image):
    recipe = container_recipe("v0.32.0", device, wheel, SUM)
    assert recipe.name == name
    lines = recipe.text.splitlines()
    assert [line for line in lines if line.startswith("FROM")] == [f"FROM {image}"]
    assert f'= "{SUM}  -"' in recipe.text
    assert ("vllm_exaone_delta verify" in recipe.text) == (wheel == DELTA)
    assert recipe.text.endswith("\n")
    assert "\\\n\n" not in recipe.text
    file = write_recipe(tmp_path, recipe)
    assert file.read_text() == recipe.text
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists() and shutil.which("hadolint") is None:
        pytest.skip("hadolint is not installed")
    program = str(linter) if linter.exists() else "hadolint"
    done = subprocess.run([program, str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_image_by_digest_is_taken_as_it_is():
    image = f"registry.example:5000/team/vllm@sha256:{SUM}"
    assert f"FROM {image}\n" in container_recipe("v0.32.0", "cuda", FULL, SUM, image).text


@pytest.mark.parametrize(
    ("release", "device", "wheel", "sha256", "image", "message"),
    [
        ("main", "cuda", FULL, SUM, None, "not a release"),
        ("v0.32.0\nRUN x", "cuda", FULL, SUM, None, "not a release"),
        ("v0.32.0", "rocm", FULL, SUM, None, "no device"),
        ("v0.32.0", "cuda", FULL, "abc", None, "not a SHA-256"),
        ("v0.32.0", "cuda", FULL, SUM, "image\nRUN x", "not the name of an image"),
        ("v0.32.0", "cuda", FULL, SUM, "$IMAGE", "not the name of an image"),
        ("v0.31.0", "cuda", FULL, SUM, None, "not a wheel of v0.31.0"),
        ("v0.32.0", "cuda", "x;reboot-0.32.0-py3-none-any.whl", SUM, None, "wheel|plain"),
        ("v0.32.0", "cpu", FULL, SUM, None, "does not fit upstream's CPU image"),
        (
            "v0.32.0",
            "cpu",
            "vllm_exaone_delta-0.32.0+cpu.exaone.1-py3-none-any.whl",
            SUM,
            None,
            "does not fit upstream's CPU image",
        ),
    ],
)
def test_what_does_not_belong_into_a_recipe_is_refused(
    release, device, wheel, sha256, image, message
):
    with pytest.raises(BadInput, match=message):
        container_recipe(release, device, wheel, sha256, image)
