"""Settings: where they are found, and what they may say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tools
from tools.errors import BadInput
from tools.settings import Settings, check_git_url

GOOD = '[tool.vllm-exaone]\ndefault-ref = "v1.2.3"\ngit-url = "https://x.invalid/y.git"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "a" / "b").mkdir(parents=True)
    (root / "pyproject.toml").write_text(f"{GOOD}build-number = 3\n")
    return root


def test_settings_are_found_from_below(project: Path, tmp_path: Path) -> None:
    read = Settings.load(project / "a" / "b", {"VLLM_EXAONE_CACHE": str(tmp_path / "c")})
    assert read == Settings(project, "v1.2.3", "https://x.invalid/y.git", 3, tmp_path / "c")


def test_the_oldest_supported_release_may_be_set(project: Path) -> None:
    assert Settings.load(project, {}).oldest_ref == "v0.10.0"
    with (project / "pyproject.toml").open("a") as file:
        file.write('oldest-ref = "v1.0.0"\n')
    assert Settings.load(project, {}).oldest_ref == "v1.0.0"


def test_the_default_cache_is_the_users(project: Path, hermetic: Path) -> None:
    assert Settings.load(project, {}).cache.is_relative_to(hermetic)
    assert Settings.load(project, {}).cache.name == "vllm-exaone"


def test_a_foreign_project_in_between_is_passed_over(project: Path) -> None:
    (project / "a" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    assert Settings.load(project / "a" / "b", {}).root == project


def test_outside_of_a_project_the_tools_own_is_used(tmp_path: Path) -> None:
    code = "from tools.settings import Settings; print(Settings.load().root)"
    own = Path(tools.__file__).parent.parent
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(own)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(own)
    with pytest.raises(BadInput, match="no pyproject"):
        Settings.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD, "lacks build-number"),
        (f"{GOOD}build-number = 0\n", "not positive"),
        (f"{GOOD}build-number = true\n", "not a int"),
        (f'{GOOD}build-number = "1"\n', "not a int"),
        (f"{GOOD}build-number = 1\nbuild-numer = 2\n", "'build-numer'"),
        (f"{GOOD}build-number = 1\n[", "not valid TOML"),
        (GOOD.replace("https://x.invalid/y.git", "ext::sh -c x"), "not a git URL"),
        (GOOD.replace('"v1.2.3"', '""'), "default-ref"),
    ],
)
def test_what_is_wrong_is_said(project: Path, text: str, said: str) -> None:
    (project / "pyproject.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        Settings.load(project, {})
    assert said in caught.value.message
    assert "pyproject.toml" in caught.value.message or said == "not a git URL"


def test_a_relative_cache_is_refused(project: Path) -> None:
    with pytest.raises(BadInput, match="VLLM_EXAONE_CACHE"):
        Settings.load(project, {"VLLM_EXAONE_CACHE": "cache"})


@pytest.mark.parametrize(
    "url",
    [
        "https://host.invalid/a/b.git",
        "https://me:token@host.invalid/a.git",
        "ssh://git@host.invalid:22/a.git",
        "git@host.invalid:a/b.git",
        "host:a.git",
        "file:///srv/a.git",
        "/srv/a b.git",
    ],
)
def test_git_urls(url: str) -> None:
    assert check_git_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "-x",
        "--upload-pack=x",
        "ext::sh -c touch% /tmp/x",
        "fd::17",
        "https::https://host.invalid/x",
        "a/b",
        "../b",
        "https://",
        "https:///",
        "ssh://-oProxyCommand=x/y",
        "ssh://git@-oProxyCommand=x/y",
        "-oProxyCommand=x:y",
        "git@-oProxyCommand=x:y",
        "https://host.invalid/a\nb",
        "ftp://host.invalid/a",
        "javascript:alert(1)//x\0",
    ],
)
def test_what_git_could_run_is_no_git_url(url: str) -> None:
    with pytest.raises(BadInput):
        check_git_url(url)
