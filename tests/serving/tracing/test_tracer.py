"""Which requests are traced, and the settings that say so. No network."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from failsoft.errors import ConfigError
from failsoft.health.clock import ManualClock
from failsoft.health.serving_metrics import SPAN_ENDS
from failsoft.serving.arms.handle_arm import HandleArm
from failsoft.serving.request import Answerer
from failsoft.serving.settings import settings_of
from failsoft.serving.tracing import wiring
from failsoft.serving.tracing.config import TraceConfig
from failsoft.serving.tracing.outbox import Outbox
from failsoft.serving.tracing.spans import MOST_SPANS
from failsoft.serving.tracing.tracer import Tracer
from failsoft.serving.tracing.w3c import Parent, parent_of
from failsoft.serving.tracing.wiring import Untraced, refuse_without_exporter, route_of, traces_if_any, traces_of

URL = "http://127.0.0.1:4318/v1/traces"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class World:
    """A tracer on a clock that a test moves; nothing is ever sent."""

    def __init__(self, **changes: Any) -> None:
        config = TraceConfig(endpoint=URL, **changes)
        self.clock = ManualClock()
        self.outbox = Outbox(config, lambda _: None, rng=random.Random(1))
        self.tracer = Tracer(config, self.outbox, clock=self.clock, rng=random.Random(2))

    def request(self, *, replaced: bool = False, surely: bool = False, parent: Parent | None = None) -> bool:
        """Whether the trace of one request is kept."""
        trace = self.tracer.begin(parent)
        if trace is None:
            return False
        if replaced:
            self.tracer.replaced(trace)
        if surely:
            trace.keep(surely=True)
        trace.over()
        return trace.kept


def test_about_the_share_that_is_asked_for_is_traced() -> None:
    world = World(ratio=0.1, keep_degraded=False, max_kept_per_s=10_000.0)
    kept = sum(world.request() for _ in range(5000))
    assert 400 < kept < 600


@given(trace_id=st.integers(1, (1 << 128) - 1), ratio=st.floats(0.0, 1.0))
def test_the_share_is_drawn_as_opentelemetry_draws_it(trace_id: int, ratio: float) -> None:
    """So that of a trace through several services each keeps its part or none does."""
    theirs = TraceIdRatioBased(ratio).should_sample(None, trace_id, "").decision is Decision.RECORD_AND_SAMPLE
    bound = TraceConfig(endpoint=URL, ratio=ratio).below
    assert ((trace_id & ((1 << 64) - 1)) < bound) == theirs or abs((trace_id & ((1 << 64) - 1)) - bound) <= 1


def test_an_incident_keeps_so_many_traces_a_second_and_counts_the_others() -> None:
    world = World(ratio=0.0, max_kept_per_s=5.0)
    assert sum(world.request(replaced=True) for _ in range(100)) == 5
    assert world.tracer.status()["over_limit"] == 95
    assert set(world.tracer.status()) == set(SPAN_ENDS)
    world.clock.advance(2.0)
    assert sum(world.request(replaced=True) for _ in range(100)) == 5
    world.clock.advance(0.2)
    assert sum(world.request(replaced=True) for _ in range(100)) == 1


def test_the_request_that_made_a_gateway_trip_is_kept_however_many_there_are() -> None:
    world = World(ratio=0.0, max_kept_per_s=1.0)
    assert [world.request(replaced=True) for _ in range(3)] == [True, False, False]
    assert world.request(replaced=True, surely=True)


def test_callers_that_claim_to_be_sampled_can_not_flood_the_collector() -> None:
    world = World(ratio=0.0, max_kept_per_s=3.0)
    parent = Parent(int(TRACE, 16), int(SPAN, 16), sampled=True)
    assert sum(world.request(parent=parent) for _ in range(50)) == 3
    assert sum(world.request(parent=parent, replaced=True) for _ in range(50)) == 3, "what fails has room of its own"
    assert world.tracer.status()["over_limit"] == 94


def test_a_gateway_that_keeps_no_degraded_ones_records_only_its_share() -> None:
    world = World(ratio=0.0, keep_degraded=False)
    assert world.tracer.begin(None) is None
    assert not world.request(replaced=True)


def test_of_a_trace_without_end_the_first_spans_are_kept_and_the_root_says_how_many_are_not() -> None:
    world = World(ratio=1.0)
    trace = world.tracer.begin(None)
    assert trace is not None
    for _ in range(MOST_SPANS + 7):
        trace.end(trace.begin("again"))
    trace.over()
    assert len(trace.spans) == MOST_SPANS + 1
    assert trace.root.attributes["failsoft.spans_left_out"] == 7


def test_a_parent_is_read_as_w3c_says() -> None:
    header = f"00-{TRACE}-{SPAN}-01".encode()
    assert parent_of([(b"traceparent", header)]) == Parent(int(TRACE, 16), int(SPAN, 16), sampled=True)
    later = f"cc-{TRACE}-{SPAN}-00-what-comes-later".encode()
    assert parent_of([(b"traceparent", later)]) == Parent(int(TRACE, 16), int(SPAN, 16), sampled=False)


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
    ],
)
def test_a_parent_that_is_none_begins_a_trace_of_our_own(value: str) -> None:
    assert parent_of([(b"traceparent", value.encode())]) is None


def test_two_parents_are_none() -> None:
    header = f"00-{TRACE}-{SPAN}-01".encode()
    assert parent_of([(b"traceparent", header), (b"traceparent", header)]) is None


@given(st.binary(max_size=80))
def test_no_header_is_more_than_a_header(value: bytes) -> None:
    assert parent_of([(b"traceparent", value)]) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": "collector:4318"}, "use http://127.0.0.1:4318/v1/traces"),
        ({"endpoint": "http://collector.example/v1/traces"}, "plain text"),
        ({"endpoint": "https://u:secret@collector.example/v1/traces"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"endpoint": "https://collector.example/v1/traces?key=secret"}, "OTEL_EXPORTER_OTLP_HEADERS"),
        ({"ratio": 1.5}, "use 0 to 1"),
        ({"ratio": float("nan")}, "use 0 to 1"),
        ({"every_s": 0.0}, "more than 0"),
        ({"max_kept_per_s": float("nan")}, "more than 0"),
        ({"max_waiting_spans": 1}, "use 64"),
    ],
)
def test_settings_that_can_not_be_meant_are_refused_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        TraceConfig(**({"endpoint": URL} | changes))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "//[::1/v1",
        "//127.0.0.1:abc/v1",
        "//127.0.0.1:70000/v1",
        "//a\n/v1",
        "//a b/v1",
        "//127.0.0.1:4318",
        "//u:secret@a:b/v1",
    ],
)
def test_an_address_that_nothing_could_be_sent_to_is_refused_before_anything_starts(address: str) -> None:
    with pytest.raises(ConfigError, match=r"use http://127\.0\.0\.1:4318/v1/traces") as refused:
        TraceConfig(endpoint=f"http:{address}", plaintext=True)
    assert "secret" not in str(refused.value)


def test_another_machine_gets_traces_over_https_or_where_it_is_said_that_plain_text_is_meant() -> None:
    TraceConfig(endpoint="https://collector.example/v1/traces")
    assert settings_of({"traces": "http://collector/v1/traces", "traces_plaintext": True}).gateway().traces is not None


def test_nothing_is_traced_unless_it_is_asked_for_and_then_the_parts_are_the_plain_ones() -> None:
    assert settings_of({}).gateway().traces is None
    traces = traces_of(None, gateway="g", app="a", clock=ManualClock())
    assert type(traces) is Untraced
    assert traces.status() is None
    assert traces.arm.__func__.__globals__["HandleArm"] is HandleArm  # type: ignore[attr-defined]
    assert traces.answerer.__func__.__globals__["Answerer"] is Answerer  # type: ignore[attr-defined]


def test_where_what_sends_is_not_installed_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.delitem(sys.modules, "failsoft.serving.tracing.otlp", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'failsoft\[traces\]'"):
        refuse_without_exporter(TraceConfig(endpoint=URL))
    refuse_without_exporter(None)


def test_a_gateway_that_lacks_what_sends_answers_without_traces_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    monkeypatch.delitem(sys.modules, "failsoft.serving.tracing.otlp", raising=False)
    said: list[str] = []
    config = TraceConfig(endpoint=URL)
    traces = traces_if_any(config, gateway="g", app="a", clock=ManualClock(), refused=said.append)
    assert type(traces) is Untraced
    assert "failsoft[traces]" in said[0]


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/predict", "/v1/predict"),
        ("/v2/models/m/infer", "/v2/models/{model}/infer"),
        ("/v2/models/m/versions/r-1/infer", "/v2/models/{model}/infer"),
        ("/healthz", None),
        ("/v1/status", None),
        ("/v2/models/m/ready", None),
    ],
)
def test_requests_for_answers_are_traced_and_no_others(path: str, route: str | None) -> None:
    assert route_of(path) == route
    assert wiring.PREDICT == "/v1/predict"
