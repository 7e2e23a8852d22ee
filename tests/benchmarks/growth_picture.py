"""The curves of one subject as one PNG, each with its fitted line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.growth_curve import Curve

_ACROSS = 3


def draw_curves(title: str, curves: Sequence[Curve], path: Path) -> None:
    """Write the picture; both axes are logarithmic."""
    rows = math.ceil(len(curves) / _ACROSS)
    figure = Figure(figsize=(5 * _ACROSS, 4 * rows + 0.6), dpi=90, layout="constrained")
    all_axes = figure.subplots(rows, _ACROSS, squeeze=False).ravel()
    figure.suptitle(title)
    for axes, one in zip(all_axes, curves, strict=False):
        _draw(axes, one)
    for axes in all_axes[len(curves) :]:
        axes.set_axis_off()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def _draw(axes: Axes, one: Curve) -> None:
    fit = one.exponent
    middle_x = math.exp(sum(map(math.log, one.sizes)) / len(one.sizes))
    middle_y = math.exp(sum(map(math.log, one.costs)) / len(one.costs))
    line = [middle_y * (size / middle_x) ** fit.value for size in one.sizes]
    axes.loglog(one.sizes, one.costs, "o", color="#1f3b63")
    axes.loglog(one.sizes, line, "-", color="#b3202a", linewidth=1.2)
    interval = f", {fit.low:+.2f} to {fit.high:+.2f}" if math.isfinite(fit.low) else ""
    axes.set_title(f"{one.name}\nexponent {fit.value:+.2f}{interval}", fontsize=10)
    axes.set(xlabel=one.of, ylabel=one.unit)
    low, high = min(one.costs), max(one.costs)
    if high < 10.0 * low:  # else noise of a few per cent would fill the picture
        axes.set_ylim(low / 3.0, high * 3.0)
    axes.grid(visible=True, which="major", alpha=0.3)
