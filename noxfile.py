"""The user's commands: ``nox -s apply build test -- [REF ...]``.

Each session is a thin wrapper around ``python -m tools`` or a checker, and stops at the first
error. Sessions install the locked requirements with uv, in a second or two when its cache is warm.
"""

from pathlib import Path

import nox

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["apply", "build", "test"]
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = True
nox.options.error_on_missing_interpreters = True

PYTHON = "3.11"
PATHS = ("noxfile.py", "tools", "vllm_exaone", "tests")


def install(session: nox.Session) -> None:
    """Install exactly what requirements.lock lists, by hash."""
    session.install("--quiet", "--require-hashes", "-r", "requirements.lock")


def tools(session: nox.Session, command: str, *arguments: str) -> None:
    """Run one command of ``python -m tools`` with the session's arguments."""
    install(session)
    session.run("python", "-m", "tools", command, *arguments, *session.posargs)


@nox.session(venv_backend="uv")
def apply(session: nox.Session) -> None:
    """Carry series and overlay to each REF; the trees are in build/REF/src."""
    tools(session, "apply")


@nox.session(venv_backend="uv")
def build(session: nox.Session) -> None:
    """Build the wheel of each REF; it is in build/REF/dist."""
    tools(session, "build")


@nox.session(venv_backend="uv")
def test(session: nox.Session) -> None:
    """Run the unit and integration tests, then the smoke of each REF's wheel."""
    install(session)
    # A file a worker: what a file's tests share is made once.
    session.run(
        "python", "-m", "pytest", "-m", "not engine and not gpu", "-n", "auto", "--dist", "loadfile"
    )
    session.run("python", "-m", "tools", "smoke", *session.posargs)


@nox.session(venv_backend="uv")
def smoke(session: nox.Session) -> None:
    """Run the model of each REF's wheel on the real engine."""
    tools(session, "smoke")


@nox.session(venv_backend="uv")
def verify(session: nox.Session) -> None:
    """Bring the record of what the engine proved up to date, for each REF or for all."""
    tools(session, "verify")


@nox.session(venv_backend="uv")
def matrix(session: nox.Session) -> None:
    """Show patches by releases."""
    tools(session, "matrix")


@nox.session(venv_backend="uv")
def contract(session: nox.Session) -> None:
    """Check what the overlay and the patches assume about each REF; about every one: -- --all."""
    tools(session, "contract")


@nox.session(venv_backend="uv")
def rebase(session: nox.Session) -> None:
    """Move the series onto a new base: -- --to REF."""
    tools(session, "rebase")


@nox.session(venv_backend="uv")
def release(session: nox.Session) -> None:
    """Cut the release branch of each REF."""
    tools(session, "release")


@nox.session(venv_backend="uv")
def reference(session: nox.Session) -> None:
    """Write the golden tokens anew with transformers."""
    tools(session, "reference")


@nox.session(venv_backend="uv")
def lint(session: nox.Session) -> None:
    """Check format, style, types, layers, and the files that automation runs."""
    install(session)
    session.run("ruff", "format", "--check", *PATHS)
    session.run("ruff", "check", *PATHS)
    session.run("mypy", "--strict", "tools")
    session.run("lint-imports")
    session.run("zizmor", "--offline", "--no-progress", ".github")
    workflows = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    for schema, files in (
        ("vendor.github-workflows", workflows),
        ("vendor.github-actions", [".github/actions/setup/action.yml"]),
    ):
        session.run("check-jsonschema", "--builtin-schema", schema, *files)
    session.run(
        "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform",
        "gitlab-ci", ".gitlab-ci.yml", ".gitlab/release.yml",
    )  # fmt: skip
    session.run("shellcheck", ".ci/run", ".ci/askpass")


@nox.session(venv_backend="uv")
def bench(session: nox.Session) -> None:
    """Measure speed, and the rivals side by side."""
    install(session)
    session.run("python", "-m", "pytest", "tests/benchmarks", "--benchmark-only", *session.posargs)


@nox.session(venv_backend="uv")
def lock(session: nox.Session) -> None:
    """Resolve pyproject's requirements anew into requirements.lock."""
    session.run(
        "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes",
        "--no-emit-index-url", "--no-annotate", "--python-version", PYTHON,
        "--custom-compile-command", "nox -s lock", "--group", "dev",
        "--output-file", "requirements.lock", *session.posargs, "pyproject.toml",
        external=True,
    )  # fmt: skip
