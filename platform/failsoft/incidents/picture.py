"""The picture of an incident: who answered, how sure the models were, and in which stage, over time."""

from __future__ import annotations

import io
from collections import Counter, defaultdict

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from failsoft.incidents.finding import Kind
from failsoft.incidents.story import Story, clock

COLOURS = {
    "primary": "#2f7d4f",
    "canary": "#8cc63f",
    "previous": "#4a78b5",
    "gbdt": "#e8a33d",
    "rules": "#c96a2b",
}
_OTHER = "#7a5ea8"
SHADES = {
    "serving": "#dff0e4",
    "degraded": "#f7d9d9",
    "shadow": "#e6e0f2",
    "canary": "#fdf3d0",
    "ramp_20": "#f3f5cf",
    "ramp_50": "#e8f3d2",
    "rejected": "#dddddd",
    "overload": "#fdf3d0",
    "bad_input": "#fdf3d0",
}
_POINTS = 240


def draw(story: Story) -> bytes:
    """A PNG (1500 × 800 pixels); of an incident without any answer only its stages."""
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(15, 8), dpi=100, layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        start_s = story.incident.began_s
        _draw_sources(upper, story, start_s)
        _draw_confidence(lower, story, start_s)
        for axes in (upper, lower):
            _shade(axes, story, start_s, named=axes is lower)
        figure.suptitle(f"{story.incident.name}, from {clock(start_s)}", ha="left", x=0.01)
        png = io.BytesIO()
        figure.savefig(png, format="png")
    return png.getvalue()


def _bins(story: Story, start_s: float) -> tuple[float, float, int]:
    """Where bins begin, how wide they are, how many: no finer than a span, no more than a picture shows."""
    ends = [span.at_s - start_s for span in story.spans]
    first_s = min([-story.beside_s / 10, *(at_s - span.span_s for at_s, span in zip(ends, story.spans, strict=True))])
    last_s = max([story.lasted_s, *ends])
    wide_s = max([(last_s - first_s) / _POINTS, *(span.span_s for span in story.spans)], default=1.0)
    return first_s, max(wide_s, 1e-3), int((last_s - first_s) / max(wide_s, 1e-3)) + 1


def _draw_sources(axes: Axes, story: Story, start_s: float) -> None:
    first_s, wide_s, count = _bins(story, start_s)
    rates: dict[str, list[float]] = {}
    for span in story.spans:
        place = min(count - 1, int((span.at_s - start_s - first_s) / wide_s))
        for (source, _why), answers in span.answers.items():
            rates.setdefault(source, [0.0] * count)[place] += answers / wide_s
    order = [source for source in (*COLOURS, *sorted(rates.keys() - COLOURS.keys())) if source in rates]
    times = [first_s + place * wide_s for place in range(count)]
    if order:
        colours = [COLOURS.get(source, _OTHER) for source in order]
        axes.stackplot(times, [rates[s] for s in order], colors=colours, labels=order, step="pre", alpha=0.9)
        axes.legend(loc="lower left", ncols=len(order), frameon=True)
    axes.set_ylabel("answers per second, by source")


def _draw_confidence(axes: Axes, story: Story, start_s: float) -> None:
    first_s, wide_s, _count = _bins(story, start_s)
    sums, counts = defaultdict[int, float](float), Counter[int]()
    for span in story.spans:
        place = int((span.at_s - start_s - first_s) / wide_s)
        sums[place] += sum(count * (tenth + 0.5) / 10 for tenth, count in enumerate(span.confidence))
        counts[place] += sum(span.confidence)
    seen = sorted(place for place, count in counts.items() if count)
    axes.plot(
        [first_s + (p + 0.5) * wide_s for p in seen], [sums[p] / counts[p] for p in seen], color="#1f3b63", marker="."
    )
    axes.set_ylim(0.0, 1.02)
    axes.set_ylabel("confidence of the models, mean")
    axes.set_xlabel("seconds since it began")


def _shade(axes: Axes, story: Story, start_s: float, *, named: bool) -> None:
    moves = [(e.at_s, str(e.data.get("stage"))) for e in story.incident.events if e.kind == "stage_move"]
    if story.incident.kind is not Kind.FALL:  # it moves no stage: all of it is shown
        moves = [(start_s, str(story.incident.kind))]
    elif not moves:  # no plan has come
        moves = [(start_s, story.incident.stage)]
    ends = [at_s for at_s, _stage in moves[1:]] + [story.until_s]
    for (at_s, stage), end_s in zip(moves, ends, strict=True):
        begin, end = at_s - start_s, end_s - start_s
        axes.axvspan(begin, max(begin, end), color=SHADES.get(stage, "#eeeeee"), zorder=0, lw=0)
        if named:
            axes.text(begin, 0.03, f" {stage}", fontsize=9, va="bottom")
