"""A model that is left while it works on an answer: the caller gets the fallback's, under the new plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from failsoft.health.window import Outcome
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.plan.plan import Arm, Colour, RoutingPlan, Stage
from failsoft.serving.web.messages import PredictAnswer, Source
from tests.serving.counter import Counter
from tests.serving.fakes import ScriptedArm, good, plan, reading

pytestmark = pytest.mark.anyio

FALLEN = plan(Stage.DEGRADED, epoch=2, share=0.0)
WITH_PREVIOUS = replace(FALLEN, stand_in=Colour.GREEN, releases={Colour.BLUE: "r1", Colour.GREEN: "r0"})


class Meanwhile(ScriptedArm):
    """A model that answers as told; but before it does, another plan comes into force."""

    def __init__(self, counter: Counter, then: RoutingPlan, answer: Reading) -> None:
        super().__init__(answer=answer)
        self._counter, self._then = counter, then

    async def ask(self, text: str, *, within_s: float = 1.0) -> Reading | NoReading:
        self._counter.plan = self._then
        return await super().ask(text, within_s=within_s)


async def asked_before(then: RoutingPlan, answer: Reading) -> tuple[Counter, PredictAnswer]:
    """A request during which another plan comes into force, and what its caller gets."""
    counter = Counter()
    counter.blue = Meanwhile(counter, then, answer)
    counter.green.answer = good("r0")
    counter.answerer = counter.with_clock(counter.clock)
    return counter, await counter.ask()


async def test_an_answer_that_comes_after_the_fall_is_not_given_and_still_counts() -> None:
    passable = reading(confidence=0.6, outcome=Outcome.WEAK, usable=True, why="below 0.65")
    counter, answer = await asked_before(FALLEN, passable)
    assert (answer.source, answer.stage, answer.epoch) == (Source.RULES, "degraded", 2)
    assert (answer.degrade_reason, answer.refused_confidence) == ("degraded: as planned", 0.6)
    assert [(seen.arm, seen.outcome, seen.epoch) for seen in counter.notes.seen] == [(Arm.SUBJECT, Outcome.WEAK, 1)]


async def test_what_stands_in_under_the_new_plan_answers_before_the_ladder() -> None:
    _, answer = await asked_before(WITH_PREVIOUS, good())
    assert (answer.source, answer.release, answer.stage) == (Source.PREVIOUS, "r0", "degraded")


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(plan(epoch=2), id="the same again"),
        pytest.param(plan(Stage.CANARY, epoch=2, share=0.05), id="a smaller share"),
        pytest.param(
            replace(
                plan(Stage.SHADOW, epoch=2, share=0.0),
                subject=Colour.GREEN,
                stand_in=Colour.BLUE,
                releases={Colour.BLUE: "r1", Colour.GREEN: "r2"},
            ),
            id="it stands in for a new release",
        ),
    ],
)
async def test_a_model_that_goes_on_answering_callers_is_not_left(then: RoutingPlan) -> None:
    _, answer = await asked_before(then, good())
    assert (answer.release, answer.epoch) == ("r1", 1)
