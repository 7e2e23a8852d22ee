"""What of the incident race is one number for each rival, as bars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.race_colours import COLOURS, OTHER


@dataclass(frozen=True, kw_only=True)
class Bars:
    """One panel: a number for each; None where it never came to that."""

    title: str
    values: Mapping[str, float | None]
    unit: str = ""


def panels(found: Mapping[str, Any], illness: str) -> list[Bars]:
    """The four that are drawn of an incident, of what a simulated leg has counted."""
    incident, trips = found["incidents"][illness], found["false_trips"]
    return [
        Bars(title="wrong answers that callers got", values=_each(incident, "wrong")),
        Bars(title="until all callers met the model for good", values=_each(incident, "back_s"), unit=" s"),
        Bars(title="callers met the ill model again", values=_each(incident, "returns"), unit=" ×"),
        Bars(title="false trips, a healthy day of CLINC150", values=_each(trips, "clinc150")),
    ]


def _each(found: Mapping[str, Mapping[str, float | None]], what: str) -> dict[str, float | None]:
    return {name: one[what] for name, one in found.items()}


def drawn(found: Mapping[str, Any], illness: str) -> Figure:
    """The panels of one incident."""
    figure = Figure(figsize=(10.0, 5.6), layout="constrained")
    for axes, bars in zip(figure.subplots(2, 2).flat, panels(found, illness), strict=True):
        _panel(axes, bars)
    figure.suptitle(f"02:15: {illness}", x=0.01, ha="left", fontsize=10)
    return figure


def _panel(axes: Axes, bars: Bars) -> None:
    names = list(bars.values)[::-1]
    lengths = [bars.values[name] or 0.0 for name in names]
    axes.barh(names, lengths, color=[COLOURS.get(name, OTHER) for name in names], height=0.7)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(0.0, 30.0 * max(1.0, *lengths))
    for row, name in enumerate(names):
        value = bars.values[name]
        word = " never" if value is None else f" {value:,.0f}{bars.unit}"
        axes.text(lengths[row], row, word, va="center", fontsize=7)
    axes.tick_params(axis="y", labelsize=7, length=0)
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(bars.title, loc="left", fontsize=9)
