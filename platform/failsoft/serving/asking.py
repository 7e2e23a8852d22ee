"""Asking a colour's model within the time that is left, and knowing when the previous release had better rest."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from failsoft.health.clock import Clock
from failsoft.health.window import Outcome
from failsoft.serving.breaker import BreakerPolicy, RungBreaker, Ticket
from failsoft.serving.plan import Colour, RoutingPlan
from failsoft.serving.readings import ModelArm, NoReading, Reading
from failsoft.serving.visit import Allowance

_BUSY = NoReading(outcome=Outcome.SHED, why="the gateway was too busy to wait for the model")
_OVERSLEPT_S = 0.05
"""A deadline that is noticed so much too late was missed by this process; a healthy loop is a few ms late."""


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A stand-in as the plan wants it loaded, and its breaker: another load starts with a clean slate."""

    wanted: tuple[str | None, int]
    breaker: RungBreaker


class Asker:
    """Asks models. The stand-in has a breaker of its own here: while it fails in a row, nobody waits for it.

    The subject has none: it is watched by windows, and what its failures lead to is the plan's affair.
    """

    def __init__(
        self,
        models: Mapping[Colour, ModelArm],
        *,
        clock: Clock,
        policy: BreakerPolicy | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._models = models
        self._clock = clock
        self._policy = policy or BreakerPolicy()
        self._rng = rng or random.Random()  # jitter must differ between gateways
        self._stand_ins: dict[Colour, _Loaded] = {}

    def resting(self) -> dict[str, str]:
        """Colours that do not stand in now, and why."""
        return {colour: held.breaker.why for colour, held in self._stand_ins.items() if held.breaker.why is not None}

    async def ask(self, colour: Colour, text: str, time: Allowance) -> Reading | NoReading:
        """Late is only a model that had most of its time, and to which this process was not too busy to listen."""
        if not time.left_s > 0.0:
            return _BUSY
        asked_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(time.left_s):
                return await self._models[colour].ask(text)
        except TimeoutError:
            return self._cut(time, overslept_s=self._clock.monotonic_s() - asked_s - time.left_s)

    async def ask_stand_in(self, plan: RoutingPlan, colour: Colour, text: str, time: Allowance) -> Reading | NoReading:
        """As :meth:`ask`, unless the stand-in rests."""
        breaker = self._breaker(plan, colour)
        ticket = breaker.admit()
        if ticket is None:
            return NoReading(outcome=Outcome.SHED, why=f"the stand-in rests: {breaker.why}")
        try:
            reading = await self.ask(colour, text, time)
        except asyncio.CancelledError:  # the caller has left: that says nothing about the model
            breaker.returned(ticket)
            raise
        _tell(breaker, ticket, reading)
        return reading

    def _cut(self, time: Allowance, *, overslept_s: float) -> NoReading:
        if overslept_s > _OVERSLEPT_S or time.left_s < time.whole_s / 2:
            return _BUSY
        why = f"no answer of the model within {time.left_s * 1000:.0f} ms"
        if time.by_caller:
            return NoReading(outcome=Outcome.SHED, why=f"{why}, which is all that the caller gave")
        return NoReading(outcome=Outcome.LATE, why=why)

    def _breaker(self, plan: RoutingPlan, colour: Colour) -> RungBreaker:
        wanted = plan.releases.get(colour), plan.load_generation.get(colour, 0)
        held = self._stand_ins.get(colour)
        if held is None or held.wanted != wanted:
            breaker = RungBreaker(self._policy, clock=self._clock, rng=self._rng)
            held = self._stand_ins[colour] = _Loaded(wanted=wanted, breaker=breaker)
        return held.breaker


def is_stale(plan: RoutingPlan, colour: Colour, reading: Reading) -> bool:
    """Whether another release, or an older load of it, answered than the plan asks for."""
    wanted = plan.releases.get(colour), plan.load_generation.get(colour, 0)
    return (reading.release, reading.load_generation) != wanted


def _tell(breaker: RungBreaker, ticket: Ticket, reading: Reading | NoReading) -> None:
    """A weak answer is none of the breaker's business: the texts that it is given may be the hard ones."""
    if isinstance(reading, NoReading):
        if reading.outcome in (Outcome.ERROR, Outcome.LATE):
            breaker.failed(ticket, reading.why)
        else:
            breaker.returned(ticket)
    elif not math.isfinite(reading.confidence):
        breaker.failed(ticket, reading.why)
    else:
        breaker.succeeded(ticket)
