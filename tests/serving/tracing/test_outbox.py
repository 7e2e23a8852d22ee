"""Spans on their way out: bounded, never in anybody's way, and what goes wrong is said once. With real sockets."""

from __future__ import annotations

import logging
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from failsoft.health.clock import SystemClock
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.otlp import OtlpSender
from failsoft.serving.tracing.outbox import AT_ONCE, Outbox
from failsoft.serving.tracing.spans import Bundle, Kind, Span, Spot
from tests.conftest import ROOT
from tests.dripping import dripping
from tests.serving.tracing.receiver import Receiver, answers, receiving

URL = "http://127.0.0.1:4318/v1/traces"


def config(url: str = URL, *, timeout_s: float = 0.3, max_waiting_spans: int = 256) -> TraceConfig:
    return TraceConfig(endpoint=url, every_s=0.02, timeout_s=timeout_s, max_waiting_spans=max_waiting_spans)


def bundle(spans: int = 2, name: str = "a span") -> Bundle:
    return Bundle([Span(name, Kind.INTERNAL, Spot(7, n + 1), 0, 1.0) for n in range(spans)], 1_700_000_000.0)


def ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a log gets. The exporter's own logger hands on nothing; pytest listens to such loggers all the same."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("failsoft")]


class Sink:
    """Takes spans as told, and lets a test wait for it."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.refuses = False
        self.tries = 0
        self.tried = threading.Condition()

    def __call__(self, bundles: Sequence[Bundle]) -> None:
        with self.tried:
            self.tries += 1
            self.tried.notify_all()
            if self.refuses:
                raise ConnectionError("nobody listens")
            self.batches.append(sum(len(one.spans) for one in bundles))

    def wait(self, enough: Callable[[], bool]) -> None:
        with self.tried:
            assert self.tried.wait_for(enough, 60.0)


@contextmanager
def sending(sink: Callable[[Sequence[Bundle]], None], settings: TraceConfig) -> Iterator[Outbox]:
    box = Outbox(settings, sink, rng=random.Random(3))
    box.start()
    try:
        yield box
    finally:
        box.close(within_s=30.0)


def test_what_waits_is_sent_in_batches_and_all_of_it_at_the_end() -> None:
    sink = Sink()
    box = Outbox(config(max_waiting_spans=1000), sink, rng=random.Random(3))
    for _ in range(100):
        box.offer(bundle(5))
    box.start()
    box.close(within_s=60.0)
    assert sum(sink.batches) == 500
    assert max(sink.batches) <= AT_ONCE
    assert box.counts() == {"sent": 500, "queue_full": 0, "not_delivered": 0}


def test_beyond_its_bound_spans_are_dropped_and_counted() -> None:
    box = Outbox(config(max_waiting_spans=64), Sink(), rng=random.Random(3))
    for _ in range(40):
        box.offer(bundle(2))
    assert box.counts()["queue_full"] == 16


def test_a_collector_that_is_away_is_said_once_and_once_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink()
    sink.refuses = True
    with caplog.at_level(logging.WARNING), sending(sink, config()) as box:
        for tries in range(1, 4):
            box.offer(bundle())
            sink.wait(lambda tries=tries: sink.tries >= tries)  # type: ignore[misc]  # read within this turn
        sink.refuses = False
        box.offer(bundle())
        sink.wait(lambda: bool(sink.batches))
    away, back = ours(caplog)
    assert "traces do not reach http://127.0.0.1:4318/v1/traces (nobody listens)" in away
    assert "again" in back
    assert box.counts() == {"sent": 2, "queue_full": 0, "not_delivered": 6}


def test_after_failures_in_a_row_it_rests_for_longer_and_longer() -> None:
    box = Outbox(config(), Sink(), rng=random.Random(3))
    waits = [box._rest.wait_s(failures, random.Random(1)) for failures in (1, 4, 20)]
    assert waits[0] < 0.03 < waits[1] < waits[2] < 70.0


def hangs(handler: BaseHTTPRequestHandler) -> None:
    """Never answers; the caller gives up."""
    handler.rfile.read(1)


def talks_for_ever(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"x" * 65536)
    except OSError:
        return


def no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\xff\x00 not http at all\r\n\r\n")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (answers(404), "404"),
        (answers(503, {"Retry-After": "999"}), "timeout"),
        (answers(302, {"Location": "http://169.254.0.1/v1/traces"}), "302"),
        (answers(401), "401"),
        (hangs, "timeout"),
        (no_http, ""),
    ],
)
def test_whatever_is_no_success_is_counted_and_said_in_the_collectors_words(
    reply: Callable[[BaseHTTPRequestHandler], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with receiving() as receiver, caplog.at_level(logging.WARNING):
        receiver.reply = reply
        settings = config(receiver.url)
        with sending(OtlpSender(settings, {}), settings) as box:
            box.offer(bundle())
            receiver.wait(lambda it: bool(it.bodies))
            box.close(within_s=30.0)
        assert box.counts() == {"sent": 0, "queue_full": 0, "not_delivered": 2}
    (words,) = ours(caplog)
    assert said in words
    assert not logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter").propagate


def test_an_answer_without_end_is_not_read() -> None:
    with receiving() as receiver:
        receiver.reply = talks_for_ever
        settings = config(receiver.url)
        with sending(OtlpSender(settings, {}), settings) as box:
            box.offer(bundle())
            receiver.wait(lambda it: bool(it.bodies))
        assert box.counts()["sent"] == 2


def test_a_collector_that_drips_its_headers_holds_the_sending_thread_no_longer_than_a_silent_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with dripping() as there, caplog.at_level(logging.WARNING):
        settings = config(f"http://127.0.0.1:{there.port}/v1/traces")
        with sending(OtlpSender(settings, {}), settings) as box:
            box.offer(bundle())
            box.close(within_s=15.0)
            assert not box.is_alive, "the thread is still held"
        assert box.counts() == {"sent": 0, "queue_full": 0, "not_delivered": 2}
    (words,) = ours(caplog)
    assert "timeout" in words.casefold()


def test_headers_for_the_collector_come_from_the_environment_and_are_never_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # a collector on this machine is not asked through it
    with receiving() as receiver, caplog.at_level(logging.DEBUG):
        for reply in (answers(200), answers(500)):
            receiver.reply = reply
            settings = config(receiver.url)
            with sending(OtlpSender(settings, {}), settings) as box:
                box.offer(bundle())
        receiver.wait(lambda it: len(it.headers) >= 2)
    assert {headers["authorization"] for headers in receiver.headers} == {"Bearer hunter2"}
    assert "hunter2" not in caplog.text


def listener() -> socket.socket:
    """Takes connections and never says a word."""
    made = socket.create_server(("127.0.0.1", 0))
    made.listen()
    return made


CHILD = """
import random, sys
from failsoft.health.clock import SystemClock
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.otlp import OtlpSender
from failsoft.serving.tracing.outbox import Outbox
from failsoft.serving.tracing.spans import Bundle, Kind, Span, Spot
config = TraceConfig(endpoint=sys.argv[1], every_s=0.01, timeout_s=60.0)
box = Outbox(config, OtlpSender(config, {}), rng=random.Random(1))
box.start()
for _ in range(50):
    box.offer(Bundle([Span("s", Kind.INTERNAL, Spot(7, 1), 0, 1.0)], 0.0))
SystemClock().sleep_s(0.3)
print("the work is done", flush=True)
"""


@pytest.mark.parametrize("how", ["dead", "silent", "well"])
def test_no_collector_holds_a_process_that_wants_to_end(how: str) -> None:
    """Of 60 s that a batch may take, the end of the process waits for one."""
    with listener() as silent, receiving() as receiver:
        port = silent.getsockname()[1]
        if how == "dead":
            silent.close()
        url = receiver.url if how == "well" else f"http://127.0.0.1:{port}/v1/traces"
        began_s = SystemClock().monotonic_s()
        done = subprocess.run(
            [sys.executable, "-c", CHILD, url], capture_output=True, text=True, timeout=50.0, check=True, cwd=ROOT
        )
        took_s = SystemClock().monotonic_s() - began_s
    assert "the work is done" in done.stdout
    assert took_s < 50.0
    assert len(receiver.spans) == (50 if how == "well" else 0)


def test_receiver_would_see_what_is_sent() -> None:
    """The oracle of these tests: one span sent by hand is one span received."""
    with receiving() as receiver:
        OtlpSender(config(receiver.url, timeout_s=30.0), {})([bundle(1, "by hand")])
        assert isinstance(receiver, Receiver)
        assert receiver.one("by hand").start_time_unix_nano == 1_700_000_001_000_000_000
