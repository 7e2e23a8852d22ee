from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.exporter import EVERY_S, Exporter
from failsoft.health.ledger import Side
from failsoft.health.metric_book import MetricBook, Sink
from failsoft.health.metric_table import EXPORTER_FAILURES
from failsoft.health.serving_metrics import EPOCH, LATENCY
from tests.health.recorded_sink import RecordedSink

FAILURES = (EXPORTER_FAILURES.name, ("serving",))


def exporter(book: MetricBook, sink: Callable[[], Sink], look: Callable[[], object] = lambda: None) -> Exporter:
    return Exporter(book, sink, look, side=Side.SERVING, clock=ManualClock())


def refusing() -> Sink:
    raise ConnectionError("Ray is away")


def test_each_export_looks_first() -> None:
    book, sink = MetricBook(), RecordedSink()
    assert exporter(book, lambda: sink, lambda: book.put(EPOCH, 7)).export()
    assert sink.gauges[EPOCH.name, ()] == 7.0


def test_an_exporter_that_fails_rests_longer_and_longer_and_ends_nothing() -> None:
    one, waits_s = exporter(MetricBook(), refusing), list[float]()
    for _ in range(4):
        assert not one.export()
        waits_s.append(one.wait_s)
    assert waits_s == sorted(waits_s)
    assert waits_s[-1] > 4 * EVERY_S


def test_failures_are_counted_and_told_once_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    sink, broken = RecordedSink(), [True, True, False]
    one = exporter(MetricBook(), lambda: refusing() if broken.pop(0) else sink)
    assert [one.export() for _ in range(3)] == [False, False, True]
    assert sink.counters[FAILURES] == 2.0
    assert one.wait_s == EVERY_S
    assert sum("Ray is away" in line for line in caplog.messages) == 1


def test_a_look_that_fails_exports_no_old_gauge_as_if_it_were_news() -> None:
    book, sink = MetricBook(), RecordedSink()
    book.put(EPOCH, 7)

    def look() -> None:
        raise OSError("the disk is away")

    assert not exporter(book, lambda: sink, look).export()
    assert sink.gauges == {}


def test_an_event_loop_gets_its_turn_during_an_export() -> None:
    book, turns = MetricBook(), list[int]()
    sink = RecordedSink()

    def look() -> None:
        for _ in range(900):
            book.observe(LATENCY, 0.01, "primary")

    one = exporter(book, lambda: sink, look)

    async def play() -> None:
        task = asyncio.create_task(one.run())
        while sink.calls < 900:
            turns.append(sink.calls)
            await asyncio.sleep(0.0)
        task.cancel()

    asyncio.run(play())
    assert max(after - before for before, after in pairwise(turns)) <= 100


def test_a_thread_exports_until_the_block_ends_and_once_more() -> None:
    book, sink, looked = MetricBook(), RecordedSink(), threading.Event()
    with exporter(book, lambda: sink, looked.set).exporting():
        assert looked.wait(10.0)
        book.put(EPOCH, 9)
    assert sink.gauges[EPOCH.name, ()] == 9.0


def test_an_exporter_that_never_waits_is_refused() -> None:
    with pytest.raises(ConfigError, match="every_s"):
        Exporter(MetricBook(), RecordedSink, lambda: None, side=Side.SERVING, clock=ManualClock(), every_s=0.0)
