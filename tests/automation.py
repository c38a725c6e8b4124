"""Jobs of the automation files as shell scripts, run here as the hosts would run them.

Only what a host provides is stood in for: the values of its expressions, its variables and files,
and the actions that it brings. The scripts run as they are.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass(frozen=True)
class Step:
    """A script, and the variables that its step sets."""

    script: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Job:
    """The steps of a job that run scripts, in order, and how its shell is started."""

    name: str
    shell: tuple[str, ...]
    steps: tuple[Step, ...]


def workflows(root: Path) -> dict[str, Any]:
    """Return every workflow by its file's name."""
    files = sorted((root / ".github/workflows").glob("*.yml"))
    # YAML 1.1 reads `on` as true.
    return {file.name: yaml.safe_load(file.read_text("utf-8")) for file in files}


def github_job(root: Path, workflow: str, name: str, values: Mapping[str, str]) -> Job:
    """Return a job of a workflow; ``values`` says what its expressions stand for."""
    job = workflows(root)[workflow]["jobs"][name]
    shared = _resolved(job.get("env", {}), values)
    steps = []
    for step in job["steps"]:
        if not holds(step.get("if"), values):
            continue
        if str(step.get("uses", "")).startswith("./"):
            action = yaml.safe_load((root / step["uses"] / "action.yml").read_text("utf-8"))
            steps += [Step(s["run"], shared) for s in action["runs"]["steps"] if "run" in s]
        elif "run" in step:
            steps.append(Step(step["run"], shared | _resolved(step.get("env", {}), values)))
    return Job(f"{workflow}:{name}", ("bash", "-e"), tuple(steps))


def holds(condition: str | None, values: Mapping[str, str]) -> bool:
    """Answer the few conditions that the workflows ask on steps."""
    if condition in (None, "always()"):
        return True
    left, operator, right = str(condition).split(" ")
    return (values[left] == right.strip("'")) is (operator == "==")


def _resolved(table: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, str]:
    return {
        key: _EXPRESSION.sub(lambda found: values[found[1]], str(value))
        for key, value in table.items()
    }


def gitlab_jobs(root: Path) -> dict[str, Any]:
    """Return GitLab's file with what it includes; hidden jobs too."""
    found = yaml.safe_load((root / ".gitlab-ci.yml").read_text("utf-8"))
    for entry in found.pop("include", []):
        found |= yaml.safe_load((root / entry["local"]).read_text("utf-8"))
    return found  # type: ignore[no-any-return]


def gitlab_job(root: Path, name: str) -> Job:
    """Return a job of GitLab's file, with what it extends."""
    job = extended(gitlab_jobs(root), name)
    lines = [*job.get("before_script", []), *job.get("script", [])]
    variables = {key: str(value) for key, value in job.get("variables", {}).items()}
    return Job(name, ("bash", "-eo", "pipefail"), (Step("\n".join(lines), variables),))


def extended(jobs: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a job with what it extends, as GitLab merges them."""
    job = dict(jobs[name])
    parents = job.pop("extends", [])
    merged: dict[str, Any] = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        merged = _merge(merged, extended(jobs, parent))
    return _merge(merged, job)


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _merge(made[key], value) if both else value
    return made


def run(job: Job, root: Path, scratch: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Run the steps of a job in ``root``; yield what each printed.

    ``GITHUB_OUTPUT`` and ``GITHUB_ENV`` are files in ``scratch``; what a step puts into the latter
    is set for the later ones.
    """
    files = {name: scratch / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_ENV")}
    for file in files.values():
        file.touch()
    for step in job.steps:
        later = dict(
            line.split("=", 1) for line in files["GITHUB_ENV"].read_text("utf-8").splitlines()
        )
        variables = {name: str(file) for name, file in files.items()}
        done = subprocess.run(
            [*job.shell, "-c", step.script],
            cwd=root,
            env=os.environ | environment | variables | later | dict(step.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{job.name}: {step.script}\n{done.stdout}"
        yield done.stdout
