"""The smoke of one wheel: every probe of every run, through a real engine."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from tools.smoke import golden as golden_file
from tools.smoke import numeric
from tools.smoke.checkpoint import Weights, write_checkpoint
from tools.smoke.engine import (
    EngineRun,
    Needs,
    Starter,
    engine_arguments,
    engines,
    run_engine,
    variables,
)
from tools.smoke.environment import engine_plan, environment, release_of
from tools.smoke.golden import Golden
from tools.smoke.model import hub_id, smoke_model
from tools.smoke.reference import NUMBERS_FILE, TIED_FILE, TOKENS_FILE
from tools.smoke.results import Check, SmokeReport, Verdict
from tools.smoke.runs import CPU_SPECULATES_FROM, RUNS, Run
from tools.smoke.served import Servers
from tools.upstream.index import Index

Progress = Callable[[str], None]


def smoke(
    release: str,
    *,
    wheel: Path | None,
    device: str,
    root: Path,
    cache: Path,
    transformers: str = "release",
    model: str = "",
    runs: Sequence[Run] = RUNS,
    progress: Progress = lambda _: None,
) -> SmokeReport:
    """Ask every case of every run of a wheel, or of the stock wheel of a release.

    Args:
        release: The release, such as ``v0.32.0``.
        wheel: The wheel to check; None for upstream's, without our changes.
        device: ``cpu`` or ``cuda``.
        root: The repository's root, where the golden file lies.
        cache: The cache directory.
        transformers: See :func:`tools.smoke.environment.engine_plan`.
        model: A directory or a hub id: ask that model instead of the tiny one.
        runs: What to run.
        progress: Told, in one line, what is being done.

    Raises:
        CheckFailed: The golden file is stale.
        BadInput: The wheel or the golden file is none.
        Unavailable: The stock wheel or a package cannot be had.
        EnvironmentLacks: The environment cannot be installed.
        Busy: Another run holds the environments.
    """
    began = time.monotonic()
    golden = load_golden(root)
    index = Index.configured(cache, progress)
    plan = engine_plan(release, device=device, wheel=wheel, transformers=transformers, index=index)
    version = release_of(release, wheel)
    checks: list[Check] = []
    versions: Mapping[str, str] = {}
    online = bool(hub_id(model))
    with (
        environment(plan, cache, progress) as place,
        engines(place, device, online=online) as server,
    ):
        if model:
            able = device != "cpu" or version >= CPU_SPECULATES_FROM
            versions, found = smoke_model(server, model, device, speculates=able, progress=progress)
            checks += found
        for run in () if model else runs:
            reason = run.unable(version, device)
            if reason:
                checks += [Check(run.name, p.name, Verdict.SKIPPED, reason) for p in run.probes]
                continue
            progress(f"{plan.label}: {run.name}")
            asked = Servers(place, variables(place)) if run.served else server
            done = execute(run, asked, version, device, cache)
            versions = done.versions or versions
            checks += [run.check(p, done.steps[p.name], golden) for p in run.probes]
    return SmokeReport(
        release=release,
        device=device,
        stock=wheel is None,
        wheel=Path(plan.requirements[0]).name,
        wheel_sha256=plan.wheel_sha256,
        versions=versions,
        checks=tuple(checks),
        seconds=round(time.monotonic() - began, 1),
    )


def load_golden(root: Path) -> Golden:
    """Return the golden answers and numbers.

    Raises:
        BadInput: A golden file is missing or none.
        CheckFailed: A golden file is stale.
    """
    answers, figures = golden_file.load(root / TOKENS_FILE), numeric.load(root / NUMBERS_FILE)
    tied = golden_file.load(root / TIED_FILE)
    answers.check_current()
    tied.check_current(Weights.TIED)
    figures.check_current()
    return replace(answers, numbers=figures.numbers, tied=tied.answers)


def execute(run: Run, server: Starter, release: Version, device: str, cache: Path) -> EngineRun:
    """Start the engine of a run and ask its probes."""
    checkpoint = write_checkpoint(run.variant, cache / "checkpoints")
    steps = [probe.step(checkpoint) for probe in run.probes]
    arguments = engine_arguments(str(checkpoint), device, **run.engine(release, device, steps))
    needs = Needs(devices=run.workers) if device == "cuda" else None
    return run_engine(server, arguments, steps, needs=needs, more=run.variables(device))
