"""The picture of a run's time: what it went to, along the run and in total."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from failsoft.cli.run_tables import seconds
from failsoft.errors import ConfigError
from failsoft.health.plain_text import plain
from failsoft.training.accounting.goodput import Account
from failsoft.training.accounting.stretches import Part

_COLOURS = {
    Part.PRODUCTIVE: "#2f7d4f",
    Part.LOST: "#b3202a",
    Part.UNDONE: "#c96a2b",
    Part.REFUSED: "#e8a33d",
    Part.STALL: "#7a5ea8",
    Part.VALIDATION: "#b79fd6",
    Part.DETECT: "#1f3b63",
    Part.BACKOFF: "#9db8d9",
    Part.START: "#4a78b5",
    Part.LOAD: "#6fb3c9",
    Part.UNSPLIT: "#777777",
    Part.UNKNOWN: "#cccccc",
}


def draw_goodput(account: Account, path: Path) -> None:
    """Write :func:`picture_of_goodput` to a file.

    Raises:
        ConfigError: the run has no time to draw.
        OSError: the file could not be written.
    """
    drawn = picture_of_goodput(account)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(drawn)


def picture_of_goodput(account: Account) -> bytes:
    """A PNG (1500 × 800 pixels).

    Raises:
        ConfigError: the run has no time to draw.
    """
    if not account.wall_micros:
        raise ConfigError(f"run {account.run!r} has left no time in the ledger to draw; train it first")
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(15, 8), dpi=100, layout="constrained")
        upper, lower = figure.subplots(2, 1, height_ratios=[1, 3])
        ratio = 0.0 if account.ettr is None else account.ettr
        title = f"run {plain(account.run)}: {seconds(account.wall_s)} of wall time, {ratio:.1%} productive (ETTR)"
        figure.suptitle(title, parse_math=False)
        _draw_along(upper, account)
        _draw_totals(lower, account)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png")
    return drawn.getvalue()


def _draw_along(axes: Axes, account: Account) -> None:
    for part, colour in _COLOURS.items():
        spans = [(one.begin_us / 1e6, one.length_us / 1e6) for one in account.stretches if one.part is part]
        if spans:
            axes.broken_barh(spans, (0.0, 1.0), color=colour, linewidth=0)
    for incident in account.incidents:
        axes.axvline(incident.after_s, color="#333333", linewidth=0.9, linestyle=":")
        text = f" {incident.kind} at batch {incident.position}"
        axes.text(incident.after_s, 1.04, text, fontsize=9, rotation=15, va="bottom")
    axes.set(xlim=(0.0, account.wall_s), ylim=(0.0, 1.5), yticks=[], xlabel="seconds of the run's wall time")


def _draw_totals(axes: Axes, account: Account) -> None:
    shown = [part for part in Part if account.micros[part] != 0]
    for row, part in enumerate(shown):
        value_s = account.seconds(part)
        axes.barh(row, value_s or 0.0, color=_COLOURS[part])
        said = "not known" if value_s is None else f"{seconds(value_s)}, {value_s / account.wall_s:.1%}"
        axes.text((value_s or 0.0) + account.wall_s * 0.005, row, said, va="center", fontsize=10)
    axes.set_yticks(range(len(shown)), [str(part) for part in shown])
    axes.invert_yaxis()
    axes.set(xlim=(0.0, account.wall_s * 1.12), xlabel="seconds, by what they went to")
