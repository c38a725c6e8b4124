"""The command line: Typer commands that parse, call one function and render. No logic."""

import typer

from tools.cli import carrying, proving, shipping, solving, stores

app = typer.Typer(
    name="python -m tools",
    help="Carry EXAONE-4.5 onto any vLLM release, build it, and prove that it answers right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
carrying.register(app)
shipping.register(app)
proving.register(app)
solving.register(app)
stores.register(app)

__all__ = ["app"]
