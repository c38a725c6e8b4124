"""Ranges that were proved broken are narrowed by release, from pyproject to METADATA."""

from pathlib import Path

import pytest
from packaging.version import Version

from tools.errors import BadInput
from tools.settings import Settings

HEAD = """
[tool.vllm-exaone]
default-ref = "v1.2.3"
git-url = "https://x.invalid/y.git"
build-number = 1
"""


def settings(root: Path, text: str) -> Settings:
    (root / "pyproject.toml").write_text(HEAD + text)
    return Settings.load(root)


def test_ranges_are_chosen_by_release(tmp_path):
    read = settings(
        tmp_path,
        """
[tool.vllm-exaone.narrow]
">=0.22.1,<0.27" = { transformers = "<5.24" }
"v0.26.0" = { transformers = ">=5.10", numpy = "<3" }
""",
    )
    assert read.narrowed(Version("0.22.0")) == ()
    assert read.narrowed(Version("0.22.1")) == (("transformers", "<5.24"),)
    assert read.narrowed(Version("0.26.0rc1")) == (("transformers", "<5.24"),)
    assert read.narrowed(Version("0.26.0")) == (
        ("numpy", "<3"),
        ("transformers", "<5.24,>=5.10"),
    )
    assert read.narrowed(None) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('narrow = "all"', "narrow is not a dict"),
        ('narrow = { "v1.0" = "<5" }', "no table of version ranges"),
        ('narrow = { "v1.0" = { transformers = 5 } }', "no table of version ranges"),
        ('narrow = { "v1.0" = { transformers = "below 5" } }', "bad version range"),
        ('narrow = { "new ones" = { transformers = "<5" } }', "bad version range"),
        ("sign-sums = [1]", "sign-sums is not a list of words"),
        ('signing-key = ""', "signing-key is not a str"),
    ],
)
def test_malformed_settings_are_one_clear_line(tmp_path, text, said):
    with pytest.raises(BadInput, match=said):
        settings(tmp_path, text)
