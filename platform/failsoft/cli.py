"""The command line: parses, wires, prints. No logic lives here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from failsoft.artifacts.home import Home
from failsoft.errors import FailsoftError
from failsoft.remote import GatewayClient

app = typer.Typer(
    name="failsoft",
    help="Machine learning that fails soft: training and serving that give less when a part breaks, and do not stop.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
)
console = Console()

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder for runs, releases, plan and token. [dim]$FAILSOFT_HOME, else .failsoft[/dim]"),
]
UrlOption = Annotated[str, typer.Option("--url", help="Address of a running gateway.")]
WhyOption = Annotated[str, typer.Option("--why", help="Reason, kept in the ledger.")]
DEFAULT_URL = "http://127.0.0.1:8000"


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
    from failsoft.demo.story import DemoConfig, run_demo  # noqa: PLC0415 -- loads torch and Ray, which --help need not

    run_demo(DemoConfig(data=data, out=out, keep=keep, port=port), console)


@app.command()
def status(
    url: UrlOption = DEFAULT_URL, json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Say what a running gateway does now: stage, share, who answers, the window's verdict."""
    from failsoft.demo.tables import status_table  # noqa: PLC0415

    answer = GatewayClient(url).status()
    if json_:
        console.print_json(data=answer)
    else:
        console.print(status_table(answer))


@app.command()
def degrade(
    why: WhyOption,
    for_: Annotated[
        str | None, typer.Option("--for", help="End by itself after this time, like 90s, 15m or 2h.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    home: HomeOption = None,
) -> None:
    """Force the fallback for everyone, on every replica, until restored or the time is over."""
    from failsoft.durations import parse_duration_s  # noqa: PLC0415

    client = GatewayClient(url, token=Home.find(home).operator_token())
    plan = client.degrade(for_s=parse_duration_s(for_) if for_ else None, why=why)
    console.print(f"degraded: plan epoch {plan.get('epoch')}. Undo with: failsoft restore --why '…'")


@app.command()
def restore(why: WhyOption, url: UrlOption = DEFAULT_URL, home: HomeOption = None) -> None:
    """End an operator's force; the model returns through shadow, canary and ramp."""
    plan = GatewayClient(url, token=Home.find(home).operator_token()).restore(why=why)
    console.print(f"restored: stage {plan.get('stage')}, plan epoch {plan.get('epoch')}. Watch with: failsoft status")


def main() -> None:
    """Entry point: errors raised on purpose become one line and exit code 1."""
    try:
        app()
    except FailsoftError as error:
        Console(stderr=True).print(f"[red]failsoft:[/red] {error}", highlight=False)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
