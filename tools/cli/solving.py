"""Commands for conflicts: resolve lays one out for a person, refresh takes what they made of it."""

from typing import Annotated

import typer

from tools.cli.common import (
    DryRunOption,
    JsonOption,
    OutputOption,
    Project,
    SourceOption,
    note,
    print_json,
    results,
)
from tools.errors import BadInput
from tools.maintain.matrix import read_expected
from tools.maintain.refresh import Refreshed, refit, refresh
from tools.maintain.resolve import is_taken, lay_out
from tools.report.solving import (
    refreshed_data,
    refreshed_text,
    resolving_data,
    resolving_text,
)

Ref = Annotated[
    str | None,
    typer.Argument(metavar="[REF]", help="A tag, branch or commit; default-ref without."),
]
PatchOption = Annotated[
    str,
    typer.Option("--patch", metavar="NNNN-NAME", help="This patch; the first in conflict without."),
]


def register(app: typer.Typer) -> None:
    """Add this module's commands to ``app``."""
    app.command()(resolve)
    app.command(name="refresh")(refresh_command)


def resolve(
    ref: Ref = None,
    source: SourceOption = "auto",
    patch: PatchOption = "",
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lay the first conflict at REF out under build/REF/resolve, with diff3 markers."""
    project = Project(source)
    (name,) = project.refs([ref] if ref else None)
    patches = project.settings.root / "patches"
    recorded = read_expected(patches / "expected.toml")
    passing = frozenset(step for step, at in recorded if at == name)
    if patch and patch not in [step.name for step in project.series.steps]:
        raise BadInput(f"the series has no patch {patch!r}", "name it as patches/series does")
    stop = project.carrier.stop(project.obtain(name), patch=patch, passing=passing)
    if stop is None or not stop.stuck:
        what = "no conflict" if stop is None else f"{stop.patch.file} only has to be written anew"
        note(f"{name}: {what}" + (f": python -m tools refresh {name}" if stop else ""))
        if as_json:
            print_json({"ref": name, "patch": None})
        return
    done = lay_out(project.store.git, stop, project.directory(name, output))
    if as_json:
        print_json(resolving_data(done))
    else:
        results.print(resolving_text(done), soft_wrap=True)


def refresh_command(
    ref: Ref = None,
    source: SourceOption = "auto",
    output: OutputOption = None,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="The reason for a variant, in its message.")
    ] = "",
    as_base: Annotated[
        bool, typer.Option("--as-base", help="Write the patch itself anew, on the release REF.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write what you made of the conflict at REF back: a patch, a variant, or a resolution.

    Without a conflict laid out, write the patches anew whose base REF is, where an earlier patch
    changed what they are written on.
    """
    project = Project(source)
    (name,) = project.refs([ref] if ref else None)
    path = project.directory(name, output) / "resolve"
    patches = project.settings.root / "patches"
    upstream = project.obtain(name)
    if path.exists() and not is_taken(project.store.git, path):
        solved = refresh(
            project.carrier, upstream, path, patches, why=why, as_base=as_base, dry_run=dry_run
        )
        done: tuple[Refreshed, ...] = (solved,)
    else:
        done = refit(project.carrier, upstream, patches, dry_run=dry_run)
    for one in done:
        if not as_json:
            results.print(refreshed_text(one), soft_wrap=True)
    if as_json:
        print_json([refreshed_data(one) for one in done])
    if not done:
        note(f"{name}: every patch that is based on it fits, and no conflict is laid out")
    elif done[-1].misfit:
        note(f"{done[-1].misfit}: python -m tools refresh {name}")
    elif done[-1].carried.conflicts:
        note(f"the next conflict: python -m tools resolve {name}")
