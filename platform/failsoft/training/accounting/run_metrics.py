"""A run's metrics, read from what it leaves behind: ledger, progress file, position. Its workers spend nothing on them.

The driver looks every few seconds. Each event counts once, also across drivers: how many were counted, and which was
the last, lies in the run's folder, so that ``increase()`` over all drivers' series is what happened, also where
somebody removed old files of the ledger meanwhile. What is to be added up from the whole story (goodput, degradations)
is added up anew only after a hundred times the time that it took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from failsoft.artifacts.manifest import digest_bytes
from failsoft.health import training_metrics as table
from failsoft.health.age import Age
from failsoft.health.clock import Clock
from failsoft.health.ledger import Event, Side, parse_event
from failsoft.health.ledger_files import Tail
from failsoft.health.metric import Metric
from failsoft.health.metric_book import MetricBook
from failsoft.training.accounting.degraded import degraded
from failsoft.training.accounting.goodput import account
from failsoft.training.accounting.run_events import begin, count_event, note_event
from failsoft.training.degradation import DegradationKind
from failsoft.training.memory.rungs import Rung
from failsoft.training.progress import PositionMark, Progress, read_progress

SEEN_NAME = "metrics_seen"
"""The file in a run's folder that says how many of its events are counted, and the mark of the last."""
_SUMS_EVERY_S = 15.0
_SUMS_REST = 100.0
_LARGE = ("reproduction", "stacks")
"""Data of events that no sum needs; a run's story is kept in memory without it."""


class RunMetrics:
    """Looks at one run.

    Args:
        folder: the run's.
        ledger: where its events are.
        book: gets what is found.
        clock: measures ages and throughput.
        remembers: each event counts once, also across drivers; False: all that is in the ledger counts.
    """

    def __init__(self, folder: Path, ledger: Path, book: MetricBook, clock: Clock, *, remembers: bool = True) -> None:
        self._folder, self._book, self._clock = folder, book, clock
        self._run = folder.name
        self._tail = Tail(ledger)
        self._events: list[Event] = []
        self._remembers = remembers
        self._seen: _Seen | None = _read_seen(folder) if remembers else None
        self._moved, self._saved = Age(clock), Age(clock)
        self._before: tuple[float, int] | None = None
        self._sums_due_s = clock.monotonic_s()
        self._checkpoints = 0
        begin(book, self._run)

    def look(self) -> None:
        """Note what there is now. Raises OSError where it can't be read."""
        self._read_events()
        progress = read_progress(self._folder)
        position = PositionMark(self._folder).read()
        put = self._put
        put(table.PROGRESS_AGE, self._moved.of((position, None if progress is None else progress.phase)))
        put(table.CHECKPOINT_AGE, self._saved.of(self._checkpoints))
        if progress is not None:
            self._progress(progress)
        if self._clock.monotonic_s() >= self._sums_due_s:
            self._sums()

    def close(self) -> None:
        """Give the ledger's file back."""
        self._tail.close()

    def _put(self, metric: Metric, value: float | None) -> None:
        self._book.put(metric, value, self._run)

    def _read_events(self) -> None:
        news = chain.from_iterable(self._tail.file_by_file())  # a year of all runs' is larger than a driver's memory
        lines = [(line, event) for line in news if (event := self._ours(line)) is not None]
        counted = 0 if self._seen is None else self._seen.among([line for line, _ in lines])
        self._seen = None if lines else self._seen  # asked for once: whatever comes after the first lines is new
        for number, (_, event) in enumerate(lines):
            self._read(event, count=number >= counted)
        if len(lines) > counted and self._remembers:
            _write_seen(self._folder, _Seen(count=len(self._events), mark=_mark(lines[-1][0])))

    def _ours(self, line: bytes) -> Event | None:
        event = parse_event(line)
        return event if event is not None and event.side is Side.TRAINING and event.subject == self._run else None

    def _read(self, event: Event, *, count: bool) -> None:
        self._checkpoints += event.kind == "checkpoint_published"
        small = {name: value for name, value in event.data.items() if name not in _LARGE}
        self._events.append(replace(event, data=small))
        note_event(event, self._book, self._run)
        if count:
            count_event(event, self._book, self._run)

    def _progress(self, progress: Progress) -> None:
        put = self._put
        self._book.put_one_of(table.PHASE, str(progress.phase), self._run)
        put(table.POSITION, progress.position)
        put(table.PLANNED, progress.total)
        put(table.STEPS, progress.step)
        put(table.LOSS, progress.loss)
        put(table.ATTEMPT, progress.attempt)
        put(table.SCALE, progress.loss_scale)
        put(table.SNAPSHOT_TIME, progress.snapshot_s)
        put(table.DROPS, progress.refused / progress.position if progress.position else None)
        self._pace(progress.position)

    def _pace(self, position: int) -> None:
        """Between two looks; where the run went back nobody knows, and where it stood still no time is known."""
        now_s, before, self._before = self._clock.monotonic_s(), self._before, (self._clock.monotonic_s(), position)
        if before is None or not now_s > before[0] or position < before[1]:
            rate = None
        else:
            rate = (position - before[1]) / (now_s - before[0])
        self._put(table.RATE, rate)
        self._put(table.STEP_TIME, 1.0 / rate if rate else None)

    def _sums(self) -> None:
        """Where the time went and what is degraded, from the whole story."""
        began_s = self._clock.monotonic_s()
        mark = PositionMark(self._folder)
        seen_s = mark.last_set_by(self._clock.wall_s())
        time = account(self._events, run=self._run, seen_at_s=seen_s)
        for part, micros in time.micros.items():
            self._book.put(table.GOODPUT, None if micros is None else micros / 1e6, self._run, part.name.lower())
        self._put(table.ETTR, time.ettr)
        found = degraded(self._events, seen_at_s=seen_s, seen_position=mark.read())
        for kind in table.DEGRADATIONS:
            holds = any(one.kind == kind for one in found.standing)
            self._book.put(table.DEGRADED, float(holds), self._run, kind)
        rungs = [str(one.data.get("rung")) for one in found.standing if one.kind == DegradationKind.MEMORY]
        self._book.put_one_of(table.RUNG, _rung(rungs), self._run)
        factors = [one.data.get("factor") for one in found.standing if one.kind == DegradationKind.SLOW_RANK]
        self._put(table.STRAGGLER, max([1.0, *(factor for factor in factors if isinstance(factor, float))]))
        took_s = self._clock.monotonic_s() - began_s
        self._sums_due_s = began_s + max(_SUMS_EVERY_S, _SUMS_REST * took_s)


def _rung(names: list[str]) -> str:
    by_value: Mapping[str, str] = {str(rung): rung.name.lower() for rung in Rung}
    return by_value.get(names[-1], "") if names else ""


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """Which events earlier drivers have counted."""

    count: int
    mark: str
    """Of the last of them; empty: not known."""

    def among(self, lines: Sequence[bytes]) -> int:
        """How many of a ledger's lines are counted: all up to the marked one, and none where that was removed."""
        if not self.mark or (0 < self.count <= len(lines) and _mark(lines[self.count - 1]) == self.mark):
            return self.count
        return max((number for number, line in enumerate(lines, start=1) if _mark(line) == self.mark), default=0)


def _mark(line: bytes) -> str:
    return digest_bytes(line)[-16:]


def _read_seen(folder: Path) -> _Seen:
    """Nothing before the first look, and where nobody can say."""
    try:
        count, _, mark = (folder / SEEN_NAME).read_text("utf-8").strip().partition(" ")
        return _Seen(count=max(0, int(count)), mark=mark)
    except (OSError, ValueError):
        return _Seen(count=0, mark="")


def _write_seen(folder: Path, seen: _Seen) -> None:
    """Replaced whole. A disk that takes no more words must not end what they are about: they count once more then."""
    aside = folder / f"{SEEN_NAME}.aside"
    with suppress(OSError):
        aside.write_text(f"{seen.count} {seen.mark}\n", "utf-8")
        aside.replace(folder / SEEN_NAME)
