"""What one event of a run's ledger adds to the run's counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from failsoft.health import training_metrics as table
from failsoft.health.json_object import is_finite
from failsoft.health.ledger import Event
from failsoft.health.metric import Metric
from failsoft.health.metric_book import MetricBook
from failsoft.training.verdict import Refusal

_Reader = Callable[[Event, MetricBook, str], None]
_REASONS: Mapping[str, str] = {str(refusal): refusal.name.lower() for refusal in Refusal}
_PASSED_OVER = "passed_over"
_CHECKPOINTS: Mapping[str, str] = {f"checkpoint_{result}": result for result in table.CHECKPOINTS}


def begin(book: MetricBook, run: str) -> None:
    """Let the counters be seen from the beginning, so that their first growth is one."""
    for metric in (table.ROLLBACKS, table.UNDONE, table.REPEATED, table.WITHHELD, table.RESTARTS, table.STOPS):
        book.count(metric, run, by=0.0)
    for metric in (table.REFUSED, table.CHECKPOINT_EVENTS, table.DEATHS):
        for value in metric.labels[-1].values:
            book.count(metric, run, value, by=0.0)


def note_event(event: Event, book: MetricBook, run: str) -> None:
    """What holds from this event on, also where another driver has counted it."""
    if event.kind == "run_started":
        book.put(table.WORKERS, event.count("world"), run)
    if event.kind == "snapshot_memory":
        held = event.data.get("held_bytes")
        book.put(table.SNAPSHOT_BYTES, float(held) if is_finite(held) else None, run)


def count_event(event: Event, book: MetricBook, run: str) -> None:
    """Add what the event says."""
    reader = _READERS.get(event.kind)
    if reader is not None:
        reader(event, book, run)
    if event.kind in _CHECKPOINTS:
        book.count(table.CHECKPOINT_EVENTS, run, _CHECKPOINTS[event.kind])
    if event.kind in table.CAUSES:
        book.count(table.DEATHS, run, event.kind)


def _refused(event: Event, book: MetricBook, run: str) -> None:
    book.count(table.REFUSED, run, _REASONS.get(str(event.data.get("reason", event.why)), _PASSED_OVER))


def _rolled_back(event: Event, book: MetricBook, run: str) -> None:
    book.count(table.ROLLBACKS, run)
    book.count(table.UNDONE, run, by=float(event.count("undone_steps")))


def _started(event: Event, book: MetricBook, run: str) -> None:
    book.count(table.REPEATED, run, by=float(event.count("repeated_batches")))
    if event.count("attempt", 1) > 1:
        book.count(table.RESTARTS, run)


def _observed(metric: Metric, name: str) -> _Reader:
    def read(event: Event, book: MetricBook, run: str) -> None:
        value = event.data.get(name)
        if is_finite(value):
            book.observe(metric, float(value), run)

    return read


def _counted(metric: Metric) -> _Reader:
    def read(_event: Event, book: MetricBook, run: str) -> None:
        book.count(metric, run)

    return read


_READERS: Mapping[str, _Reader] = {
    "batch_refused": _refused,
    "rolled_back": _rolled_back,
    "run_started": _started,
    "run_stopped": _counted(table.STOPS),
    "snapshot_withheld": _counted(table.WITHHELD),
    "checkpoint_handed_over": _observed(table.CHECKPOINT_STALL, "stall_s"),
    "checkpoint_published": _observed(table.CHECKPOINT_WRITE, "took_s"),
}
