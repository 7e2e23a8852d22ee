"""A silently broken model on real Ray Serve: every replica leaves it at once, nobody is refused, and it comes back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from failsoft.artifacts.home import Home
from failsoft.health.ledger import read_ledger
from serve_apps.intent_ner import ServeSettings
from serve_apps.runtime import Running, start
from tests.drills.serving_support import Reply, Traffic, free_port, statuses, wait_for
from tests.serving.tiny_release import TEXTS

pytestmark = pytest.mark.drill
GATEWAYS = 2


@pytest.fixture
def running(serving_home: Home, ray_local: None) -> Iterator[Running]:
    settings = ServeSettings(
        home=serving_home.root,
        profile="drill",
        gateways=GATEWAYS,
        deadline_ms=1500,  # what is late on a slow machine is not the incident
        allow_planned_faults=True,
    )
    app = start(settings, port=free_port())
    yield app
    app.stop()


def stages(url: str) -> list[str]:
    return [str(body["stage"]) for body in statuses(url, replicas=GATEWAYS).values()]


def answered(replies: Sequence[Reply]) -> Counter[tuple[str, str | None]]:
    """By source and by the reason why it was not the model."""
    return Counter((str(reply.body["source"]), reply.body["degrade_reason"]) for reply in replies)


def _served_by_the_model(traffic: Traffic) -> bool:
    """Late answers while the app warms up are not the incident: they have left the windows of 100 calls."""
    last = [reply.body["source"] for reply in traffic.replies[-240:]]
    return len(last) == 240 and last.count("primary") > 230


def switched_within_s(traffic: Traffic, broken_s: float) -> float:
    """From the first answer that the broken model spoiled to the last one given under the old plan.

    0 where all that were under way came under the new plan already: on a slow machine they are many.
    """
    after = sorted(traffic.since(broken_s), key=lambda reply: reply.done_s)
    spoiled = [reply for reply in after if reply.body["refused_confidence"] is not None]
    assert len(spoiled) >= 15, answered(after)
    old = {reply.body["epoch"] for reply in traffic.replies if reply.sent_s < broken_s}
    under_old_plan = [reply for reply in after if reply.body["epoch"] in old and reply.body["stage"] == "serving"]
    return max(0.0, under_old_plan[-1].done_s - spoiled[0].done_s) if under_old_plan else 0.0


def test_broken_weights_are_left_everywhere_at_once_and_the_healed_model_returns(
    running: Running, serving_home: Home
) -> None:
    fault = serving_home.faults / "broken_weights"
    fault.parent.mkdir(parents=True, exist_ok=True)
    with Traffic(running.url, TEXTS) as traffic:
        try:
            wait_for(lambda: _served_by_the_model(traffic), within_s=120, what="warm traffic that the model answers")
        finally:
            print("warm:", answered(traffic.replies[-240:]))
        broken_s = time.monotonic()
        fault.touch()
        wait_for(lambda: set(stages(running.url)) == {"degraded"}, within_s=30, what="every replica on the fallback")
        fault.unlink()
        back_s = wait_for(lambda: set(stages(running.url)) == {"serving"}, within_s=180, what="the return to serving")
        returned_s = time.monotonic()
        wait_for(lambda: len(traffic.since(returned_s)) > 40, within_s=30, what="traffic after the return")
    assert traffic.lost() == []
    switch_s = switched_within_s(traffic, broken_s)
    print(
        f"first bad answer to last answer under the old plan: {switch_s * 1000:.0f} ms; back in service {back_s:.1f} s"
    )
    assert switch_s < 2.0
    after = answered(traffic.since(returned_s))
    assert after["primary", None] > 0.8 * after.total(), after
    seen = [event.kind for event in read_ledger(serving_home.ledger).events]
    assert "planned_fault" in seen
    assert "stage_move" in seen
