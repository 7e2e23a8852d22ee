"""The faults of a soak: drawn by a seed, one about every twenty seconds, on both halves of the platform."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from failsoft.artifacts.home import Home
from failsoft.demo.waves import glued_emoji, odd_unicode, unknown_words
from failsoft.drills.serving.processes import Family, Process
from failsoft.health.clock import Clock
from failsoft.health.faults import FaultKind
from tests.serving.tiny_release import TEXTS

MEAN_GAP_S, LEAST_GAP_S, MOST_GAP_S = 20.0, 8.0, 45.0
FROZEN_S, SPOILT_S = 3.0, 8.0
KILLED = {
    "worker killed": ("RayTrainWorker",),
    "controller of the workers killed": ("TrainController",),
    "driver killed": ("train_jobs.driver_process",),
    "model killed": (":blue", ":green"),
    "gateway killed": (":gateway",),
    "controller of the plan killed": ("ray::Controller",),
    "Serve's controller killed": ("ray::ServeController",),
}
FROZEN = {"worker frozen": ("RayTrainWorker",), "model frozen": (":blue", ":green")}
WAVES = ("malformed wave", "overload", "weights spoilt")
"""Serve's only proxy is not killed: on one node it takes the port with it, which a drill of its own measures."""


@dataclass(frozen=True, kw_only=True)
class Struck:
    """One fault, as it went."""

    at_s: float
    kind: str
    what: str


def plan(seed: int, duration_s: float) -> Iterator[tuple[float, str]]:
    """When and what: gaps of 8 to 45 s, exponential between; each kind comes before any comes again."""
    rng, at_s = random.Random(seed), 0.0
    kinds = [*KILLED, *FROZEN, *WAVES]
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            at_s += min(max(rng.expovariate(1.0 / MEAN_GAP_S), LEAST_GAP_S), MOST_GAP_S)
            if at_s > duration_s:
                return
            yield at_s, kind


class Striker:
    """Carries faults out on the living system, and takes back what does not end by itself."""

    def __init__(self, family: Family, home: Home, url: str, *, clock: Clock, seed: int) -> None:
        self._family, self._home, self._url, self._clock = family, home, url, clock
        self._rng = random.Random(seed + 1)

    def strike(self, kind: str) -> str:
        """One fault; what was done, in words."""
        if kind in KILLED:
            return self._to_one(KILLED[kind], lambda one: one.send(signal.SIGKILL))
        if kind in FROZEN:
            return self._to_one(FROZEN[kind], self._freeze)
        doings: dict[str, Callable[[], str]] = {
            "malformed wave": self._wave,
            "overload": self._overload,
            "weights spoilt": self._spoil,
        }
        return doings[kind]()

    def _to_one(self, titles: Sequence[str], do: Callable[[Process], bool]) -> str:
        found = [one for one in self._family.holding(*titles) if _is_meant(one.title, titles)]
        if not found:
            return "nobody was there to be struck"
        one = self._rng.choice(found)
        title = one.title[:60]
        return f"{title} ({one.pid})" if do(one) else f"{title} was gone already"

    def _freeze(self, one: Process) -> bool:
        if not one.send(signal.SIGSTOP):
            return False
        self._clock.sleep_s(FROZEN_S)
        return one.send(signal.SIGCONT)

    def _wave(self) -> str:
        dress = self._rng.choice((glued_emoji, odd_unicode, unknown_words))
        texts = [dress(self._rng.choice(TEXTS), self._rng) for _ in range(40)]
        return f"{dress.__name__}: {asyncio.run(_ask(self._url, [*texts, '', chr(0x202E), 'x' * 9000]))}"

    def _overload(self) -> str:
        return asyncio.run(_ask(self._url, [self._rng.choice(TEXTS) for _ in range(100)]))

    def _spoil(self) -> str:
        sign = self._home.faults / FaultKind.BROKEN_WEIGHTS
        sign.parent.mkdir(parents=True, exist_ok=True)
        sign.touch()
        try:
            self._clock.sleep_s(SPOILT_S)
        finally:
            Path(sign).unlink(missing_ok=True)
        return f"for {SPOILT_S:g} s"


def _is_meant(title: str, titles: Sequence[str]) -> bool:
    """A replica's deployment stands at the end of its name; other titles begin, or are a module."""
    if titles[0].startswith(":"):
        return title.startswith("ray::ServeReplica") and any(name in title for name in titles)
    return any(name in title for name in titles)


async def _ask(url: str, texts: Sequence[str]) -> str:
    """All at once; how many were answered by what."""
    limits = httpx.Limits(max_connections=len(texts))
    async with httpx.AsyncClient(base_url=url, timeout=30.0, limits=limits) as client:
        asked = (client.post("/v1/predict", json={"text": text}) for text in texts)
        answers = await asyncio.gather(*asked, return_exceptions=True)
    codes = [one.status_code if isinstance(one, httpx.Response) else 0 for one in answers]
    return ", ".join(f"{codes.count(code)} × {code}" for code in sorted(set(codes)))
