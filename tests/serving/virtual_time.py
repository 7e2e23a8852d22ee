"""An event loop whose time is made up: it jumps to the next thing that is due, so that waits cost nothing.

What is measured on it is exact and the same on every machine.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from failsoft.health.clock import ManualClock

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Instead of waiting for a file, lets the time pass."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits for something that no timer will bring about")
        self._clock.advance(max(0.0, timeout))
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Keeps the time of a manual clock, and moves it."""

    def __init__(self, clock: ManualClock) -> None:
        self._made_up = clock
        super().__init__(_Jump(clock))

    def time(self) -> float:
        return self._made_up.monotonic_s()


def run_virtually(clock: ManualClock, work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end on a loop of made-up time."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(work)
