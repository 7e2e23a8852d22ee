"""Who computes a model's next call: a thread of its own, or where it came in, if the model is quick and only computes.

A hop to a thread and back takes a busy machine longer than a small model takes to answer: at one client it was a tenth
of the whole way. But a call that is made where it came in holds up everything else in its replica, so only calls that
have shown to be short are.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from failsoft.health.clock import Clock

ScoresT = TypeVar("ScoresT")
QUICK_MS = 5.0
"""Calls up to this are made where they came in …"""
PROVEN = 20
"""… once so many in a row were that short …"""
MOST_PROVEN = 10_000
"""… twice as many after each that was long where it came in, up to this: of a model that is slow now and then each of
its long calls held its replica up, health checks too."""
_HELD_UP_S = 0.05
"""A call that takes longer holds the replica up: callers may have left meanwhile …"""
_BACKLOG_S = 0.05
"""… and what came in then begins within this time after it."""


class ModelTurns:
    """Makes calls one at a time. For one event loop.

    Args:
        thread: with one worker; makes the calls that may be long.
        clock: tells how long this replica was held up.
    """

    def __init__(self, thread: ThreadPoolExecutor, clock: Clock) -> None:
        self._thread = thread
        self._clock = clock
        self._in_thread = 0
        self._quick_in_row = 0
        self._proven = PROVEN
        self._held_up_s = (-math.inf, -math.inf)
        """Beginning and end of the last call that did that."""

    async def score(self, call: Callable[[], tuple[ScoresT, float]], *, only_computes: bool) -> tuple[ScoresT, float]:
        """The scores, and how many ms the model took for them.

        Args:
            call: gives both.
            only_computes: the model waits for nothing and runs no event loop of its own.
        """
        if only_computes and self._quick_in_row >= self._proven and not self._in_thread:
            return self._here(call)
        self._in_thread += 1
        quick = False  # a call that raises has shown nothing
        try:
            scored = await asyncio.get_running_loop().run_in_executor(self._thread, call)
            quick = scored[1] <= QUICK_MS
        finally:
            self._in_thread -= 1
            self._quick_in_row = self._quick_in_row + 1 if quick else 0
        return scored

    def came_s(self) -> float:
        """When a call that begins now came in, at the earliest: it may have stood before a replica that was held up."""
        began_s, ended_s = self._held_up_s
        now_s = self._clock.monotonic_s()
        return began_s if now_s < ended_s + _BACKLOG_S else now_s

    def _here(self, call: Callable[[], tuple[ScoresT, float]]) -> tuple[ScoresT, float]:
        began_s, quick = self._clock.monotonic_s(), False
        try:
            scored = call()
            quick = scored[1] <= QUICK_MS
            if scored[1] > _HELD_UP_S * 1000.0:  # its own time: a busy machine is no reason
                self._proven = min(2 * self._proven, MOST_PROVEN)
        finally:
            ended_s = self._clock.monotonic_s()
            self._quick_in_row = self._quick_in_row + 1 if quick else 0
            if ended_s - began_s > _HELD_UP_S:
                self._held_up_s = began_s, ended_s
        return scored
