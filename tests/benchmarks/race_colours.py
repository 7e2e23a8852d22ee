"""One colour for each rival in all pictures of the race."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.race_simulated import LABELLED, OURS

OTHER = "#777777"
COLOURS: Mapping[str, str] = {
    OURS: "#0b6e4f",
    LABELLED: "#65b891",
    "sliding window": "#c8553d",
    "sliding window in FastAPI": "#c8553d",
    "sliding window and cut-off": "#e8a798",
    "pybreaker": "#7b5ea7",
    "bare, rolled back by an alert": "#2f6db5",
    "bare Ray Serve, old image put back": "#2f6db5",
    "bare, rolled back by a person": "#8fb3dd",
    "bare": "#999999",
}
