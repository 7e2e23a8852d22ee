"""Keeps a replica on the current plan: pushed by a long poll, polled as a backstop, and held when nobody answers.

The last plan stays in force for as long as the controller is silent (fail static). A replica that finds the subject ill
does not wait for anyone: :meth:`PlanFollower.trip_locally` holds the subject back here at once, and the news is sent
until a plan answers it. A plan that was made meanwhile, without knowing of it, does not: it gets its number, and the
weights that were found ill go on getting nothing here (see :mod:`failsoft.serving.plan.trips`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.stages import WATCHED


class PlanSource(Protocol):
    """Where plans come from. Each call may raise FailsoftError or OSError, or take for ever; nothing else."""

    async def wait_plan(self, known_epoch: int, timeout_s: float) -> RoutingPlan:
        """The current plan: at once if its epoch is not ``known_epoch``, else when it changes or time is up."""
        ...

    async def trip(self, trip: Trip) -> RoutingPlan:
        """Tell that a load of a model was found ill; the plan after that."""
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
        self._truth = self._in_force = first
        self._trips: dict[Colour, Trip] = {}
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
        return self._in_force

    @property
    def tripped_locally(self) -> str | None:
        """Why this replica holds a model back on its own; None when it does not."""
        return "; ".join(f"{trip.colour}: {trip.why}" for trip in self._trips.values()) or None

    @property
    def local_trips(self) -> tuple[Trip, ...]:
        """What this replica holds back on its own; told to the controller again and again until a plan answers it."""
        return tuple(self._trips.values())

    @property
    def silent_s(self) -> float | None:
        """Seconds since the source was last heard; None: never."""
        return None if self._heard_s is None else self._clock.monotonic_s() - self._heard_s

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """What goes on in the background once it was started. Only a bug ends one; whoever owns this replica looks."""
        return tuple(self._tasks)

    def on_change(self, callback: OnChange) -> None:
        """Call ``callback`` with every plan that comes into force from now on; it returns at once and never raises."""
        self._callbacks.append(callback)

    def offer(self, plan: RoutingPlan) -> None:
        """Take a plan that came some other way, as with the answer to a report; an old one is ignored."""
        self._heard_s, self._source_is_behind = self._clock.monotonic_s(), plan.epoch < self._truth.epoch
        if plan.epoch > self._truth.epoch:
            self._truth = plan
            self._trips = {colour: trip for colour, trip in self._trips.items() if trip.holds_in(plan)}
            self._announce()

    def trip_locally(self, why: str) -> None:
        """Hold the subject back here from now until a plan answers that, and tell the controller.

        A plan answers it in which the weights that were found ill get nothing, or were loaded again.
        """
        if self._in_force.stage in WATCHED:
            trip = Trip.of_subject(self._in_force, gateway=self._name, why=why)
            self._trips[trip.colour] = trip
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
        trip = next(iter(self._trips.values()), None)
        return self._source.wait_plan(-1, 0.0) if trip is None else self._source.trip(trip)

    async def _ask(self, question: Callable[[], Awaitable[RoutingPlan]], *, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                self.offer(await question())
        except _UNREACHABLE:
            return False
        return True

    def _announce(self) -> None:
        self._in_force = self._truth
        for trip in self._trips.values():
            self._in_force = trip.applied_to(self._in_force)
        news, self._news = self._news, asyncio.Event()
        news.set()
        for callback in self._callbacks:
            callback(self._in_force)
