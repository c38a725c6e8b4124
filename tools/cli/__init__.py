"""The command line: Typer commands that parse, call one function and render. No logic."""

from importlib import import_module

import typer

# Each command's module. Only the module of the command asked for is imported: what another one
# needs (an SBOM library, an HTTP client) would cost a matrix a quarter of its time.
_MODULES = {
    "tools.cli.carrying": ("apply", "export", "matrix"),
    "tools.cli.shipping": ("build", "inspect"),
    "tools.cli.releasing": ("release",),
    "tools.cli.proving": ("contract", "smoke", "reference"),
    "tools.cli.verifying": ("verify",),
    "tools.cli.comparing": ("upstream-tests", "examples"),
    "tools.cli.solving": ("resolve", "refresh"),
    "tools.cli.following": ("bisect", "watch", "survival"),
    "tools.cli.rebasing": ("rebase", "ci-matrix"),
    "tools.cli.stores": ("tags", "doctor", "store"),
}


def make_app(command: str = "") -> typer.Typer:
    """Return the application with the commands that live beside ``command``, or with all.

    Args:
        command: The command that will be called; anything else gets every command, for the help
            and for what a mistyped one may have meant.
    """
    app = typer.Typer(
        name="python -m tools",
        help="Carry EXAONE-4.5 onto any vLLM release, build it, and prove that it answers right.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    owners = [module for module, commands in _MODULES.items() if command in commands]
    for module in owners or _MODULES:
        import_module(module).register(app)
    app.callback()(_group)
    return app


def _group() -> None:
    """Keep a module's only command behind its name: Typer would drop the name otherwise."""
