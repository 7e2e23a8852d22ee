"""Counters whose totals somebody else keeps."""

from __future__ import annotations

from failsoft.health.metric import Metric
from failsoft.health.metric_book import MetricBook


class Growth:
    """Notes by how much totals have grown since they were last told; the first time, all of them."""

    def __init__(self, book: MetricBook) -> None:
        self._book = book
        self._told: dict[tuple[Metric, tuple[str, ...]], float] = {}

    def to(self, metric: Metric, total: float, *labels: str) -> None:
        """The total is so large now; one that fell was begun anew."""
        before = self._told.get((metric, labels), 0.0)
        self._told[metric, labels] = total
        self._book.count(metric, *labels, by=total - before if total >= before else total)
