"""Numbers on their way to the exporter: noted at once and for next to nothing, handed on when somebody drains them.

Whoever counts here knows nothing of Ray. Values of labels are given in the order in which the metric declares them, and
are bounded when the book is drained, off every hot path.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Protocol

from failsoft.health.metric import OTHER, Label, Metric

_Key = tuple[Metric, tuple[str, ...]]


class Sink(Protocol):
    """Where numbers go; may raise whatever it likes."""

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """A counter grew; 0: it is there from now on."""
        ...

    def put(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """A gauge's value; NaN: not known."""
        ...

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """One value of a histogram."""
        ...


class _Bins:
    """How many values fell into each bucket, and their sums; the last is above all buckets."""

    __slots__ = ("times", "totals")

    def __init__(self, count: int) -> None:
        self.times = [0] * count
        self.totals = [0.0] * count


class MetricBook:
    """Holds what was noted since it was last drained, and the gauges as they are. One thread at a time.

    Args:
        most_observed: of one histogram's series so many values are handed on at a drain, spread as all of them were;
            each one costs a call.
    """

    def __init__(self, *, most_observed: int = 1000) -> None:
        self._most_observed = most_observed
        self.whose: dict[str, str] = {}
        """Values of the labels of this process, by name; what is not known is empty, as if it were absent."""
        self._counts: dict[_Key, float] = {}
        self._gauges: dict[_Key, float] = {}
        self._bins: dict[_Key, _Bins] = {}
        self._known: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """A counter grows; ``by=0``: it is to be seen from now on, so that its first growth is a growth."""
        key = metric, labels
        self._counts[key] = self._counts.get(key, 0.0) + by

    def put(self, metric: Metric, value: float | None, *labels: str) -> None:
        """What a gauge says from now on; None: not known, which is not the same as the value before."""
        self._gauges[metric, labels] = math.nan if value is None else float(value)

    def put_one_of(self, metric: Metric, value: str, *labels: str) -> None:
        """A gauge whose last label lists states: 1 for the state that holds, 0 for the others."""
        for state in metric.labels[-1].values:
            self._gauges[metric, (*labels, state)] = float(state == value)

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """A histogram's next value; what is not finite is no value."""
        if not math.isfinite(value):
            return
        bins = self._bins.get((metric, labels))
        if bins is None:
            bins = self._bins[metric, labels] = _Bins(len(metric.buckets) + 1)
        place = bisect_left(metric.buckets, value)
        bins.times[place] += 1
        bins.totals[place] += value

    def drain(self, sink: Sink) -> Iterator[None]:
        """Hand everything on, a call between two yields; gauges stay, since Ray forgets those not told again.

        Counts that a sink refuses, or that nobody asks for to the end, are handed on at the next drain: each is told of
        once. Of values of histograms those are lost at which it breaks off.
        """
        yield from self._counted(sink)
        for (metric, values), value in tuple(self._gauges.items()):
            sink.put(metric, value, self._named(metric, self._bounded(metric, values)))
            yield
        bins, self._bins = self._bins, {}
        for (metric, values), held in bins.items():
            yield from self._observed(sink, metric, self._bounded(metric, values), held)

    def _counted(self, sink: Sink) -> Iterator[None]:
        counts, self._counts = self._counts, {}
        totals: dict[_Key, float] = {}
        for (metric, values), amount in counts.items():
            key = metric, self._bounded(metric, values)
            totals[key] = totals.get(key, 0.0) + amount
        try:
            for metric, values in tuple(totals):
                sink.add(metric, totals[metric, values], self._named(metric, values))
                del totals[metric, values]
                yield
        finally:
            for (metric, values), amount in totals.items():
                self.count(metric, *values, by=amount)

    def _observed(self, sink: Sink, metric: Metric, values: tuple[str, ...], held: _Bins) -> Iterator[None]:
        """Each bin's mean so often as values fell into it, so that sum and counts are what they were."""
        labels, thin = self._named(metric, values), self._most_observed / sum(held.times)
        for times, total, end in zip(held.times, held.totals, (*metric.buckets, math.inf), strict=True):
            for _ in range(times if thin >= 1.0 else math.ceil(times * thin)):
                sink.observe(metric, min(total / times, end), labels)  # a mean may round out of its bucket
                yield

    def _bounded(self, metric: Metric, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._bound(metric, label, value) for label, value in zip(metric.labels, values, strict=True))

    def _bound(self, metric: Metric, label: Label, value: str) -> str:
        if label.values:
            return value if value in label.values else OTHER
        known = self._known[metric.name, label.name]
        if value not in known and len(known) >= label.at_most:
            return OTHER
        known.add(value)
        return value

    def _named(self, metric: Metric, values: tuple[str, ...]) -> dict[str, str]:
        named = {label.name: value for label, value in zip(metric.labels, values, strict=True)}
        return named | {label.name: self.whose.get(label.name, "") for label in metric.everywhere}
