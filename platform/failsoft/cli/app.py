"""The application object that every group of commands hangs itself on, and the options they share."""

from __future__ import annotations

import getpass
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    name="failsoft",
    help="Machine learning that fails soft: training and serving that give less when a part breaks, and do not stop.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,  # tokens are among them
)
release_app = typer.Typer(help="Releases, and their way into service.", no_args_is_help=True)
app.add_typer(release_app, name="release")


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"failsoft {version('failsoft')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version, and no more.")
    ] = False,
) -> None:
    """What may stand before a command."""


console = Console(width=None if sys.stdout.isatty() else 120)

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder for runs, releases, plan and token. [dim]$FAILSOFT_HOME, else .failsoft[/dim]"),
]
UrlOption = Annotated[str, typer.Option("--url", help="Address of a running gateway.")]
WhyOption = Annotated[str, typer.Option("--why", help="Reason, kept in the ledger.")]
DEFAULT_URL = "http://127.0.0.1:8000"


def who_orders() -> str:
    """Who gives the order, for the ledger; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
