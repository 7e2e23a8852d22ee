"""A slow way in is said once, not with every probe, and a few probes say nothing."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from failsoft.health.clock import SystemClock
from failsoft.serving.web import ingress_watch
from failsoft.serving.web.ingress_watch import IngressProbe, P99Watch


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
