"""The picture of an incident: who answered, how sure the model was, and in which stage, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from failsoft.demo.answers import Seen, stage_timeline
from failsoft.incidents.picture import COLOURS, SHADES

_COLOURS = COLOURS | {"lost": "#b3202a"}
_BIN_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment worth a line in the picture."""

    at_s: float
    text: str


def draw_incident(seen: Sequence[Seen], marks: Sequence[Mark], path: Path) -> None:
    """Write a PNG (1500 × 900 pixels) of what the clients saw.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not seen:
        raise ValueError("no answers were recorded, so there is no picture to draw")
    start_s = min(one.sent_s for one in seen)
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(15, 9), dpi=100, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        _draw_sources(upper, seen, start_s)
        _draw_confidence(lower, seen, start_s)
        _shade_stages(upper, seen, start_s)
        _shade_stages(lower, seen, start_s, named=True)
        _draw_marks(upper, lower, marks, start_s)
        figure.savefig(path)


def _draw_sources(axes: Axes, seen: Sequence[Seen], start_s: float) -> None:
    bins = int(max(one.sent_s - start_s for one in seen) / _BIN_S) + 1
    counts = {source: [0.0] * bins for source in _COLOURS}
    for one in seen:
        source = "lost" if one.lost else one.source or "lost"
        counts[source][int((one.sent_s - start_s) / _BIN_S)] += 1 / _BIN_S
    times = [index * _BIN_S for index in range(bins)]
    used = [source for source in _COLOURS if any(counts[source])]
    axes.stackplot(
        times, [counts[s] for s in used], colors=[_COLOURS[s] for s in used], labels=used, step="post", alpha=0.9
    )
    axes.set_ylabel("answers per second, by source")
    axes.legend(loc="lower left", ncols=len(used), frameon=True)


def _draw_confidence(axes: Axes, seen: Sequence[Seen], start_s: float) -> None:
    for source in ("primary", "canary", "gbdt"):
        sure = [one for one in seen if one.source == source and one.confidence is not None]
        times = [one.sent_s - start_s for one in sure]
        heights = [one.confidence or 0.0 for one in sure]
        axes.scatter(times, heights, s=7, color=_COLOURS[source], label=source, alpha=0.7, linewidths=0)
    refused = [one for one in seen if one.refused_confidence is not None]
    heights = [one.refused_confidence or 0.0 for one in refused]
    times = [one.sent_s - start_s for one in refused]
    axes.scatter(times, heights, s=14, marker="x", color=_COLOURS["lost"], linewidths=0.8, label="model's, refused")
    axes.legend(loc="center left", frameon=True, fontsize=9)
    axes.axhline(0.65, color="#666666", linewidth=0.8, linestyle="--")
    axes.text(0, 0.66, "low confidence 0.65", fontsize=9, color="#444444")
    axes.set(ylim=(0, 1.02), ylabel="confidence of the answer", xlabel="seconds of traffic")


def _shade_stages(axes: Axes, seen: Sequence[Seen], start_s: float, *, named: bool = False) -> None:
    timeline = stage_timeline(seen)
    end_s = max(one.sent_s for one in seen)
    ends = [at_s for at_s, _ in timeline[1:]] + [end_s]
    for (at_s, stage), until_s in zip(timeline, ends, strict=True):
        shade = SHADES.get(stage, "#eeeeee")
        axes.axvspan(at_s - start_s, until_s - start_s, color=shade, zorder=-1, linewidth=0)
        if named and until_s - at_s > 0.5:  # narrower bands have no room for a word
            axes.text(at_s - start_s + 0.2, 0.03, stage.upper(), fontsize=9, color="#444444", rotation=90)


def _draw_marks(upper: Axes, lower: Axes, marks: Sequence[Mark], start_s: float) -> None:
    top = upper.get_ylim()[1] * 1.22
    upper.set_ylim(0, top)
    for index, mark in enumerate(marks):
        for axes in (upper, lower):
            axes.axvline(mark.at_s - start_s, color="#333333", linewidth=0.9, linestyle=":")
        height = top * (0.99 - 0.045 * (index % 4))
        upper.text(mark.at_s - start_s + 0.1, height, mark.text, fontsize=9, va="top")
