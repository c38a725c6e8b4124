"""Each job's shell steps, run as they are in a clean clone, with only the host stood in for.

The job that plans runs with every test run. The others take minutes to an hour, an engine or a GPU;
``VLLM_EXAONE_RUN_JOBS`` names those to run, such as ``checks.yml:lint gitlab:unit``, or is ``all``.
"""

import json
import os
import re
import sys
import venv
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.automation import Job, github_job, gitlab_job, gitlab_jobs, run, workflows
from tests.github_host import REPOSITORY, TOKEN, Host, serve

ROOT = Path(__file__).parents[2]
RELEASE = "v0.32.0"
JOBS = [f"{file}:{name}" for file, flow in workflows(ROOT).items() for name in flow["jobs"]]
JOBS += [
    f"gitlab:{name}"
    for name, job in gitlab_jobs(ROOT).items()
    if isinstance(job, dict) and "script" in job
]
ALWAYS = "checks.yml:plan"
# Read before the tests' own environment is set up.
WANTED = os.environ.get("VLLM_EXAONE_RUN_JOBS", "").split()
PATH = os.environ["PATH"]

pytestmark = [pytest.mark.network, pytest.mark.timeout(5400)]


@pytest.fixture
def host() -> Iterator[Host]:
    with serve() as found:
        yield found


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return where the programs of a new Python are, which all jobs that are asked for share."""

    @cache
    def make() -> Path:
        place = tmp_path_factory.mktemp("python")
        venv.create(place, with_pip=True)
        return place / "bin"

    return make


@pytest.fixture
def remote(tmp_path: Path, user_git: Callable[..., str]) -> Path:
    """The project as a host has it, with something for a rebase to do."""
    remote = tmp_path / f"host/{REPOSITORY}.git"
    user_git(tmp_path, "clone", "-q", "--bare", str(ROOT), str(remote))
    user_git(remote, "config", "receive.advertisePushOptions", "true")
    work = tmp_path / "work"
    user_git(tmp_path, "clone", "-q", str(remote), str(work))
    user_git(work, "switch", "-q", "-C", "main")
    file = work / "patches/0002-register-drafter.patch"
    file.write_bytes(
        re.sub(rb"^Applied-Upstream: .*\n", b"", file.read_bytes(), flags=re.MULTILINE)
    )
    user_git(work, "commit", "-qam", "Forget where a patch went")
    user_git(work, "push", "-q", "-f", "origin", "main")
    user_git(remote, "symbolic-ref", "HEAD", "refs/heads/main")
    return remote


@pytest.fixture
def clone(tmp_path: Path, remote: Path, user_git: Callable[..., str], real_releases: Path) -> Path:
    user_git(tmp_path, "clone", "-q", str(remote), "clone")
    return tmp_path / "clone"


@pytest.fixture
def environment(clone: Path, tmp_path: Path, host: Host) -> dict[str, str]:
    """What the hosts set, and the programs that they bring."""
    server = f"file://{tmp_path}/host"
    programs = tmp_path / "programs"
    programs.mkdir()
    gh = programs / "gh"
    # No release is published yet.
    gh.write_text(f'#!/bin/sh\n[ "$2" != view ] && printf "%s\\n" "$@" >> {tmp_path}/gh.txt\n')
    gh.chmod(0o755)
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(programs), PATH]),
        "GITHUB_SERVER_URL": server,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_API_URL": host.url,
        "GITHUB_REF_NAME": f"release-{RELEASE}-1",
        "CI_SERVER_URL": server,
        "CI_PROJECT_PATH": REPOSITORY,
        "CI_PROJECT_DIR": str(clone),
        "CI_DEFAULT_BRANCH": "main",
        "CI_COMMIT_TAG": f"release-{RELEASE}-1",
        "PUSH_TOKEN": TOKEN,
        # Of a child pipeline's job, by ci-matrix.
        "REF": RELEASE,
        "DEVICE": "cpu",
    }


def _job(root: Path, name: str, server: str) -> Job:
    file, _, job = name.partition(":")
    if file == "gitlab":
        return gitlab_job(root, job)
    values = {
        "matrix.ref": RELEASE,
        "matrix.device": "cpu",
        "inputs.ref": "",
        "github.token": TOKEN,
        "secrets.VLLM_EXAONE_WEBHOOK": "",
        "secrets.BOT_TOKEN || github.token": TOKEN,
        "secrets.RELEASE_TOKEN": TOKEN,
        "runner.environment": "self-hosted",
        "github.workspace": str(root),
        "vars.RELEASE_TO || format('{0}/{1}.git', github.server_url, github.repository)": (
            f"{server}/{REPOSITORY}.git"
        ),
    }
    return github_job(root, file, job, values)


@pytest.mark.parametrize("name", JOBS)
def test_the_steps_of_a_job_run_as_they_are(
    name: str,
    clone: Path,
    remote: Path,
    tmp_path: Path,
    environment: dict[str, str],
    host: Host,
    python: Callable[[], Path],
    user_git: Callable[..., str],
) -> None:
    asked = bool({"all", name}.intersection(WANTED))
    if not asked and name != ALWAYS:
        pytest.skip(f"takes long: VLLM_EXAONE_RUN_JOBS={name} runs it")
    job = _job(clone, name, environment["CI_SERVER_URL"])
    if asked:
        # A Python into which the job installs; else this one, where that is done.
        environment["PATH"] = f"{python()}{os.pathsep}{environment['PATH']}"
    else:
        job = Job(job.name, job.shell, job.steps[1:])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    said = "".join(run(job, clone, scratch, environment))
    assert TOKEN not in said
    if name.endswith("plan"):
        _check_matrix((scratch / "github_output").read_text(), newest=name == ALWAYS)
    elif name in ("gitlab:plan-newest", "gitlab:plan-all"):
        (file,) = (clone / "build").glob("*.yml")
        assert len(yaml.safe_load(file.read_text())) > 3
    elif name.endswith("rebase"):
        assert user_git(remote, "show", "bot/rebase:patches/0002-register-drafter.patch").count(
            "Applied-Upstream: v0.20.0\n"
        )
        assert len(host.pulls) == (0 if name.startswith("gitlab") else 1)
    elif name == "release.yml:release":
        assert f"{RELEASE}+exaone.1" in (tmp_path / "gh.txt").read_text()


def _check_matrix(output: str, *, newest: bool) -> None:
    name, _, value = output.partition("=")
    rows = json.loads(value)["include"]
    assert name == "matrix"
    assert len(rows) == 3 if newest else len(rows) > 30
    assert all(row["runner"] and row["python"] and row["ref"] for row in rows)
