"""TensorBoard, by event files. Needs tensorboardX, which Ray Train brings along."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from failsoft.training.trackers.tracker import Ending, RunFacts


class TensorBoard:
    """Writes event files below a folder: ``tensorboard --logdir FOLDER``.

    Args:
        folder: holds a folder for each run.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._writer: Any = None

    def begin(self, run: RunFacts) -> None:
        """A new event file in the run's folder; TensorBoard reads all of them as one run."""
        board = importlib.import_module("tensorboardX")  # a second, and only where it is asked for
        self._writer = board.SummaryWriter(logdir=str(self._folder / run.run), flush_secs=10)
        rows = "\n".join(f"| {name} | {value.replace('|', '/')} |" for name, value in sorted(run.config.items()))
        self._writer.add_text("config", f"| setting | value |\n|---|---|\n{rows}", 0)
        self._writer.flush()

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """A scalar for each."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def happened(self, step: int, kind: str, why: str) -> None:
        """A text under ``events``."""
        self._writer.add_text(f"events/{kind}", why, step)

    def end(self, ending: Ending) -> None:
        """Close the file."""
        self._writer.add_text("events/ending", str(ending), 0)
        self._writer.close()
