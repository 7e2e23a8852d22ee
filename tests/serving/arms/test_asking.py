"""Who is blamed for a cut call, and a stand-in's rest."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome
from failsoft.serving.arms.asking import Asker
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.fallback.breaker import BreakerPolicy
from failsoft.serving.plan.plan import Colour, Stage
from failsoft.serving.visit import Allowance
from tests.serving.fakes import ScriptedArm, good, plan, reading
from tests.serving.virtual_time import run_virtually

pytestmark = pytest.mark.anyio
PLAN = plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN)
GONE = NoReading(outcome=Outcome.ERROR, why="gone")
SECOND = Allowance(left_s=1.0, whole_s=1.0)


class Bench:
    def __init__(self) -> None:
        self.clock, self.model = ManualClock(), ScriptedArm()
        policy = BreakerPolicy(failures_in_a_row=2)
        self.asker = Asker({Colour.GREEN: self.model}, clock=self.clock, policy=policy)

    async def ask(self, answer: Reading | NoReading = GONE, time: Allowance = SECOND) -> Reading | NoReading:
        self.model.answer = answer
        return await self.asker.ask_stand_in(PLAN, Colour.GREEN, "play", time)

    async def resting(self) -> Bench:
        for _ in range(2):
            await self.ask()
        assert self.asker.resting() == {Colour.GREEN: "2 failures in a row, the last: gone"}
        return self


@pytest.mark.parametrize(
    ("time", "outcome"),
    [
        (Allowance(left_s=0.01, whole_s=0.01), Outcome.LATE),
        (Allowance(left_s=0.01, whole_s=0.03), Outcome.SHED),
        (Allowance(left_s=0.01, whole_s=0.01, by_caller=True), Outcome.SHED),
        (Allowance(left_s=0.0, whole_s=0.01), Outcome.SHED),
        (Allowance(left_s=math.nan, whole_s=0.01), Outcome.SHED),
    ],
)
async def test_late_is_only_a_model_that_had_most_of_the_time_that_it_is_promised(
    time: Allowance, outcome: Outcome
) -> None:
    bench = Bench()
    bench.model.takes_s = 30.0
    assert (await bench.asker.ask(Colour.GREEN, "play", time)).outcome is outcome


async def test_after_its_rest_one_request_tries_the_stand_in_and_a_good_answer_ends_it() -> None:
    bench = await Bench().resting()
    assert (await bench.ask(good())).outcome is Outcome.SHED
    bench.clock.advance(2.0)
    assert (await bench.ask(good())).outcome is Outcome.GOOD
    assert bench.asker.resting() == {}


async def test_a_caller_that_leaves_during_the_try_gives_the_place_back() -> None:
    """B2: a try that never completes must not hold the place."""
    bench = await Bench().resting()
    bench.clock.advance(2.0)
    bench.model.takes_s = 30.0
    left = asyncio.create_task(bench.ask(good()))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    bench.model.takes_s = 0.0
    assert (await bench.ask(good())).outcome is Outcome.GOOD


async def test_answers_that_are_no_numbers_make_a_stand_in_rest_as_failures_do() -> None:
    bench = Bench()
    broken = reading(confidence=math.nan, outcome=Outcome.WEAK, usable=False, why="scores that are not finite")
    for _ in range(2):
        await bench.ask(broken)
    assert bench.asker.resting() == {Colour.GREEN: "2 failures in a row, the last: scores that are not finite"}


class Replicas:
    """Models that answer one text at a time each, in turn; a text goes to the replica with the shorter line."""

    def __init__(self, *work_s: float) -> None:
        self.work_s, self.lines = work_s, [asyncio.Lock() for _ in work_s]
        self.waiting = [0 for _ in work_s]

    async def ask(self, text: str, *, within_s: float = math.inf) -> Reading | NoReading:
        number = min(range(len(self.lines)), key=lambda one: self.waiting[one])
        self.waiting[number] += 1
        try:
            async with self.lines[number]:
                await asyncio.sleep(self.work_s[number])
                return replace(good(), model_ms=self.work_s[number] * 1000)
        finally:
            self.waiting[number] -= 1


def outcomes_of(*work_s: float, at_once: int, rounds: int = 1) -> list[Outcome]:
    """What comes of asking replicas that need so long each, on made-up time."""
    clock, time, found = ManualClock(), Allowance(left_s=0.2, whole_s=0.2), list[Outcome]()

    async def ask() -> None:
        asker = Asker({Colour.BLUE: Replicas(*work_s)}, clock=clock)
        for _ in range(rounds):
            asked = (asker.ask(Colour.BLUE, "play", time) for _ in range(at_once))
            found.extend(reading.outcome for reading in await asyncio.gather(*asked))

    run_virtually(clock, ask())
    return found


def test_a_call_that_waits_in_line_behind_others_is_shed_and_not_held_against_a_quick_model() -> None:
    found = outcomes_of(0.02, at_once=40)
    assert set(found) == {Outcome.GOOD, Outcome.SHED}
    assert found.count(Outcome.SHED) >= 20


def test_a_model_that_needs_nearly_all_the_time_itself_is_late_though_others_wait_behind_it() -> None:
    found = outcomes_of(0.15, at_once=4)
    assert found.count(Outcome.LATE) == 3


def test_a_model_of_which_nothing_comes_back_is_late() -> None:
    assert outcomes_of(30.0, at_once=5) == [Outcome.LATE] * 5


def test_one_replica_of_two_that_hangs_is_late_while_the_other_answers_at_once() -> None:
    found = outcomes_of(30.0, 0.002, at_once=2, rounds=3)
    assert set(found) == {Outcome.GOOD, Outcome.LATE}


async def test_a_colour_that_this_app_does_not_have_is_no_fault_of_any_model() -> None:
    """With one slot, until the controller has made a plan for it."""
    asker = Asker({}, clock=ManualClock())
    reading = await asker.ask(Colour.GREEN, "hello", Allowance(left_s=1.0, whole_s=1.0))
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.SHED
