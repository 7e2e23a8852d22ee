"""Trackers that remember, and that do what trackers do at their worst."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from failsoft.health.clock import SystemClock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.progress import Phase, Progress, ProgressFile
from failsoft.training.trackers.tracker import Ending, RunFacts


class Remembers:
    """Keeps all it is told."""

    def __init__(self) -> None:
        self.begun: list[RunFacts] = []
        self.told: list[tuple[int, dict[str, float]]] = []
        self.events: list[tuple[int, str, str]] = []
        self.endings: list[Ending] = []

    def begin(self, run: RunFacts) -> None:
        self.begun.append(run)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self.told.append((step, dict(values)))

    def happened(self, step: int, kind: str, why: str) -> None:
        self.events.append((step, kind, why))

    def end(self, ending: Ending) -> None:
        self.endings.append(ending)

    @property
    def last(self) -> dict[str, float]:
        """The newest value of each metric."""
        return {name: value for _, values in self.told for name, value in values.items()}


class Raises(Remembers):
    """Fails for so many calls of ``numbers``."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left, self.works = times, threading.Event()

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        if self.left > 0:
            self.left -= 1
            raise ConnectionError("the tracking server is away")
        super().numbers(step, values)
        self.works.set()


class Hangs(Remembers):
    """Does not come back before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.let_go = threading.Event(), threading.Event()

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self.entered.set()
        self.let_go.wait(60.0)
        super().numbers(step, values)


def facts(home: Path, run: str = "night") -> RunFacts:
    return RunFacts(run=run, identity=f"{run}-1f0c93ab", folder=home / "runs" / run, config={"seed": "7", "gpu": "no"})


class Story:
    """A run that leaves the traces of one."""

    def __init__(self, home: Path, run: str = "night") -> None:
        self.folder, self.ledger = home / "runs" / run, home / "ledger.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._words = Ledger(self.ledger, SystemClock(), side=Side.TRAINING, subject=run)
        self._file = ProgressFile(self.folder, SystemClock())

    def stands(self, step: int, loss: float) -> None:
        self._file.write(Progress(phase=Phase.TRAINING, position=step + 1, step=step, total=100, loss=loss))

    def tells(self, kind: str, why: str = "", **data: object) -> None:
        self._words.record(kind, why, **data)

    def whole(self) -> None:
        """A refusal, a rollback, a look at the validation split, and the end."""
        self.tells("run_started", "from the beginning", attempt=1, total_batches=100, world=1, position=0, step=0)
        self.stands(10, 1.5)
        self.tells("batch_refused", "loss is not finite", position=11, step=10, reason="loss is not finite")
        self.tells("rolled_back", "five in a row", position=15, step=10, undone_steps=4, step_before=14, step_after=10)
        self.tells("validated", "", position=20, step=16, metrics={"val_loss": 0.25, "val_accuracy": 0.5})
        self.stands(40, 0.75)
        self.tells("run_finished", "all batches are consumed", position=100, step=40, refused=1, rollbacks=1)
