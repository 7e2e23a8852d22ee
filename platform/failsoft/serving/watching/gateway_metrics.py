"""What one gateway replica exports: counts of each answer, a fair sample for histograms, and what its status says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from failsoft.health import serving_metrics as table
from failsoft.health.metric import Metric
from failsoft.health.metric_book import MetricBook
from failsoft.serving.plan.plan import Arm
from failsoft.serving.watching.growth import Growth
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.messages import Answer

SAMPLES = 1000
"""So many answers between two looks fill the histograms, evenly spread; all are counted."""
_SLOW_MS = 1000.0


class _Every:
    """Lets so few pass, evenly spread, that about ``SAMPLES`` do between two looks, by what came before the last."""

    def __init__(self) -> None:
        self._stride, self._seen = 1, 0

    def admits(self) -> bool:
        self._seen += 1
        return self._seen % self._stride == 0

    def begin(self) -> None:
        self._stride, self._seen = max(1, math.ceil(self._seen / SAMPLES)), 0


class GatewayMetrics:
    """Counts on the request path; each call takes about a microsecond."""

    def __init__(self, book: MetricBook) -> None:
        self.book = book
        self._answers, self._calls = _Every(), _Every()
        self._grown = Growth(book)
        for source in table.SOURCES:
            for why in table.WHYS:
                book.count(table.REQUESTS, source, why, by=0.0)
        book.count(table.SLOW, by=0.0)

    def answered(self, answer: Answer, why: str) -> None:
        """One item was answered; ``why``: why not the model in service."""
        self.book.count(table.REQUESTS, answer.source, why)
        if answer.source in table.MODELS and not answer.latency_ms <= _SLOW_MS:
            self.book.count(table.SLOW)
        if self._answers.admits():
            self.book.observe(table.LATENCY, answer.latency_ms / 1000, answer.source)

    def called(self, seen: Seen) -> None:
        """One call of a model ended."""
        arm = _arm(seen)
        self.book.count(table.CALLS, arm, seen.outcome.value)
        if self._calls.admits():
            self.book.observe(table.CALL_TIME, seen.latency_ms / 1000, arm)
            self._share(table.CONFIDENCE, seen.confidence, arm)
            self._share(table.ENTROPY, seen.entropy, arm)
            self._share(table.MARGIN, seen.margin, arm)
            self._share(table.OOV, seen.oov_share, arm)

    def look(self, status: Mapping[str, Any]) -> None:
        """Note what holds now, from the replica's own status."""
        self._answers.begin()
        self._calls.begin()
        self._plan(status)
        self._health(status["health"])
        put, mirror, counts = self.book.put, status["mirror"], status["counts"]
        put(table.WAITING, mirror["waiting"])
        self._grown.to(table.MIRRORED, mirror["sent"])
        for reason in table.NOT_MIRRORED:
            self._grown.to(table.LEFT_OUT, mirror["dropped"].get(reason, 0), reason)
        self._grown.to(table.STALE, sum(counts["stale_answers"].values()))
        put(table.GIVEN_UP, counts["reports_given_up"])
        put(table.AT_MODELS, sum(status["texts_at_models"].values()))
        lag_ms = status["shared_window_lag"]["last_ms"]
        put(table.LAG, None if lag_ms is None else lag_ms / 1000)
        put(table.SILENT, status["controller_silent_s"])
        for result, spans in (status.get("traces") or {}).items():
            self._grown.to(table.SPANS, spans, result)

    def _plan(self, status: Mapping[str, Any]) -> None:
        put, plan = self.book.put, status["plan"]
        self.book.put_one_of(table.STAGE, str(plan["stage"]))
        put(table.EPOCH, plan["epoch"])
        put(table.SHARE, plan["share"])
        put(table.MIRROR_SHARE, plan["mirror_share"])
        put(table.TRIPPED, float(status["tripped_locally"] is not None))

    def _health(self, health: Mapping[str, Any]) -> None:
        put, signals = self.book.put, health["signals"]
        self.book.put_one_of(table.VERDICT, str(health["status"]).replace(" ", "_"))
        put(table.WINDOW, health["total"])
        put(table.WINDOW_BAD, health["bad"])
        put(table.NOT_ARMED, float(health["not_armed"] is not None))
        put(table.APART, len(signals["callers_apart"]))
        warned = {name for names in signals["warnings"] for name in names.split(", ")}
        for signal in table.SIGNALS:
            put(table.WARNING, float(signal in warned), signal)

    def _share(self, metric: Metric, value: float, arm: str) -> None:
        if 0.0 <= value <= 1.0:
            self.book.observe(metric, value, arm)


def _arm(seen: Seen) -> str:
    if seen.rescue:
        return "rescue"
    if seen.mirrored:
        return "mirror"
    return "subject" if seen.arm is Arm.SUBJECT else "stand_in"
