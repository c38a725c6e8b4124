"""The automation files: pinned, least privileged, bounded, and shell that holds together."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.automation import extended, gitlab_jobs, workflows

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
    ("release.yml", "release"): {"contents": "write"},
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
