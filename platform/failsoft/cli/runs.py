"""``failsoft runs``, ``goodput``, ``report`` and ``verify``: where runs stand, where time went, what was consumed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from failsoft.artifacts.home import Home, run_names
from failsoft.cli import run_tables as tables
from failsoft.cli.app import HomeOption, app, console
from failsoft.cli.completion import complete_run, complete_run_or_incident
from failsoft.cli.incidents import INCIDENT, write_incident_report
from failsoft.cli.said import JsonOption, answer, print_json, progress
from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Event, Side, each_event

RunArgument = Annotated[
    str,
    typer.Argument(help="Name of the run, as in: failsoft train --run NAME.", autocompletion=complete_run_or_incident),
]
_LAST_EVENTS = 12


@app.command()
def runs(
    run: Annotated[
        str | None, typer.Argument(help="Name of one run, to see all of it.", autocompletion=complete_run)
    ] = None,
    json_: JsonOption = False,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Give memory back that runs without a driver have left on this host.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """List the training runs: where each stands, what it went through, how old its last word is."""
    from failsoft.training.accounting.whereabouts import all_whereabouts, whereabouts

    place, now_s = Home.find(home), SystemClock().wall_s()
    if sweep:
        _sweep(place, now_s, json_=json_)
        return
    events = _of_training(place)
    if run is None:
        looks = all_whereabouts(place.runs, events, now_s=now_s)
        if json_:
            print_json([look.to_json() for look in looks])
        else:
            console.print(
                tables.runs(looks) if looks else escape(f"no runs in {place.runs}; start one with: failsoft train")
            )
            _tell_left_over(place, now_s)
        return
    look = whereabouts(_folder(place, run), events, now_s=now_s)
    if json_:
        print_json(look.to_json())
        return
    for table in tables.detail(look, _of(run, events)[-_LAST_EVENTS:], now_s=now_s):
        console.print(table)


@app.command()
def goodput(
    run: RunArgument,
    json_: JsonOption = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw it, as a PNG.")] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print it in Prometheus' text format.")] = False,
    home: HomeOption = None,
) -> None:
    """Say where a run's time went: productive, lost, stalled, and each restart by its parts. They add up."""
    from failsoft.training.accounting import degraded_metrics
    from failsoft.training.accounting.goodput import as_metrics
    from failsoft.training.accounting.whereabouts import whereabouts

    if json_ and metrics:
        raise ConfigError("--json and --metrics are two forms of the same answer; ask for one of them")
    place = Home.find(home)
    events = _of_training(place)
    look = whereabouts(_folder(place, run), events, now_s=SystemClock().wall_s())
    found = look.account
    if plot is not None:
        from failsoft.cli.goodput_picture import draw_goodput

        draw_goodput(found, plot)
    if json_ or metrics:
        shown = as_metrics(found) + degraded_metrics.as_metrics(look.summary.degraded, run=run)
        if json_:
            print_json(found.to_json())
        else:
            typer.echo(shown)
        return
    for table in tables.goodput(found):
        console.print(table)
    if plot is not None:
        progress.print(f"drawn: {plot}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def report(
    run: RunArgument,
    into: Annotated[Path | None, typer.Option(help="Folder for the report; the run's own when left out.")] = None,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Write one page and one picture of a run or an incident that stand alone: what happened, and what it cost."""
    from failsoft.cli.run_report import write_run_report
    from failsoft.training.accounting.whereabouts import whereabouts

    place, now_s = Home.find(home), SystemClock().wall_s()
    if run.startswith(INCIDENT) and not place.run(run).is_dir():
        _say_written(write_incident_report(place, run, into), json_=json_)
        return
    events = _of(run, each_event(place.ledger, Side.TRAINING, run))
    folder = _folder(place, run)
    look = whereabouts(folder, events, now_s=now_s)
    _say_written(write_run_report(look, events, into=into or folder, now_s=now_s), json_=json_)


def _say_written(paths: Iterable[Path | None], *, json_: bool) -> None:
    written = [path for path in paths if path is not None]
    answer(json_, {"written": written}, *(f"written: {path}" for path in written))


@app.command()
def verify(
    run: RunArgument,
    ids: Annotated[int, typer.Option(min=0, help="Ids named of each kind in each epoch.")] = 16,
    json_: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Prove that a run lost no sample and saw none twice, from its own record.

    Exit code 2 when it did, or when the record of an epoch is incomplete, so that nobody can say.
    """
    from failsoft.training.accounting.exactness import verify as judge

    found = judge(_folder(Home.find(home), run), max_ids=ids)
    if json_:
        print_json(found.to_json())
    else:
        console.print(tables.exactness(found))
        for line in tables.odd_ids(found):
            console.print(line, highlight=False)
        worlds = ", ".join(map(str, found.worlds))
        console.print(
            f"{found.generations} groups of workers (ranks of those whose work stands: {worlds}); "
            f"{found.repeated_batches} batches were worked on again after restarts and count once; "
            f"{found.torn_files} files end in a torn record",
            highlight=False,
        )
    if not found.proven:
        raise typer.Exit(code=2)


def _tell_left_over(place: Home, now_s: float) -> None:
    """What lies in memory of this host with nobody who drives the run."""
    from failsoft.training.snapshots.leftovers import in_words, left_over

    going = [one for one in left_over(place.runs, now_s) if one.may_go]
    for one in going:
        console.print(in_words(one), markup=False, highlight=False)
    if going:
        console.print("to give it back: failsoft runs --sweep (a run then goes on from its last checkpoint on disk)")


def _sweep(place: Home, now_s: float, *, json_: bool) -> None:
    from failsoft.training.snapshots.leftovers import left_over, sweep

    given_back = sweep(left_over(place.runs, now_s))
    answer(json_, {"bytes": given_back}, f"{given_back / 1e6:.0f} MB of left-over snapshots are given back")


def _of_training(place: Home) -> list[Event]:
    return [event for event in each_event(place.ledger, Side.TRAINING) if event.side is Side.TRAINING]


def _of(run: str, events: Iterable[Event]) -> list[Event]:
    return [event for event in events if event.side is Side.TRAINING and event.subject == run]


def _folder(home: Home, run: str) -> Path:
    folder = home.run(run)
    if not folder.is_dir():
        there = run_names(home.runs)
        known = f"there: {', '.join(there)}" if there else "start one with: failsoft train"
        raise ArtifactMissingError(f"there is no run {run!r} in {home.runs}; {known}")
    return folder
