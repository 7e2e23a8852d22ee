"""``failsoft preempt``: tell a run to save and leave, from a preStop hook, a batch script or by hand."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from failsoft.artifacts.home import Home
from failsoft.cli.app import HomeOption, app
from failsoft.cli.completion import complete_run
from failsoft.cli.said import JsonOption, answer
from failsoft.errors import ArtifactMissingError, ConfigError, PreemptedError
from failsoft.health.clock import Clock, SystemClock
from failsoft.health.ledger import Side, parse_event
from failsoft.health.ledger_files import Position, Tail, last_bytes

_LOOK_S = 0.2
_LAST_WORDS = frozenset({"preempted", "notice_missed", "run_left", "run_finished", "run_stopped"})


@app.command()
def preempt(
    run: Annotated[
        str, typer.Argument(help="Name of the run, as in: failsoft train --run NAME.", autocompletion=complete_run)
    ],
    why: Annotated[str, typer.Option(help="Goes to the ledger.")] = "told by failsoft preempt",
    wait: Annotated[float, typer.Option(help="Seconds to wait until its workers have left; 0 returns at once.")] = 0.0,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Tell a run to save after its present step and leave; its process exits with 143, the same command goes on.

    Slurm: --signal=B:USR1@60, and in the script: trap 'failsoft preempt RUN --wait 50; scontrol requeue $JOB' USR1.
    Kubernetes: a preStop hook that runs failsoft preempt RUN --wait 25.
    """
    from failsoft.training.survival.notice import drop_notice

    if not wait >= 0.0:
        raise ConfigError(f"--wait is {wait}; use 0 or more seconds")
    place, clock = Home.find(home), SystemClock()
    if not place.run(run).is_dir():
        there = sorted(path.name for path in place.runs.iterdir()) if place.runs.is_dir() else []
        raise ArtifactMissingError(f"there is no run {run!r} in {place.runs}; there: {', '.join(there) or 'none'}")
    end = last_bytes(place.ledger, 0)  # by place, not by time: workers' machines have clocks of their own
    drop_notice(place.run(run), why)
    if wait and not _left(place, run, end, clock, wait):
        raise PreemptedError(f"run {run!r} was told, and has not left after {wait:g} s; see: failsoft runs {run}")
    words = f"run {run} {'has left' if wait else 'is told'}; its own command takes it up again"
    answer(json_, {"run": run, "told": True, "has_left": bool(wait)}, words)


def _left(place: Home, run: str, end: Position, clock: Clock, wait_s: float) -> bool:
    until_s = clock.monotonic_s() + wait_s
    with closing(Tail(place.ledger, after=end)) as tail:
        while True:
            news = (event for event in map(parse_event, tail.new_lines()) if event is not None)
            mine = (event for event in news if event.side is Side.TRAINING and event.subject == run)
            if any(event.kind in _LAST_WORDS for event in mine):
                return True
            if not clock.monotonic_s() < until_s:
                return False
            clock.sleep_s(_LOOK_S)
