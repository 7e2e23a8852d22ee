"""Metrics into Ray's own exporter: the only file of the platform that knows ``ray.util.metrics``.

Ray exports them on each node's metrics port (``--metrics-export-port``), ``ray_`` before the name and the labels
``WorkerId``, ``NodeAddress`` and ``SessionName`` beside ours. That port asks for no token and is bound to all
interfaces, whatever the node's own address.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ray.util import metrics as ray_metrics

from failsoft.health.metric import Kind, Metric

_BEGIN = math.ulp(0.0)
"""Ray's counters refuse 0, and one that begins with its first event shows no growth: the smallest number above 0."""


class RaySink:
    """Hands numbers to Ray in this process. Made in a process that is connected to Ray; each call takes some µs."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def add(self, metric: Metric, amount: float, labels: Mapping[str, str]) -> None:
        """A counter grew; 0 makes its series visible."""
        self._of(metric).inc(amount if amount > 0.0 else _BEGIN, dict(labels))

    def put(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """A gauge's value."""
        self._of(metric).set(value, dict(labels))

    def observe(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        """One value of a histogram."""
        self._of(metric).observe(value, dict(labels))

    def _of(self, metric: Metric) -> Any:
        made = self._made.get(metric.name)
        if made is None:
            made = self._made[metric.name] = _made(metric)
        return made


def _made(metric: Metric) -> Any:
    keys = tuple(label.name for label in metric.all_labels)
    if metric.kind is Kind.COUNTER:
        return ray_metrics.Counter(metric.registered, metric.help, tag_keys=keys)
    if metric.kind is Kind.GAUGE:
        return ray_metrics.Gauge(metric.registered, metric.help, tag_keys=keys)
    return ray_metrics.Histogram(metric.registered, metric.help, boundaries=list(metric.buckets), tag_keys=keys)
