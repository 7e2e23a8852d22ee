"""Asking a colour's model within the time that is left, and knowing when the previous release had better rest."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from failsoft.health.clock import Clock
from failsoft.health.window import Outcome
from failsoft.serving.arms.readings import ModelArm, NoReading, Reading
from failsoft.serving.fallback.breaker import BreakerPolicy, RungBreaker, Ticket
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.visit import Allowance

_NO_SUCH_MODEL = NoReading(outcome=Outcome.SHED, why="this app has one slot, and the plan is from before that")
_BUSY = NoReading(outcome=Outcome.SHED, why="the gateway was too busy to wait for the model")
_OVERSLEPT_S = 0.05
"""A deadline that is noticed so much too late was missed by this process; a healthy loop is a few ms late."""


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """How the newest answer of a model came about."""

    came_s: float
    waited_s: float
    """From asking to the answer without the model's own time: in this gateway's line, on the way, in the replica's."""
    model_s: float


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
        self._turns: dict[Colour, _Turn] = {}

    def resting(self) -> dict[str, str]:
        """Colours that do not stand in now, and why."""
        return {colour: held.breaker.why for colour, held in self._stand_ins.items() if held.breaker.why is not None}

    async def ask(self, colour: Colour, text: str, time: Allowance) -> Reading | NoReading:
        """Late is only a model that had most of its time, and to which this process was not too busy to listen.

        Time in our own queues is not the model's: see :meth:`_waits_in_line`.
        """
        if not time.left_s > 0.0:
            return _BUSY
        model = self._models.get(colour)
        if model is None:
            return _NO_SUCH_MODEL
        asked_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(time.left_s):
                reading = await model.ask(text, within_s=time.left_s)
        except TimeoutError:
            passed_s = self._clock.monotonic_s() - asked_s
            if self._waits_in_line(colour, asked_s, passed_s):
                return NoReading(outcome=Outcome.SHED, why=f"no turn at the model within {time.left_s * 1000:.0f} ms")
            return self._cut(time, overslept_s=passed_s - time.left_s)
        if isinstance(reading, Reading) and math.isfinite(reading.model_ms):
            came_s, model_s = self._clock.monotonic_s(), reading.model_ms / 1000
            self._turns[colour] = _Turn(came_s=came_s, waited_s=came_s - asked_s - model_s, model_s=model_s)
        return reading

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

    def _waits_in_line(self, colour: Colour, asked_s: float, passed_s: float) -> bool:
        """Whether a call that was cut had most likely not even come to its turn.

        So it is when, while it was out, the same model did answer somebody who had waited in line for half of that time
        or more, and worked for less than half of it: it is not slow, there is too much to do. A model of which nothing
        comes back, or only after long work of its own, is late. So is one replica of several that hangs: the others'
        answers come without a wait.
        """
        turn = self._turns.get(colour)
        if turn is None or not turn.came_s >= asked_s:
            return False
        return turn.waited_s >= passed_s / 2 and turn.model_s < passed_s / 2

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


def is_behind(plan: RoutingPlan, colour: Colour, reading: Reading) -> bool:
    """Whether those were not the weights that the plan means: of another release, or of a load before the last one.

    A later load is none: after its storage was lost a controller begins to count anew.
    """
    release, generation = plan.releases.get(colour), plan.load_generation.get(colour, 0)
    return reading.release != release or reading.load_generation < generation


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
