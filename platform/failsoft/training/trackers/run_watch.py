"""Follows a run by what it leaves behind (ledger, progress file), and tells trackers what is new of it.

It is a thread of the run's driver: the workers spend nothing on it, and one tracker follows all attempts of a run. Each
number has the name that it has in the metric table, less the run; a label's value stands behind a slash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from failsoft.health.clock import Clock
from failsoft.health.ledger import Event, Side, parse_event
from failsoft.health.ledger_files import Tail
from failsoft.health.metric import Metric
from failsoft.health.metric_book import MetricBook
from failsoft.health.training_metrics import CHECKPOINT_AGE, PROGRESS_AGE
from failsoft.training.accounting.run_metrics import RunMetrics
from failsoft.training.progress import read_progress
from failsoft.training.trackers.line import TrackerLine
from failsoft.training.trackers.tracker import Ending

TOLD_NAME = "tracked_events"
"""The file in a run's folder that says how many of its events trackers were told of."""
EVENTS = frozenset(
    {
        "run_started",
        "batch_refused",
        "rolled_back",
        "drop_rate_warning",
        "degradation_began",
        "degradation_ended",
        "checkpoint_withdrawn",
        "snapshot_withheld",
        "preempted",
        "run_stopped",
        "run_finished",
    }
)
"""Kinds of events that trackers are told of."""
_ENDINGS = {"run_finished": Ending.FINISHED, "run_stopped": Ending.STOPPED, "run_started": Ending.AWAY}
_ALWAYS_NEW = frozenset({PROGRESS_AGE.name, CHECKPOINT_AGE.name})
"""Say how long ago something was; on a curve they say nothing."""


class _Numbers:
    """What a metric book hands on, as one table of names and values."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """A counter grew; curves show its sum over the whole run."""
        name = _named(metric, labels)
        self.values[name] = self.values.get(name, 0.0) + amount

    def put(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """A gauge's value; one that is not known is not there."""
        self.values[_named(metric, labels)] = value

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """The last value of a histogram."""
        self.values[_named(metric, labels)] = value


class RunWatch:
    """Looks at one run, and tells lines what is new.

    Args:
        folder: the run's.
        ledger: where its events are.
        lines: to the trackers.
        clock: measures ages and throughput.
    """

    def __init__(self, folder: Path, ledger: Path, lines: Sequence[TrackerLine], clock: Clock) -> None:
        self._folder, self._lines = folder, lines
        self._book, self._numbers = MetricBook(), _Numbers()
        self._metrics = RunMetrics(folder, ledger, self._book, clock, remembers=False)
        self._tail = Tail(ledger)
        self._before: dict[str, float] = {}
        self._seen, self._told = 0, _told(folder)
        self.ending = Ending.AWAY
        """What the run's own events say of its end."""

    def look(self) -> None:
        """Tell what is new. Raises OSError where the files can't be read."""
        for event in self._events():
            self._tell(event)
        self._metrics.look()
        for _ in self._book.drain(self._numbers):
            pass
        progress = read_progress(self._folder)
        new = {name: value for name, value in self._numbers.values.items() if self._is_new(name, value)}
        self._before |= new
        for line in self._lines:
            line.numbers(0 if progress is None else progress.step, new)

    def close(self) -> None:
        """Give the files back, and remember how far it was told."""
        self._tail.close()
        self._metrics.close()
        if self._folder.is_dir():
            with suppress(OSError):  # told again by the next driver
                (self._folder / TOLD_NAME).write_text(str(max(self._seen, self._told)), "utf-8")

    def _is_new(self, name: str, value: float) -> bool:
        return math.isfinite(value) and name not in _ALWAYS_NEW and self._before.get(name) != value

    def _events(self) -> Iterator[Event]:
        for raw in chain.from_iterable(self._tail.file_by_file()):
            event = parse_event(raw)
            if event is not None and event.side is Side.TRAINING and event.subject == self._folder.name:
                yield event

    def _tell(self, event: Event) -> None:
        self._seen += 1
        self.ending = _ENDINGS.get(event.kind, self.ending)
        if self._seen <= self._told:
            return
        step = event.count("step")
        found = event.data.get("metrics") if event.kind == "validated" else None
        for line in self._lines:
            if isinstance(found, Mapping):
                line.numbers(step, {str(name): float(value) for name, value in found.items() if _is_number(value)})
            if event.kind in EVENTS:
                line.happened(step, event.kind, event.why)


def _named(metric: Metric, labels: Mapping[str, str]) -> str:
    return "/".join([metric.name, *(value for name, value in labels.items() if name != "run")])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _told(folder: Path) -> int:
    """Nothing before the first look, and where nobody can say."""
    try:
        return max(0, int((folder / TOLD_NAME).read_text("utf-8")))
    except (OSError, ValueError):
        return 0
