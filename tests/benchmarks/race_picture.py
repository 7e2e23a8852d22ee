"""Pictures of the incident race: ``python -m tests.benchmarks.race_picture`` draws the newest into ``docs/race``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.race_bars import drawn as bars_of
from tests.benchmarks.race_colours import COLOURS
from tests.benchmarks.race_sheets import BEFORE_S, COUNTED, ILLNESSES, SIMULATED, WALL
from tests.benchmarks.race_simulated import INCIDENT_S, LABELLED, OURS

DOCS = Path("docs/race")
SHOWN = (
    OURS,
    LABELLED,
    "pybreaker",
    "sliding window",
    "bare, rolled back by an alert",
    "bare, rolled back by a person",
)
_FROM_S, _TO_S = INCIDENT_S - 120.0, INCIDENT_S + 3600.0
_SHORT_S = 60.0
_NEAR_S, _FAR_S = 5, 30
"""Seconds over which the upper and the lower half of a picture are smoothed, backwards."""


def draw(found: Path, into: Path) -> list[Path]:
    """Draw what the folder ``found`` has series of; the paths that were written."""
    into.mkdir(parents=True, exist_ok=True)
    drawn = []
    if (found / SIMULATED).exists():
        series = json.loads((found / SIMULATED).read_text("utf-8"))
        for number, illness in enumerate(ILLNESSES, start=1):
            drawn.append(_simulated(illness.words, series[illness.words], into / f"incident-{number}.png"))
    if (found / COUNTED).exists():
        figure = bars_of(json.loads((found / COUNTED).read_text("utf-8")), ILLNESSES[0].words)
        drawn.append(_saved(figure, into / "incident-counts.png"))
    if (found / WALL).exists():
        drawn.append(_on_the_wall(json.loads((found / WALL).read_text("utf-8")), into / "incident-wall.png"))
    return drawn


def _simulated(words: str, series: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> Path:
    figure = Figure(figsize=(10.0, 5.6), layout="constrained")
    first, whole = figure.subplots(2, 1, height_ratios=(1, 1))
    for name in SHOWN:
        colour, width = COLOURS[name], 2.4 if name == OURS else 1.2
        right, smooth = (smoothed(series[name]["right"], over_s) for over_s in (_NEAR_S, _FAR_S))
        minutes = [(second - INCIDENT_S) / 60.0 for second in range(len(right))]
        span = slice(int(_FROM_S), int(_TO_S))
        whole.plot(
            minutes[span], smooth[span], color=colour, linewidth=width, label=name, zorder=3 if name == OURS else 2
        )
        near = slice(int(INCIDENT_S - 20), int(INCIDENT_S + _SHORT_S * 2))
        first.plot([60 * one for one in minutes[near]], right[near], color=colour, linewidth=width)
    _dressed(first, f"02:15: {words} (mean of {_NEAR_S} s)", "seconds since 02:15")
    _dressed(whole, "", f"minutes since 02:15 (mean of {_FAR_S} s)")
    whole.legend(loc="center right", fontsize=8, framealpha=0.9)
    return _saved(figure, path)


def smoothed(shares: Sequence[float], over_s: int) -> list[float]:
    """The mean of the last ``over_s`` values at each place, and of fewer at the beginning."""
    spans = (shares[max(0, end - over_s) : end] for end in range(1, len(shares) + 1))
    return [sum(span) / len(span) for span in spans]


def _on_the_wall(series: Mapping[str, Sequence[Sequence[float | None]]], path: Path) -> Path:
    figure = Figure(figsize=(10.0, 3.2), layout="constrained")
    axes = figure.subplots()
    for name in sorted(series, key=lambda name: name != OURS):
        for number, success in enumerate(series[name]):
            seconds = [second - BEFORE_S for second in range(len(success))]
            label = name if number == 0 else None
            shares = [math.nan if share is None else share for share in success]
            axes.plot(seconds, shares, color=COLOURS[name], linewidth=2.4 if name == OURS else 1.2, label=label)
    _dressed(axes, "real processes: all of the model's answers go bad at 0", "seconds")
    axes.legend(loc="lower right", fontsize=8)
    return _saved(figure, path)


def _dressed(axes: Axes, title: str, along: str) -> None:
    axes.set_ylim(-0.03, 1.03)
    axes.axvline(0.0, color="#444444", linewidth=0.8, linestyle=":")
    axes.set_ylabel("good answers")
    axes.set_xlabel(along)
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    axes.grid(visible=True, color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, loc="left", fontsize=10)


def _saved(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


if __name__ == "__main__":
    from tests.benchmarks.bench_race import FOLDER

    for drawn in draw(FOLDER, DOCS):
        print(drawn)
