"""The incident race on real processes: the same broken model behind each, at a steady 50 requests a second.

The redeployment is ordered as soon as the client has had twenty bad answers, sooner than any person and most alerts:
what is left is the time that putting an image back takes by itself, without a registry.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from failsoft.health.faults import FaultKind
from failsoft.ingress import LOOPBACK, Ingress
from tests.benchmarks.gateway_contenders import releases, standing
from tests.benchmarks.incident_app import share_file
from tests.benchmarks.incident_traffic import Reply, Steady
from tests.benchmarks.race_wall_hosts import order_of

KINDS: Mapping[str, str] = {
    "failsoft": "incident",
    "bare Ray Serve, old image put back": "redeployed",
    "sliding window in FastAPI": "window",
}
RATE_HZ, WARM, BAD_SHARE = 50.0, 200, 1.0
WATCHED_S, PATIENCE_S, ORDERED_AFTER = 20.0, 60.0, 20


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the callers of one contender got."""

    name: str
    replies: tuple[Reply, ...]
    broken_s: float

    @property
    def bad(self) -> int:
        """Bad answers that callers got."""
        return sum(reply.let_through for reply in self._after)

    @property
    def lost(self) -> int:
        """Requests without an answer, or with another status than 200; over all the traffic."""
        return sum(reply.status != 200 for reply in self.replies)

    @property
    def last_bad_s(self) -> float:
        """From the break to the last bad answer or lost request of the watched span."""
        return max((reply.done_s - self.broken_s for reply in self._after if not good(reply)), default=0.0)

    @property
    def returns(self) -> int:
        """How often callers met bad answers again after a second without any."""
        marks = [second for second, share in enumerate(self.success(WATCHED_S)) if share is not None and share < 1.0]
        return sum(later - earlier > 1 for earlier, later in itertools.pairwise(marks))

    @property
    def slowest_s(self) -> float:
        """The longest that a caller waited."""
        return max(reply.done_s - reply.sent_s for reply in self._after)

    @property
    def _after(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.done_s >= self.broken_s]

    def success(self, span_s: float, *, before_s: float = 0.0) -> list[float | None]:
        """Share of good answers by the second in which they were sent, from ``before_s`` before the break.

        None for a second in which nobody asked.
        """
        counts: dict[int, list[int]] = {}
        for reply in self.replies:
            second = int(reply.sent_s - self.broken_s + before_s)
            if reply.sent_s - self.broken_s + before_s >= 0.0:
                counts.setdefault(second, []).append(good(reply))
        asked = [counts.get(second) for second in range(int(span_s + before_s))]
        return [sum(found) / len(found) if found else None for found in asked]


def good(reply: Reply) -> bool:
    """Answered, and not by the broken model's wrong answer."""
    return reply.status == 200 and not reply.let_through


def raced(names: Sequence[str] = tuple(KINDS), *, seed: int = 5) -> list[Seen]:
    """Each once, one after the other, in an order by chance."""
    with releases() as published:
        return [_one(name, published) for name in random.Random(seed).sample(list(names), len(names))]


def _one(name: str, published: Path) -> Seen:
    with standing(KINDS[name], Ingress.FAST, published) as contender:
        home = contender.home
        home.faults.mkdir(parents=True, exist_ok=True)
        share_file(home.root).write_text(str(BAD_SHARE), "utf-8")
        with Steady(LOOPBACK, contender.port, RATE_HZ) as traffic:
            _until(lambda: sum(reply.source == "primary" for reply in traffic.replies) >= WARM, f"{name}, warm")
            broken_s = time.monotonic()
            (home.faults / FaultKind.BROKEN_WEIGHTS).touch()
            _until(lambda: sum(reply.bad for reply in traffic.replies) >= ORDERED_AFTER, f"bad answers of {name}")
            order_of(home.root).touch()
            time.sleep(max(0.0, broken_s + WATCHED_S + 1.0 - time.monotonic()))
        return Seen(name=name, replies=tuple(traffic.replies), broken_s=broken_s)


def _until(holds: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_s, f"{what}: not within {PATIENCE_S:g} s"
        time.sleep(0.02)
