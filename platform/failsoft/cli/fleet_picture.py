"""The picture of a simulated fleet: where its time went, and what would buy more of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from failsoft.training.fleet.setting import Part
from failsoft.training.fleet.study import PUBLISHED, Lever, Study

_GREEN, _RED, _BLUE, _GREY = "#2f7d4f", "#b3202a", "#4a78b5", "#777777"
_LEAST_SHOWN = 0.12
"""What costs more than so much of the time is cut off, and told as a number."""


def draw_fleet(study: Study, tried: Sequence[Lever], path: Path) -> None:
    """Write a PNG; what no lever was tried for has one part only.

    Raises:
        OSError: the file could not be written.
    """
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(15, 8 if tried else 4), dpi=100, layout="constrained")
        all_axes = figure.subplots(2 if tried else 1, 1, squeeze=False, height_ratios=[1, 2] if tried else [1])
        ettr, setting = study.ettr, study.setting
        figure.suptitle(
            f"{setting.nodes} nodes, {setting.days:g} days, faults as in {setting.faults.name}: "
            f"ETTR {ettr.value:.1%} ({ettr.low:.1%} to {ettr.high:.1%} over {len(study.runs)} seeds)"
        )
        _draw_parts(all_axes[0][0], study)
        if tried:
            _draw_levers(all_axes[1][0], tried)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png")


def _draw_parts(axes: Axes, study: Study) -> None:
    parts = [part for part in Part if part is not Part.PRODUCTIVE and study.share(part) > 0.0]
    for row, part in enumerate(parts):
        share = 100.0 * study.share(part)
        axes.barh(row, share, color=_BLUE)
        axes.text(share, row, f" {share:.2f} %", va="center", fontsize=10)
    axes.set_yticks(range(len(parts)), [str(part) for part in parts])
    axes.invert_yaxis()
    for name, ettr in PUBLISHED.items():
        axes.axvline(100.0 * (1.0 - ettr), color=_GREY, linestyle=":")
        said = f"all that was lost: {name} "
        axes.text(100.0 * (1.0 - ettr), -0.5, said, color=_GREY, fontsize=9, ha="right")
    axes.set(xlabel="share of the wall time that is not productive, %")


def _draw_levers(axes: Axes, tried: Sequence[Lever]) -> None:
    for row, lever in enumerate(tried):
        value = 100.0 * max(lever.buys.value, -_LEAST_SHOWN)
        axes.barh(row, value, color=_GREEN if lever.buys.value > 0.0 else _RED)
        cut = lever.buys.value < -_LEAST_SHOWN
        if not cut:
            axes.plot([100.0 * lever.buys.low, 100.0 * lever.buys.high], [row, row], color="black", linewidth=1.2)
        said = f" {100.0 * lever.buys.value:+.2f}{' (cut off)' if cut else ''}"
        right = 0.0 if cut else 100.0 * max(0.0, lever.buys.high)
        axes.text(right, row, said, va="center", fontsize=10)
    axes.set_yticks(range(len(tried)), [lever.name for lever in tried])
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set(xlabel="points of ETTR that a change buys, with its 95 % interval over the same seeds")
