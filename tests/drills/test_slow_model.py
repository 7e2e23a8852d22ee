"""A model that becomes three times slower, far below the deadline, is left; a healthy one on a busy machine is not."""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import Clock, SystemClock, WorkingTime
from failsoft.health.ledger import read_ledger
from failsoft.health.monitor import Status
from failsoft.health.panel import SignalPanel
from failsoft.health.signals import SignalPolicy, is_slow
from failsoft.serving import ServeSettings, build_app, publish_own
from failsoft.serving.replicas.deployments import Due
from failsoft.serving.rollout.stages import stage_policy
from tests.drills.serving_support import Reply, Traffic, free_port, sources, wait_for
from tests.serving.own_world import example

pytestmark = pytest.mark.drill
NEIGHBOURS = 6
MODEL_MS = 15.0
FLATS = [[70.0, 3.0], [45.0, 2.0], [110.0, 4.0]]


def work(rounds: int) -> None:
    """Keeps one core busy, whoever else runs Python here."""
    hashlib.pbkdf2_hmac("sha256", b"a model", b"at work", rounds)


def rounds_for(ms: float) -> int:
    """How much work takes so long on this core when nobody disturbs."""
    clock, tries = WorkingTime(), list[float]()
    for _ in range(5):
        began_s = clock.monotonic_s()
        work(20_000)
        tries.append(clock.monotonic_s() - began_s)
    return max(1, int(20_000 * ms / 1000 / statistics.median(tries)))


@contextmanager
def busy_neighbours() -> Iterator[None]:
    """Processes that take all they get."""
    neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(NEIGHBOURS)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def took_ms(rounds: int, working: Clock, calls: int) -> list[float]:
    """The model's own time as a replica takes it, for so many calls."""
    clock = SystemClock()
    due = Due(until_s=clock.monotonic_s() + 600.0, clock=clock, working=working)
    return [due.timed(lambda _batch: work(rounds), ["x"])[1] for _ in range(calls)]


def panel_after(times_ms: list[float], p95_ms: float) -> SignalPanel:
    policy = SignalPolicy()
    panel = SignalPanel(stage_policy("production").health, policy)
    for ms in times_ms:
        slow = is_slow(policy, p95_ms, model_ms=ms, texts=1)
        assert slow is not None
        panel.record_latency(slow=slow)
    return panel


def test_a_busy_machine_is_told_from_a_slow_model() -> None:
    rounds = rounds_for(MODEL_MS)
    quiet = sorted(took_ms(rounds, WorkingTime(), 60))
    p95_ms = quiet[57]
    with busy_neighbours():
        time.sleep(0.3)
        plain = took_ms(rounds, SystemClock(), 60)
        own = took_ms(rounds, WorkingTime(), 60)
        slower = took_ms(3 * rounds, WorkingTime(), 60)
    medians = [statistics.median(times) for times in (plain, own, slower)]
    print(
        f"\nbaseline p95 {p95_ms:.1f} ms; beside {NEIGHBOURS} busy neighbours the median call takes "
        f"{medians[0]:.0f} ms by the clock and {medians[1]:.1f} ms of its own; three times slower {medians[2]:.1f} ms"
    )
    assert panel_after(plain, p95_ms).verdict().status is Status.DEGRADED, "the machine was not busy enough to tell"
    assert panel_after(own, p95_ms).verdict().status is not Status.DEGRADED
    assert panel_after(slower, p95_ms).verdict().reason_signal == "latency"


@pytest.fixture
def url(tmp_path: Path, ray_local: None) -> Iterator[str]:
    from ray import serve
    from ray.serve.config import HTTPOptions

    from failsoft.serving.rollout.controller import stop_controller

    there, slow = example(), tmp_path / "slow"
    prices: Any = there["Prices"]

    class Working(prices):  # type: ignore[misc]  # a class of a script that is run by its path
        rounds, slow_sign = rounds_for(MODEL_MS), str(slow)

        def predict(self, batch: Any) -> Any:
            for _ in batch:
                hashlib.pbkdf2_hmac("sha256", b"", b"", self.rounds * (3 if Path(self.slow_sign).exists() else 1))
            return super().predict(batch)

    config = replace(there["config"], predictor=Working)
    there["publish"](tmp_path / "example")
    healthy: list[Any] = [[30.0 + metres, 1.0 + metres // 25] for metres in range(100)]
    publish_own(config, tmp_path / "example" / "model", healthy=healthy, home=tmp_path)
    app = build_app(config, ServeSettings(home=tmp_path, profile="production", gateways=1, deadline_ms=5000.0))
    port = free_port()
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
    serve.run(app, name="own", route_prefix="/")
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    stop_controller(Home.find(tmp_path).root)


def status(url: str) -> dict[str, Any]:
    return dict(httpx.get(f"{url}/v1/status", timeout=10.0).json())


def median_ms(replies: list[Reply]) -> float:
    """Of the model's answers, as callers had to wait."""
    return float(statistics.median(one.body["latency_ms"] for one in replies if one.body["source"] == "primary"))


def test_a_model_three_times_slower_is_left_below_its_deadline_and_a_busy_machine_trips_nothing(
    url: str, tmp_path: Path
) -> None:
    wait_for(lambda: not status(url)["starting"], within_s=60, what="found models")
    with Traffic(url, FLATS, field_name="instance", rate_hz=10.0) as traffic:
        wait_for(lambda: len(traffic.replies) > 60, within_s=30, what="warm traffic")
        assert sources(traffic.replies[-40:]) == {"primary"}, traffic.replies[-1]
        quiet_ms = median_ms(traffic.replies[-40:])
        with busy_neighbours():
            time.sleep(1.0)
            busy_from = len(traffic.replies)
            wait_for(lambda: len(traffic.replies) > busy_from + 120, within_s=90, what="traffic on a busy machine")
            while_busy = traffic.replies[busy_from:]
            found = status(url)
        said = found["health"]["signals"]["latency"]
        busy_ms = median_ms(while_busy)
        assert found["stage"] == "serving", found["health"]  # some requests may be shed: the machine is too busy
        wait_for(lambda: traffic.replies[-1].body["latency_ms"] < 3 * quiet_ms, within_s=30, what="quiet again")
        slow_from = len(traffic.replies)
        (tmp_path / "slow").touch()
        wait_for(lambda: status(url)["stage"] == "degraded", within_s=60, what="the slow model left")
        calls = len([reply for reply in traffic.replies[slow_from:] if reply.body["source"] == "primary"])
        slow_ms = median_ms(traffic.replies[slow_from:])
    print(
        f"\nanswers take {quiet_ms:.0f} ms, {busy_ms:.0f} ms on a busy machine ({said}), {slow_ms:.0f} ms when the "
        f"model is 3 times slower: left after {calls} answers"
    )
    assert traffic.lost() == []
    assert busy_ms > 2 * quiet_ms, "the machine was not busy enough to tell"
    assert max(reply.body["latency_ms"] for reply in traffic.replies[slow_from:]) < 2500.0, "far below the deadline"
    tripped = [event.why for event in read_ledger(Home.find(tmp_path).ledger).events if event.kind == "gateway_tripped"]
    assert len(tripped) == 1
    assert tripped[0].startswith("latency: ")
