"""``failsoft doctor``: what may be wrong here, each with its mend."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.said import JsonOption, print_json
from failsoft.health.clock import SystemClock

_COLOURS = {"good": "green", "remark": "yellow", "unknown": "yellow", "bad": "red"}


@app.command()
def doctor(
    host: Annotated[str, typer.Option("--host", help="Where a gateway would listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Its port.")] = 8000,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Look at versions, storage, token, clock, port and Ray, and name each mend. Exit code 1 when one is bad."""
    from failsoft.doctor import cluster, machine
    from failsoft.doctor.finding import exit_status

    place = Home.find(home)
    findings = [
        *machine.versions(),
        *machine.storage(place, clock=SystemClock()),
        machine.host_memory(),
        *machine.tokens(place),
        cluster.gateway(host=host, port=port, reader=place.reader_token),
        *cluster.ray(),
    ]
    if json_:
        print_json([finding.to_json() for finding in findings])
    else:
        table = Table("what", "", "found", "mend")
        for finding in findings:
            mark = f"[{_COLOURS[finding.mark]}]{finding.mark}[/]"
            table.add_row(finding.about, mark, escape(finding.said), escape(finding.mend))
        console.print(table)
    raise typer.Exit(exit_status(findings))
