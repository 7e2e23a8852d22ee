"""``failsoft fleet``: what a run on thousands of GPUs would make of its time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from failsoft.cli.app import app
from failsoft.cli.said import JsonOption, progress
from failsoft.errors import ConfigError

if TYPE_CHECKING:
    from failsoft.training.fleet.setting import FleetSetting
    from failsoft.training.fleet.study import Lever, Study


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
    from failsoft.cli.fleet_words import print_study
    from failsoft.durations import parse_duration_s
    from failsoft.training.fleet.faults import GPUS_PER_NODE, rates_named
    from failsoft.training.fleet.setting import FleetSetting, Times

    if gpus % GPUS_PER_NODE:
        raise ConfigError(f"--gpus is {gpus}; a node has {GPUS_PER_NODE}, so use a multiple of that")
    costs = (parse_duration_s(one) for one in (start, checkpoint_cost, step))
    times = Times(**dict(zip(("start_s", "checkpoint_cost_s", "step_s"), costs, strict=True)))
    nodes, rates = gpus // GPUS_PER_NODE, rates_named(faults)
    setting = FleetSetting(nodes=nodes, spares=spares, least=least, days=days, faults=rates, times=times)
    base, tried = _studied(setting, range(1, seeds + 1), levers=levers)
    if picture is not None:
        from failsoft.cli.fleet_picture import draw_fleet

        draw_fleet(base, tried, picture)
    print_study(base, tried, json_=json_)


def _studied(setting: FleetSetting, seeds: Sequence[int], *, levers: bool) -> tuple[Study, list[Lever]]:
    from failsoft.training.fleet.study import levers as try_levers
    from failsoft.training.fleet.study import study

    with progress.status("simulating"):
        base = study(setting, seeds)
        return base, try_levers(base, seeds) if levers else []
