"""A sink that keeps what it is told, as Ray's exporter does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from failsoft.health.metric import Metric
from failsoft.health.metric_book import MetricBook

Series = tuple[str, tuple[str, ...]]


class RecordedSink:
    """Counters by their sums, gauges by their last values, histograms by all their values."""

    def __init__(self) -> None:
        self.counters: defaultdict[Series, float] = defaultdict(float)
        self.gauges: dict[Series, float] = {}
        self.told_with: dict[str, str] = {}
        """Labels of the last gauge, those of the process too."""
        self.observed: defaultdict[Series, list[float]] = defaultdict(list)
        self.calls = 0

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        self.calls += 1
        self.counters[_series(metric, labels)] += amount

    def put(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.calls += 1
        self.gauges[_series(metric, labels)] = value
        self.told_with = dict(labels)

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        self.calls += 1
        self.observed[_series(metric, labels)].append(value)


def _series(metric: Metric, labels: Mapping[str, str]) -> Series:
    """By the labels that whoever notes it gives; those of the process are the same for all."""
    assert list(labels) == [label.name for label in metric.all_labels], f"{metric.name} is told with {labels}"
    return metric.name, tuple(labels[label.name] for label in metric.labels)


def drained(book: MetricBook) -> RecordedSink:
    """What a book holds."""
    sink = RecordedSink()
    for _ in book.drain(sink):
        pass
    return sink
