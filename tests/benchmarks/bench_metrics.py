"""What metrics cost: an answer with them and without, and one export of all that a gateway and a run have to tell.

Times are this process's own CPU time, so that whatever else runs on the machine is left out. The export goes to Ray's
own metrics, as in a replica; what Ray's agent needs for a scrape is measured where there is one, in
``tests/drills/test_metrics.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product

from failsoft.health.clock import SystemClock
from failsoft.health.exporter import EVERY_S
from failsoft.health.metric import Kind
from failsoft.health.metric_book import MetricBook
from failsoft.health.metric_table import TABLE
from failsoft.health.metrics import RaySink
from failsoft.health.serving_metrics import CALL_TIME, CONFIDENCE, ENTROPY, MARGIN, OOV
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import Colour
from failsoft.serving.request import Answerer
from failsoft.serving.watching.gateway_metrics import SAMPLES, GatewayMetrics
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.web.messages import Answer
from tests.benchmarks.measuring import Contender, interleave
from tests.benchmarks.outcome import Outcome, in_words
from tests.serving.fakes import ScriptedArm, good
from tests.serving.watching.test_front import Replica

OURS, SAMPLED, NONE = "with metrics", "with metrics, so busy that histograms are sampled", "without"
REQUESTS = 200


class Silent(GatewayMetrics):
    """Counts nothing."""

    def answered(self, answer: Answer, why: str) -> None:
        """Nothing."""

    def called(self, seen: Seen) -> None:
        """Nothing."""


def measure(*, quick: bool) -> Outcome:
    """Ratios are with metrics over without: 1 is best."""
    outcome = Outcome(name="metrics")
    rounds = 5 if quick else 60
    runs = {OURS: GatewayMetrics(MetricBook()), NONE: Silent(MetricBook()), SAMPLED: _busy()}
    contenders = [Contender(name=name, run=_answers(metrics)) for name, metrics in runs.items()]
    timings = interleave(contenders, rounds=rounds, control=NONE, now=time.process_time)
    each = {name: [value / REQUESTS for value in values] for name, values in timings.seconds.items()}
    outcome.add("one answer in the gateway, its model scripted", replace(timings, seconds=each))
    for name, key in ((OURS, "answer_with_over_without"), (SAMPLED, "busy_answer_with_over_without")):
        outcome.ratios[key] = timings.ratio(name, NONE)
    _export(outcome, rounds)
    return outcome


def _busy() -> GatewayMetrics:
    """As after five seconds of so many answers that one of ten is sampled."""
    metrics = GatewayMetrics(MetricBook())
    metrics._answers._seen = metrics._calls._seen = 10 * SAMPLES
    metrics._answers.begin()
    metrics._calls.begin()
    return metrics


def _answers(metrics: GatewayMetrics) -> Callable[[], None]:
    replica = Replica()
    replica.desk.metrics = metrics
    scored = replace(good(), entropy=0.1, margin=0.9, oov_share=0.0, model_ms=3.0, label="play_music")
    answerer = Answerer(
        situation=replica.desk.situation,
        models={Colour.BLUE: ScriptedArm(answer=scored)},
        journal=replica.desk,
        clock=SystemClock(),
        config=GatewayConfig(),
        task=INTENTS,
    )

    async def play() -> None:
        for number in range(REQUESTS):
            await answerer.answer("play some jazz in the kitchen", key=f"k{number}", request_id="q")

    return lambda: asyncio.run(play())


def _export(outcome: Outcome, rounds: int) -> None:
    """Every metric there is with all its label values, and as many observed values as a busy gateway hands on."""
    book, sink = MetricBook(), RaySink()

    def export() -> None:
        _fill(book)
        for _ in book.drain(sink):
            pass

    contenders = [
        Contender(name="one export", run=export),
        Contender(name="only noted", run=lambda: _fill(MetricBook())),
    ]
    timings = interleave(contenders, rounds=rounds, control="one export", now=time.process_time)
    outcome.add("an export of every metric, 5 × 1000 values observed", timings)
    took_s = timings.median_s("one export")
    outcome.notes.append(f"an export every {EVERY_S:g} s takes {in_words(took_s)}: {took_s / EVERY_S:.2%} of a core")


def _fill(book: MetricBook) -> None:
    for metric in TABLE.values():
        for labels in product(*(label.values or ("one",) for label in metric.labels)):
            if metric.kind is Kind.COUNTER:
                book.count(metric, *labels)
            elif metric.kind is Kind.GAUGE:
                book.put(metric, 1.0, *labels)
    for metric in (CALL_TIME, CONFIDENCE, ENTROPY, MARGIN, OOV):
        for number in range(SAMPLES):
            book.observe(metric, number / SAMPLES, "subject")
