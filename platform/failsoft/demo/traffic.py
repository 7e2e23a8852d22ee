"""Steady traffic from a client that keeps its pace whatever the server does (open loop)."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from failsoft.demo.answers import Seen
from failsoft.health.clock import Clock

_KEPT = ("source", "degrade_reason", "stage", "epoch", "confidence", "refused_confidence", "intent")
"""Fields of an answer that are remembered."""

_CONNECTIONS, _PATIENCE_S, _IDLE_S = 256, 20.0, 5.0
"""An idle connection is let go before any server would close it just as a request is sent."""

Prepare = Callable[[str, random.Random], str]


@dataclass(frozen=True, kw_only=True)
class Question:
    """A text, and the intent that a person reads in it."""

    text: str
    intent: str


def as_it_is(text: str, _rng: random.Random) -> str:
    """Traffic as users write it."""
    return text


class SteadyTraffic:
    """Sends questions at a fixed rate from a thread of its own, and remembers every answer."""

    def __init__(self, url: str, questions: Sequence[Question], clock: Clock, *, rate_hz: float, seed: int) -> None:
        self._url = f"{url}/v1/predict"
        self._questions = questions
        self._clock = clock
        self._interval_s = 1.0 / rate_hz
        self._rng = random.Random(seed)
        self._phase = "warm-up"
        self._prepare: Prepare = as_it_is
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="steady-traffic", daemon=True)
        self._newest = (-1, False)
        self.stage: str | None = None
        """The stage in the answer of the newest plan seen so far."""
        self.seen: list[Seen] = []

    def start(self) -> None:
        """Begin sending."""
        self._thread.start()

    def enter(self, phase: str, prepare: Prepare = as_it_is) -> None:
        """From the next request on, write texts like this and file answers under ``phase``."""
        self._phase, self._prepare = phase, prepare

    def recent_sources(self, last: int = 60) -> str:
        """Who gave the last answers, in words."""
        recent = Counter("lost" if one.lost else one.source for one in self.seen[-last:])
        return ", ".join(f"{source} {count * 100 // recent.total()} %" for source, count in recent.most_common())

    def stop(self) -> None:
        """Send no more, and wait for the answers that are on their way."""
        self._stop.set()
        self._thread.join(timeout=60.0)

    async def _run(self) -> None:
        patience, room = ClientTimeout(total=_PATIENCE_S), TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_IDLE_S)
        async with ClientSession(timeout=patience, connector=room) as client, asyncio.TaskGroup() as group:
            due_s = self._clock.monotonic_s()
            while not self._stop.is_set():
                group.create_task(self._ask(client, self._rng.choice(self._questions)))
                due_s += self._interval_s
                await asyncio.sleep(max(0.0, due_s - self._clock.monotonic_s()))

    async def _ask(self, client: ClientSession, question: Question) -> None:
        phase, text = self._phase, self._prepare(question.text, self._rng)
        sent_s = self._clock.monotonic_s()
        status, body = await _post(client, self._url, text)
        latency_ms = (self._clock.monotonic_s() - sent_s) * 1000
        kept = {name: body.get(name) for name in _KEPT}
        answer = Seen(
            sent_s=sent_s, latency_ms=latency_ms, status=status, phase=phase, expected=question.intent, **kept
        )
        self.seen.append(answer)
        newest = (answer.epoch or -1, answer.stage == "degraded")  # a replica that trips by itself keeps its epoch
        if newest >= self._newest:
            self._newest, self.stage = newest, answer.stage


async def _post(client: ClientSession, url: str, text: str) -> tuple[int, dict[str, Any]]:
    """Status and body; status 0 when no answer came, which counts as a lost request."""
    try:
        async with client.post(url, json={"text": text}) as response:
            return response.status, await response.json() if response.status == 200 else {}
    except (ClientError, TimeoutError, ValueError):
        return 0, {}
