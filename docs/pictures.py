"""Draws the pictures of `docs/concepts.md`: ``python docs/pictures.py`` writes ``batch.png`` and ``request.png``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

BLUE, GREEN, YELLOW, RED, GREY = "#dbe9f6", "#dff0d8", "#fdf2cc", "#f6d9d5", "#eeeeee"
WIDE, HIGH = 2.25, 0.62
Box = tuple[float, float, str, str]
Arrow = tuple[str, str, str]

BATCH: Mapping[str, Box] = {
    "order": (0, 2, "batches.py\nseed, epoch, position", GREY),
    "loader": (2.9, 2, "loading/\nodd samples replaced", BLUE),
    "guard": (5.8, 2, "guard.py\none verdict of all ranks", YELLOW),
    "update": (8.7, 2, "update\nor no trace at all", GREEN),
    "letter": (5.8, 0.8, "letters/\ndead letter, replay", RED),
    "breaker": (2.9, 0.8, "breaker.py\nhealth monitor", YELLOW),
    "snapshot": (8.7, 0.8, "snapshots/\nevery 100 steps, RAM", BLUE),
    "disk": (11.6, 0.8, "checkpoints/\nevery 2000, behind it", BLUE),
    "gates": (11.6, 2, "release/\ngates, publish", GREEN),
    "supervisor": (0, 0.8, "survival/supervise.py\n10, 30, 90 s, elsewhere", RED),
}
BATCH_ARROWS: Sequence[Arrow] = (
    ("order", "loader", ""),
    ("loader", "guard", ""),
    ("guard", "update", "good"),
    ("guard", "letter", "refused"),
    ("letter", "breaker", ""),
    ("breaker", "supervisor", "no help"),
    ("update", "snapshot", ""),
    ("snapshot", "disk", ""),
    ("update", "gates", "end"),
)
REQUEST: Mapping[str, Box] = {
    "text": (0, 2, "web/\nbounded, in time", GREY),
    "clean": (2.9, 2, "intake/sanitizer.py\ncleaned, or hopeless", BLUE),
    "plan": (5.8, 2, "plan/plan.py\nwhich arm, by a key", GREY),
    "model": (8.7, 2, "arms/\nthe model, in time", BLUE),
    "defence": (11.6, 2, "defence.py\nfinite, sure, sane", YELLOW),
    "answer": (14.5, 2, "answer\nwith its source", GREEN),
    "ladder": (11.6, 0.8, "fallback/ladder.py\nprevious, LightGBM, rules", RED),
    "monitor": (8.7, 0.8, "watching/\nhealth monitor", YELLOW),
    "controller": (5.8, 0.8, "rollout/controller.py\nwritten down, pushed", RED),
    "back": (2.9, 0.8, "rest, shadow, 5 %\n20, 50, 100 %", GREEN),
}
REQUEST_ARROWS: Sequence[Arrow] = (
    ("text", "clean", ""),
    ("clean", "plan", ""),
    ("plan", "model", ""),
    ("model", "defence", ""),
    ("defence", "answer", "good"),
    ("defence", "ladder", "weak, late, failed"),
    ("ladder", "answer", ""),
    ("model", "monitor", "every outcome"),
    ("monitor", "controller", "trip"),
    ("controller", "back", ""),
    ("controller", "plan", "new plan"),
)


def main() -> None:
    """Write both beside this file."""
    mpl.rcParams["font.family"] = "DejaVu Sans"
    here = Path(__file__).parent
    draw(BATCH, BATCH_ARROWS, title="A batch").savefig(here / "batch.png", dpi=110)
    draw(REQUEST, REQUEST_ARROWS, title="A request").savefig(here / "request.png", dpi=110)


def draw(boxes: Mapping[str, Box], arrows: Sequence[Arrow], *, title: str) -> Figure:
    """Boxes with arrows between them, left to right."""
    width = max(x for x, *_ in boxes.values()) + WIDE
    figure = Figure(figsize=(width * 0.72, 2.7))
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.88))
    axes.set_xlim(-0.1, width + 0.1)
    axes.set_ylim(0.6, 2.0 + HIGH + 0.1)
    axes.axis("off")
    figure.suptitle(title, x=0.02, ha="left", fontsize=12, fontweight="bold")
    for x, y, words, colour in boxes.values():
        shape = FancyBboxPatch((x, y), WIDE, HIGH, boxstyle="round,pad=0.03", facecolor=colour, edgecolor="#555555")
        axes.add_patch(shape)
        axes.text(x + WIDE / 2, y + HIGH / 2, words, ha="center", va="center", fontsize=8.5)
    for start, end, words in arrows:
        _arrow(axes, boxes[start], boxes[end], words)
    return figure


def _arrow(axes: Axes, start: Box, end: Box, words: str) -> None:
    tail, head = _edge(start, end), _edge(end, start)
    axes.annotate(
        "", xy=head, xytext=tail, arrowprops={"arrowstyle": "-|>", "color": "#555555", "shrinkA": 3, "shrinkB": 3}
    )
    if words:
        x, y = (tail[0] + head[0]) / 2, (tail[1] + head[1]) / 2
        level = tail[1] == head[1]
        axes.text(
            x + (0 if level else 0.08),
            y + (0.06 if level else 0),
            words,
            fontsize=7,
            color="#333333",
            ha="center" if level else "left",
        )


def _edge(box: Box, towards: Box) -> tuple[float, float]:
    """The middle of the side of ``box`` that looks to the other."""
    (x, y, *_), (far_x, far_y, *_) = box, towards
    if y != far_y and abs(far_x - x) < WIDE:
        return x + WIDE / 2, y + (HIGH + 0.03 if far_y > y else -0.03)
    if y != far_y:
        return (x + WIDE * 0.75 if far_x > x else x + WIDE * 0.25), y + (HIGH + 0.03 if far_y > y else -0.03)
    return (x + WIDE + 0.03 if far_x > x else x - 0.03), y + HIGH / 2


if __name__ == "__main__":
    main()
