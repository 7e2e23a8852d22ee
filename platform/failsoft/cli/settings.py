"""``failsoft settings``: every setting with its default and its meaning."""

from __future__ import annotations

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from failsoft.cli.app import app, console
from failsoft.cli.said import JsonOption, print_json
from failsoft.errors import ConfigError


@app.command()
def settings(
    name: Annotated[str | None, typer.Argument(help="A class or a field, like StagePolicy or deadline_ms.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print all of them as docs/settings.md.")] = False,
    json_: JsonOption = False,
) -> None:
    """List every setting: its class, its type, its default and what it means."""
    from failsoft.cli.settings_page import all_settings, as_markdown, matching

    classes = all_settings(_sources())
    if name is not None:
        classes = matching(classes, name)
        if not classes:
            raise ConfigError(f"no class or field of settings is called {name!r}; see them all with: failsoft settings")
    if markdown and json_:
        raise ConfigError("--markdown and --json are two forms of the same answer; ask for one of them")
    if json_:
        print_json([asdict(there) for there in classes])
        return
    if markdown:
        typer.echo(as_markdown(classes), nl=False)
        return
    for there in classes:
        table = Table("field", "type", "default", "", title=f"{there.name} ({there.module}): {escape(there.said)}")
        for setting in there.settings:
            table.add_row(*map(escape, (setting.name, setting.type, setting.default, setting.said)))
        console.print(table)


def _sources() -> list[Path]:
    found = (find_spec(package) for package in ("failsoft", "train_jobs"))
    return [Path(spec.origin).parent for spec in found if spec is not None and spec.origin is not None]
