"""``failsoft commands``: every command with its options and exit codes, for people, programs and docs/cli.md."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from failsoft.cli.app import app, console
from failsoft.cli.said import JsonOption, print_json
from failsoft.errors import ConfigError


@app.command("commands")
def commands(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/cli.md.")] = False,
    json_: JsonOption = False,
) -> None:
    """List every command: what it does, its options, and what its exit code says."""
    from failsoft.cli.command_page import all_commands, as_json, as_markdown

    if markdown and json_:
        raise ConfigError("--markdown and --json are two forms of the same answer; ask for one of them")
    found = all_commands(app)
    if markdown:
        typer.echo(as_markdown(found), nl=False)
    elif json_:
        print_json([as_json(one) for one in found])
    else:
        table = Table("command", "what it does", "exit codes")
        for one in found:
            table.add_row(one.name, escape(one.first_sentence), ", ".join(map(str, one.exits)))
        console.print(table)
