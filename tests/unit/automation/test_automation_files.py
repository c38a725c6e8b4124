"""The automation files: pinned, least privileged, bounded, and shell that holds together."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.automation import extended, github_job, gitlab_job, gitlab_jobs, run, workflows
from tools.maintain.jobs import HOSTED, Device
from tools.maintain.jobs import Job as Planned
from tools.report.jobs import gitlab_pipeline

ROOT = Path(__file__).parents[3]
WORKFLOWS = workflows(ROOT)
GITLAB = gitlab_jobs(ROOT)
FILES = sorted(ROOT.glob(".github/**/*.yml"))
JOBS = [(file, name) for file, flow in WORKFLOWS.items() for name in flow["jobs"]]
GITLAB_JOBS = [
    name
    for name, job in GITLAB.items()
    if isinstance(job, dict) and not name.startswith(".") and name not in ("workflow", "default")
]
# What each job may do beyond reading the repository; anything more is a decision to take here.
MORE = {
    ("nightly.yml", "watch"): {"issues": "write"},
    ("nightly.yml", "rebase"): {"contents": "write", "pull-requests": "write"},
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_action_is_pinned_by_digest_and_says_its_version(file: Path) -> None:
    for line in file.read_text("utf-8").splitlines():
        used = re.search(r"uses:\s*(\S+)(.*)", line)
        if used and not used[1].startswith("./"):
            assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40}", used[1]), line
            assert re.fullmatch(r" # v\d+\.\d+\.\d+", used[2]), line


def test_one_action_has_one_digest() -> None:
    text = "".join(file.read_text("utf-8") for file in FILES)
    pins: dict[str, set[str]] = {}
    for name, digest in re.findall(r"uses: ([\w-]+/[\w-]+)(?:/[\w-]+)?@([0-9a-f]{40})", text):
        pins.setdefault(name, set()).add(digest)
    assert {name: len(digests) for name, digests in pins.items()} == {
        "actions/cache": 1, "actions/checkout": 1, "actions/setup-python": 1,
        "actions/upload-artifact": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("file", "name"), JOBS)
def test_a_job_may_do_what_it_needs_and_no_more(file: str, name: str) -> None:
    flow = WORKFLOWS[file]
    assert flow["permissions"] == {}
    assert "group" in flow["concurrency"]
    job = flow["jobs"][name]
    assert job["permissions"] == {"contents": "read"} | MORE.get((file, name), {})
    assert 0 < job["timeout-minutes"] <= 300
    for step in job["steps"]:
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize(("file", "name"), JOBS)
def test_no_expression_is_pasted_into_a_shell(file: str, name: str) -> None:
    """A branch's name, say, may hold shell: it goes through a variable."""
    for step in WORKFLOWS[file]["jobs"][name]["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize(("file", "name"), JOBS)
def test_what_a_job_refers_to_is_there(file: str, name: str) -> None:
    jobs = WORKFLOWS[file]["jobs"]
    needs = jobs[name].get("needs", [])
    for needed in [needs] if isinstance(needs, str) else needs:
        assert needed in jobs
    for used in re.findall(r"needs\.([\w-]+)\.outputs\.(\w+)", str(jobs[name])):
        assert used[0] in (needs if isinstance(needs, list) else [needs])
        assert used[1] in jobs[used[0]]["outputs"]
    ids = {step["id"] for step in jobs[name]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.([\w-]+)\.outputs", str(jobs[name].get("outputs")))) <= ids


def test_the_bots_token_is_where_it_is_needed_only() -> None:
    for file, name in JOBS:
        for step in WORKFLOWS[file]["jobs"][name]["steps"]:
            text = str(step)
            if "secrets." in text or "github.token" in text:
                assert "run" in step, f"{file}:{name} gives a secret to an action"
                assert "secrets." not in step["run"]


def test_strangers_code_never_runs_on_our_own_machines() -> None:
    for flow in WORKFLOWS.values():
        own = any("self-hosted" in str(job["runs-on"]) for job in flow["jobs"].values())
        assert not (own and "pull_request" in flow[True])
        assert "pull_request_target" not in flow[True]


@pytest.mark.parametrize("name", GITLAB_JOBS)
def test_gitlabs_jobs_are_bounded_and_refer_to_what_is_there(name: str) -> None:
    job = extended(GITLAB, name)
    assert job["stage"] in GITLAB["stages"]
    assert job["rules"]
    if "trigger" in job:
        (include,) = job["trigger"]["include"]
        assert include["artifact"] in GITLAB[include["job"]]["artifacts"]["paths"]
    else:
        assert job["timeout"]
        assert job["before_script"]
    for needed in job.get("needs", []):
        assert needed in GITLAB_JOBS


def test_a_child_pipelines_jobs_run_under_a_merge_request_too() -> None:
    """GitLab leaves out jobs without rules where the parent is a merge request's pipeline."""
    planned = [Planned("v1.1.0", Device.CPU, "3.12", HOSTED), Planned("main", Device.NONE, "3.12")]
    child = yaml.safe_load(gitlab_pipeline(planned))
    templates = {
        name: job
        for entry in child.pop("include")
        for name, job in yaml.safe_load((ROOT / entry["local"]).read_text("utf-8")).items()
    }
    for name in child:
        rules = extended(templates | child, name)["rules"]
        assert rules == [{"if": '$CI_PIPELINE_SOURCE == "parent_pipeline"'}]


def test_the_named_subset_is_verified_on_every_change() -> None:
    command = "python -m tools verify --subset --device cpu"
    assert {"pull_request", "push"} == set(WORKFLOWS["checks.yml"][True])
    job = WORKFLOWS["checks.yml"]["jobs"]["subset"]
    assert "if" not in job
    # A step that is left out somewhere may make room, but not verify.
    assert {"run": command} in job["steps"]
    theirs = extended(GITLAB, "subset")
    assert theirs["script"] == [command]
    assert theirs["rules"] == GITLAB[".on-change"]["rules"]
    # What ran has to be committed, so it is to be had whatever came out.
    (kept,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert (kept["if"], kept["with"]["path"]) == ("always()", "tests/verified.json")
    assert (theirs["artifacts"]["when"], theirs["artifacts"]["paths"]) == (
        "always", [kept["with"]["path"]],
    )  # fmt: skip


@pytest.mark.parametrize("file", ["checks.yml:subset", "release.yml:release"])
def test_the_record_is_asked_with_the_python_that_made_it(file: str) -> None:
    """The wheels of some releases are for one Python: with another, their cells are stale."""
    python = re.search(r'^PYTHON = "(.*)"', (ROOT / "noxfile.py").read_text("utf-8"), re.MULTILINE)
    assert python
    flow, name = file.split(":")
    (setup,) = [s for s in WORKFLOWS[flow]["jobs"][name]["steps"] if "setup" in s.get("uses", "")]
    assert setup["with"]["python"] == python[1]
    assert extended(GITLAB, name)["variables"]["PYTHON"] == python[1]


def test_waiting_jobs_for_other_refs_are_not_dropped() -> None:
    """A concurrency group keeps the one running and one waiting run, and drops the others."""
    assert WORKFLOWS["release.yml"]["concurrency"]["group"] == "release-${{ github.ref }}"
    assert "${{ inputs.ref }}" in WORKFLOWS["gpu.yml"]["concurrency"]["group"]
    assert "resource_group" in GITLAB["release"]  # of which GitLab drops none


Release = Callable[..., list[list[str]]]


@pytest.fixture(params=["github", "gitlab"])
def release(
    request: pytest.FixtureRequest, tmp_path: Path, user_git: Callable[..., str]
) -> Release:
    """Run the release job of a host; return what the tools and gh were asked for."""
    target, programs = tmp_path / "target", tmp_path / "programs"
    user_git(tmp_path, "init", "-q", str(target))
    user_git(target, "commit", "-q", "--allow-empty", "-m", "A commit")
    programs.mkdir()
    jq = "import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1][1:]])"
    made = json.dumps({"tag": "v1.0.0+exaone.1", "path": str(tmp_path), "message": ""})
    for name, answer in {
        "python": f"echo '{made}'",
        "gh": '[ "$2" != view ] || $PUBLISHED',
        "jq": f"""'{sys.executable}' -c '{jq}' "$2" "$3\"""",
    }.items():
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/asked\n{answer}\n')
        program.chmod(0o755)

    def one(tag: str, *tags: str, token: str = "t", published: bool = False) -> list[list[str]]:
        for held in tags:
            user_git(target, "tag", "-a", "-m", "A release", held)
        url = "vars.RELEASE_TO || format('{0}/{1}.git', github.server_url, github.repository)"
        values = {"secrets.RELEASE_TOKEN": token, "github.workspace": str(ROOT), url: str(target)}
        if request.param == "github":
            job = github_job(ROOT, "release.yml", "release", values)
        else:
            job = gitlab_job(ROOT, "release")
        environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PUBLISHED": "true" if published else "false",
            "GITHUB_REF_NAME": tag, "GITHUB_SERVER_URL": str(tmp_path),
            "CI_COMMIT_TAG": tag, "CI_PROJECT_DIR": str(ROOT), "CI_SERVER_URL": str(tmp_path),
            "CI_PROJECT_PATH": "own", "RELEASE_TO": str(target), "PUSH_TOKEN": token,
        }  # fmt: skip
        "".join(run(job, tmp_path, tmp_path, environment))
        lines = (tmp_path / "asked").read_text("utf-8").splitlines()
        return [line.split() for line in lines if " pip " not in line]

    one.__name__ = request.param
    return one


@pytest.mark.parametrize(
    ("tag", "held", "again"),
    [
        ("release-v1.0.0", [], False),
        ("release-v1.0.0", ["v1.0.0+exaone.1"], False),
        ("release-v1.0.0-2", ["v1.0.0+exaone.1", "v1.0.0+exaone.2x", "v1.0.1+exaone.7"], True),
        ("release-v1.0.0-10", [f"v1.0.0+exaone.{n}" for n in range(1, 10)], True),
        # The job is run again: its build is there.
        ("release-v1.0.0-2", ["v1.0.0+exaone.1", "v1.0.0+exaone.2"], False),
    ],
)
def test_a_tag_with_a_number_asks_for_another_build_once(
    release: Release, tag: str, held: list[str], again: bool, tmp_path: Path
) -> None:
    command = next(asked for asked in release(tag, *held) if asked[0] == "python")
    expected = ["-m", "tools", "release", "v1.0.0", "--device", "cpu", "--to", f"{tmp_path}/target"]
    assert command[1:9] == expected
    assert ("--again" in command) is again


@pytest.mark.parametrize("tag", ["release-v1.0.0-3", "release-v1.0.0-rc1"])
def test_a_number_that_is_not_the_next_is_refused(release: Release, tag: str) -> None:
    with pytest.raises(AssertionError, match=r"The next build of v1\.0\.0 is 2"):
        release(tag, "v1.0.0+exaone.1")


def test_a_release_without_its_token_ends_before_anything_is_made(
    release: Release, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"(RELEASE|PUSH)_TOKEN is missing"):
        release("release-v1.0.0", token="")
    asked = tmp_path / "asked"
    assert not asked.exists() or "tools" not in asked.read_text("utf-8")


@pytest.mark.parametrize(
    ("published", "commands"), [(False, ["view", "create"]), (True, ["view", "upload", "edit"])]
)
def test_a_finished_release_can_be_run_again(
    release: Release, published: bool, commands: list[str]
) -> None:
    asked = [line for line in release("release-v1.0.0", published=published) if line[0] == "gh"]
    # GitLab's has no release page.
    assert [line[2] for line in asked] == (commands if release.__name__ == "github" else [])


def test_a_release_verifies_nothing_itself() -> None:
    """It would write into the record, and the tag would say that the project is modified."""
    steps = WORKFLOWS["release.yml"]["jobs"]["release"]["steps"]
    scripts = [*(step.get("run", "") for step in steps), *GITLAB["release"]["script"]]
    assert not any("tools verify" in script for script in scripts)


def _scripts() -> dict[str, str]:
    found: dict[str, str] = {}
    for file, name in JOBS:
        for number, step in enumerate(WORKFLOWS[file]["jobs"][name]["steps"]):
            if "run" in step:
                found[f"{file}:{name}:{number}"] = step["run"]
    names = [*GITLAB_JOBS, ".carry", ".smoke"]
    for name in names:
        job: dict[str, Any] = extended(GITLAB, name)
        if "script" in job:
            found[f"gitlab:{name}"] = "\n".join([*job["before_script"], *job["script"]])
    return found


@pytest.mark.parametrize(("name", "script"), _scripts().items(), ids=_scripts())
def test_the_shell_is_clean(name: str, script: str) -> None:
    beside = str(Path(sys.executable).parent)
    program = shutil.which("shellcheck", path=os.pathsep.join([beside, os.environ["PATH"]]))
    assert program, "shellcheck is in requirements.lock"
    # The hosts end a script at the first failure (SC2164), and set the variables (SC2154).
    done = subprocess.run(
        [program, "--shell=bash", "--exclude=SC2154,SC2164", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
