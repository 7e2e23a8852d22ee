"""Keeps a replica on the current plan: pushed by a long poll, polled as a backstop, and held when nobody answers.

The last plan stays in force for as long as the controller is silent (fail static). A replica that finds the subject ill
does not wait for anyone: :meth:`PlanFollower.trip_locally` holds the subject back here at once, and the news is sent
until the controller has a newer plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock
from failsoft.serving.plan import RoutingPlan, Stage


class PlanSource(Protocol):
    """Where plans come from. Each call may raise FailsoftError or OSError, or take for ever; nothing else."""

    async def wait_plan(self, known_epoch: int, timeout_s: float) -> RoutingPlan:
        """The current plan: at once if its epoch is not ``known_epoch``, else when it changes or time is up."""
        ...

    async def trip(self, gateway: str, epoch: int, why: str) -> RoutingPlan:
        """Tell that the subject is ill under plan ``epoch``; the plan after that."""
        ...


OnChange = Callable[[RoutingPlan], None]
_UNREACHABLE = (FailsoftError, OSError)  # TimeoutError and ConnectionError are OSErrors


class PlanFollower:
    """Holds the plan in force in this replica.

    Args:
        source: the controller.
        name: this replica's name, told with a trip.
        clock: tells how long the source has been silent.
        first: in force until the source has spoken.
        poll_every_s: the backstop poll; also how often a local trip is told again.
        wait_s: how long one long poll may wait.
    """

    def __init__(
        self,
        source: PlanSource,
        *,
        name: str,
        clock: Clock,
        first: RoutingPlan,
        poll_every_s: float = 0.25,
        wait_s: float = 10.0,
    ) -> None:
        self._source = source
        self._name = name
        self._clock = clock
        self._truth = first
        self._local_trip: str | None = None
        self._poll_every_s = poll_every_s
        self._wait_s = wait_s
        self._heard_s: float | None = None
        self._source_is_behind = False
        self._callbacks: list[OnChange] = []
        self._news = asyncio.Event()
        self._trip_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def plan(self) -> RoutingPlan:
        """The plan in force here."""
        return self._truth if self._local_trip is None else _held_back(self._truth, self._local_trip)

    @property
    def tripped_locally(self) -> str | None:
        """Why this replica holds the subject back on its own; None when it does not."""
        return self._local_trip

    @property
    def silent_s(self) -> float | None:
        """Seconds since the source was last heard; None: never."""
        return None if self._heard_s is None else self._clock.monotonic_s() - self._heard_s

    def on_change(self, callback: OnChange) -> None:
        """Call ``callback`` with every plan that comes into force from now on; it returns at once and never raises."""
        self._callbacks.append(callback)

    def offer(self, plan: RoutingPlan) -> None:
        """Take a plan that came some other way, as with the answer to a report; an old one is ignored."""
        self._heard_s, self._source_is_behind = self._clock.monotonic_s(), plan.epoch < self._truth.epoch
        if plan.epoch > self._truth.epoch:
            self._truth, self._local_trip = plan, None
            self._announce()

    def trip_locally(self, why: str) -> None:
        """Hold the subject back here from now until a plan with a higher epoch arrives, and tell the controller."""
        if self._local_trip is None and self._truth.stage is not Stage.DEGRADED:
            self._local_trip = why
            self._trip_due.set()
            self._announce()

    async def changed(self, *, timeout_s: float, known_epoch: int | None = None) -> bool:
        """Wait for the next change of :attr:`plan`; False when ``timeout_s`` passed without one.

        With ``known_epoch``, a plan of another epoch is a change at once, so that none is missed between two calls.
        """
        if known_epoch is not None and self._truth.epoch != known_epoch:
            return True
        news = self._news
        try:
            async with asyncio.timeout(timeout_s):
                await news.wait()
        except TimeoutError:
            return False
        return True

    async def start(self, *, first_within_s: float = 10.0) -> None:
        """Ask for the plan, waiting up to ``first_within_s`` for an answer, then follow it in the background."""
        await self._ask(lambda: self._source.wait_plan(-1, 0.0), within_s=first_within_s)
        duties = {"plan push": self._listen(), "plan poll": self._poll()}
        self._tasks = [asyncio.create_task(duty, name=name) for name, duty in duties.items()]

    async def stop(self) -> None:
        """End the background tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _listen(self) -> None:
        while True:
            heard = await self._ask(self._long_poll, within_s=self._wait_s + self._poll_every_s)
            if not heard or self._source_is_behind:  # a long poll of a source with another epoch returns at once
                await asyncio.sleep(self._poll_every_s)

    def _long_poll(self) -> Awaitable[RoutingPlan]:
        return self._source.wait_plan(self._truth.epoch, self._wait_s)

    async def _poll(self) -> None:
        """Every so often, and at once after a local trip."""
        while True:
            self._trip_due.clear()
            await self._ask(self._trip_or_poll, within_s=max(1.0, self._poll_every_s))
            try:
                async with asyncio.timeout(self._poll_every_s):
                    await self._trip_due.wait()
            except TimeoutError:
                continue

    def _trip_or_poll(self) -> Awaitable[RoutingPlan]:
        if self._local_trip is not None:
            return self._source.trip(self._name, self._truth.epoch, self._local_trip)
        return self._source.wait_plan(-1, 0.0)

    async def _ask(self, question: Callable[[], Awaitable[RoutingPlan]], *, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                self.offer(await question())
        except _UNREACHABLE:
            return False
        return True

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
        plan = self.plan
        for callback in self._callbacks:
            callback(plan)


def _held_back(plan: RoutingPlan, why: str) -> RoutingPlan:
    return replace(plan, stage=Stage.DEGRADED, share=0.0, mirror_share=0.0, why=f"held back by this replica: {why}")
