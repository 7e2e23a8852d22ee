"""``failsoft plan``: sums to do before a long run."""

from __future__ import annotations

from typing import Annotated

import typer

from failsoft.cli.app import app, console
from failsoft.cli.said import JsonOption, print_json


@app.command()
def plan(
    mtbf: Annotated[str, typer.Option(help="Mean time between failures of one node, like 30d or 500h.")],
    checkpoint_cost: Annotated[str, typer.Option(help="How long one checkpoint holds the training up, like 0.5s.")],
    nodes: Annotated[int, typer.Option(min=1, help="Nodes that must all live.")] = 1,
    restart: Annotated[str, typer.Option(help="From a failure to the first new step, like 60s.")] = "60s",
    step: Annotated[str | None, typer.Option(help="Time of one step; then the answer is in steps, too.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 7,
    json_: JsonOption = False,
) -> None:
    """How often to checkpoint: the interval that wastes least (Young/Daly), checked by a small simulation."""
    from failsoft.cli.plan_words import as_json, in_words, trial_table
    from failsoft.durations import parse_duration_s
    from failsoft.training.checkpoints.cadence import Setting
    from failsoft.training.checkpoints.cadence_trial import side_by_side

    setting = Setting(
        node_mtbf_s=parse_duration_s(mtbf),
        checkpoint_cost_s=parse_duration_s(checkpoint_cost),
        nodes=nodes,
        restart_s=parse_duration_s(restart),
    )
    step_s = None if step is None else parse_duration_s(step)
    trials = side_by_side(setting, seed=seed)
    if json_:
        print_json(as_json(setting, trials, step_s=step_s))
        return
    console.print(trial_table(trials))
    for line in in_words(setting, trials, step_s=step_s):
        console.print(line, highlight=False)
