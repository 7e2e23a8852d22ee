"""A slow way in is said once, not with every probe, and a few probes say nothing."""

from __future__ import annotations

import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from failsoft.health.clock import SystemClock
from failsoft.serving.web import ingress_watch
from failsoft.serving.web.ingress_watch import IngressProbe, P99Watch
from tests.dripping import dripping


def told(watch: P99Watch, *latencies_ms: float) -> list[str]:
    return [words for words in map(watch.record, latencies_ms) if words is not None]


def test_a_few_probes_say_nothing() -> None:
    watch = P99Watch(limit_ms=25.0, window=100)
    assert told(watch, *[500.0] * 99) == []
    assert watch.p99_ms is None


def test_one_slow_probe_of_two_hundred_is_within_p99_and_two_are_not() -> None:
    watch = P99Watch(limit_ms=25.0, window=200)
    assert told(watch, *[1.0] * 199, 90.0) == []
    assert "p99 of 200 probes is 90 ms, the limit 25 ms" in told(watch, 90.0)[0]


def test_it_is_said_once_and_again_only_after_it_was_fine() -> None:
    watch = P99Watch(limit_ms=25.0, window=10)
    assert len(told(watch, *[90.0] * 40)) == 1
    assert told(watch, *[1.0] * 10) == ["the way in is fine again: p99 1 ms"]
    assert len(told(watch, 90.0)) == 1


def test_a_probe_without_an_answer_and_one_that_is_no_number_are_slow() -> None:
    for nothing in (float("inf"), float("nan")):
        watch = P99Watch(limit_ms=25.0, window=4)
        assert len(told(watch, *[nothing] * 4)) == 1


def test_the_probe_asks_through_the_ingress_and_a_failing_one_is_said() -> None:
    said, asked = threading.Event(), []

    class Failing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(503)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Failing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        watch, url = P99Watch(limit_ms=25.0, window=2), f"http://127.0.0.1:{server.server_port}"
        with IngressProbe(url, watch, lambda _: said.set(), clock=SystemClock()):
            assert said.wait(20 * ingress_watch.PROBE_EVERY_S + 5.0)
        server.shutdown()
        thread.join()
    assert set(asked) == {"/healthz"}


def test_an_ingress_that_drips_is_infinitely_slow_and_the_watch_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte came in time, so the probe waited for the whole of it, and nobody heard of a slow way in."""
    monkeypatch.setattr(ingress_watch, "_PATIENCE_S", 0.2)
    watch = P99Watch(limit_ms=50.0, window=2)
    with dripping() as there:
        probe = IngressProbe(f"http://127.0.0.1:{there.port}", watch, lambda _: None, clock=SystemClock())
        with httpx.Client(base_url=f"http://127.0.0.1:{there.port}", timeout=5.0) as client:
            assert probe._probe_ms(client) == math.inf
