"""``failsoft simulate``: what a trip policy would do, before anybody arms it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from failsoft.cli.app import app, console
from failsoft.cli.said import JsonOption, print_json
from failsoft.errors import ConfigError
from failsoft.health.monitor import HealthPolicy

_LOG_HELP = "Answers of a healthy model: JSON lines or CSV with outcome or confidence, and time. Drawn without it."


@app.command()
def simulate(
    log: Annotated[Path | None, typer.Argument(help=_LOG_HELP)] = None,
    healthy: Annotated[
        str, typer.Option(help="Share of a healthy model's answers that are bad; not with a log.")
    ] = "2%",
    broken: Annotated[str, typer.Option(help="The same of a broken model, which is to be noticed.")] = "40%",
    rps: Annotated[
        float, typer.Option(help="Answers in a second, over all gateways; a log's own times go before.")
    ] = 50.0,
    gateways: Annotated[int, typer.Option(min=1, help="Gateway replicas, each with a window of its own.")] = 1,
    hours: Annotated[float, typer.Option(min=0.01, help="Healthy time to simulate; not with a log.")] = 24.0,
    window: Annotated[int, typer.Option(help="Judge the last so many answers.")] = HealthPolicy.window_size,
    minimum: Annotated[int, typer.Option(help="No verdict on fewer answers.")] = HealthPolicy.min_samples,
    limit: Annotated[str, typer.Option(help="Degrade at this share of bad answers.")] = "20%",
    confidence: Annotated[float, typer.Option(help="In a log: answers below it are bad.")] = 0.65,
    max_false_trips: Annotated[float, typer.Option(help="So many false trips a day are borne.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same one gives the same numbers.")] = 0,
    json_: JsonOption = False,
) -> None:
    """Say what a trip policy does: false trips a day on a healthy model, and how soon it notices a broken one.

    Exit code 0: it fits. 2: it would trip on the healthy model, or miss the broken one. 1: the input can't be used.
    """
    from failsoft.health.simulation import Scenario
    from failsoft.health.trial import Course, TrialPlan, course_of_log, drawn_course, run_trial

    policy = HealthPolicy(window_size=window, min_samples=minimum, max_bad_fraction=_share("--limit", limit))
    scenario = Scenario(broken_fraction=_share("--broken", broken), calls_per_s=rps, gateways=gateways)
    course: Course
    if log is not None:
        course = course_of_log(log, low_confidence=confidence, calls_per_s=rps)
    else:
        course = drawn_course(_share("--healthy", healthy), calls_per_s=rps, hours=hours, seed=seed)
    plan = TrialPlan(policy=policy, scenario=scenario, max_false_trips_per_day=max_false_trips, seed=seed)
    trial = run_trial(course, plan)
    if json_:
        print_json(trial.as_json())
    else:
        for line in trial.in_words():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not trial.fits:
        raise typer.Exit(code=2)


def _share(option: str, text: str) -> float:
    """A share written as ``2%`` or ``0.02``."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100.0 if number != text.strip() else 1.0)
    except ValueError:
        share = math.nan
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"{option} is {text!r}; write a share like 2% or 0.02")
    return share
