"""``failsoft fleet``: what a run on thousands of GPUs would make of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from failsoft.cli.app import app, console
from failsoft.cli.said import JsonOption, print_json, progress
from failsoft.errors import ConfigError


@app.command()
def fleet(
    gpus: Annotated[int, typer.Option(min=8, help="GPUs of the run, eight on each node.")] = 16_384,
    spares: Annotated[int, typer.Option(min=0, help="Idle nodes beside them.")] = 32,
    least: Annotated[
        int | None, typer.Option(min=1, help="Nodes with which it goes on. [dim]all: it waits for a spare[/dim]")
    ] = None,
    days: Annotated[float, typer.Option(min=0.1, help="Of training.")] = 54.0,
    faults: Annotated[
        str, typer.Option(help="Published rates by node: llama3 (a fault each 2.8 h on 16,384 GPUs), or rsc (1.7 h).")
    ] = "llama3",
    start: Annotated[str, typer.Option(help="From nothing to the first step on all nodes.")] = "180s",
    checkpoint_cost: Annotated[str, typer.Option(help="How long one checkpoint holds the training up.")] = "2s",
    step: Annotated[str, typer.Option(help="Time of one step.")] = "6s",
    seeds: Annotated[int, typer.Option(min=2, help="Runs that are simulated, each with other faults.")] = 10,
    levers: Annotated[bool, typer.Option("--levers", help="Also what each change would buy; a minute.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Write a PNG of it here.")] = None,
    json_: JsonOption = False,
) -> None:
    """Simulate a run on a fleet under published fault rates, led by the policies that lead a real run.

    Supervisor, back-off, budgets, preflight record, growth and checkpoint interval are the code that a run uses; what
    takes how long is given, or guessed. The ratio is the effective training time (ETTR).
    """
    from failsoft.cli.fleet_words import as_json, lever_table, time_table, words
    from failsoft.durations import parse_duration_s
    from failsoft.training.fleet.faults import GPUS_PER_NODE, rates_named
    from failsoft.training.fleet.setting import FleetSetting, Times
    from failsoft.training.fleet.study import levers as try_levers
    from failsoft.training.fleet.study import study

    if gpus % GPUS_PER_NODE:
        raise ConfigError(f"--gpus is {gpus}; a node has {GPUS_PER_NODE}, so use a multiple of that")
    times = Times(
        start_s=parse_duration_s(start),
        checkpoint_cost_s=parse_duration_s(checkpoint_cost),
        step_s=parse_duration_s(step),
    )
    setting = FleetSetting(
        nodes=gpus // GPUS_PER_NODE, spares=spares, least=least, days=days, faults=rates_named(faults), times=times
    )
    numbers = range(1, seeds + 1)
    with progress.status("simulating"):
        base = study(setting, numbers)
        tried = try_levers(base, numbers) if levers else []
    if picture is not None:
        from failsoft.cli.fleet_picture import draw_fleet

        draw_fleet(base, tried, picture)
    if json_:
        print_json(as_json(base, tried))
        return
    console.print(time_table(base))
    if tried:
        console.print(lever_table(tried))
    for line in words(base):
        console.print(line, highlight=False)
