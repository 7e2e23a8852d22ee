"""The demo: the command of the first day. It parses, wires and prints; no logic lives here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failsoft.cli.app import app, console
from failsoft.local_ray import settle_environment


@app.command()
def demo(
    data: Annotated[
        Path | None, typer.Option(help="Folder with SNIPS or CLINC150 JSON files; the embedded corpus without it.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for report.html and incident.png.")] = Path("build/demo"),
    keep: Annotated[bool, typer.Option("--keep", help="Leave it serving at the end, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(help="Port of the gateway on 127.0.0.1; 0 picks a free one.")] = 0,
) -> None:
    """Train under faults, publish, serve, break the model, watch it degrade and return. About four minutes."""
    settle_environment()
    from failsoft.demo.story import DemoConfig, run_demo

    run_demo(DemoConfig(data=data, out=out, keep=keep, port=port), console)
