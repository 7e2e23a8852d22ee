"""The previous release, where it is warm: asked before any other rung, never twice, and never held up by."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from failsoft.health.window import Outcome
from failsoft.serving.arms.readings import NoReading, Reading
from failsoft.serving.plan.plan import Arm, Colour, Stage
from failsoft.serving.web.messages import Source
from tests.serving.counter import Counter
from tests.serving.fakes import good, plan, weak
from tests.serving.virtual_time import run_virtually

pytestmark = pytest.mark.anyio


def with_previous(*, deadline_ms: float = 250.0) -> Counter:
    """The subject serves, and the release before it is still warm."""
    counter = Counter(plan(stand_in=Colour.GREEN), deadline_ms=deadline_ms)
    counter.green.answer = good("r0")
    return counter


@pytest.mark.parametrize("answer", [weak(), NoReading(outcome=Outcome.ERROR, why="the model failed")])
async def test_what_the_subject_can_not_answer_the_previous_release_is_asked_before_any_other_rung(
    answer: Reading | NoReading,
) -> None:
    counter = with_previous()
    counter.blue.answer = answer
    given = await counter.ask()
    assert (given.source, given.release, given.degrade_reason) == (Source.PREVIOUS, "r0", answer.why)
    assert counter.noted == [(Arm.SUBJECT, answer.outcome), (Arm.STAND_IN, Outcome.GOOD)]
    assert [seen.rescue for seen in counter.notes.seen] == [False, True]


def test_a_subject_that_hangs_leaves_the_previous_release_time_to_answer() -> None:
    counter = with_previous(deadline_ms=100.0)
    counter.blue.takes_s = 30.0
    answer = run_virtually(counter.clock, counter.ask())
    assert (answer.source, counter.noted[0]) == (Source.PREVIOUS, (Arm.SUBJECT, Outcome.LATE))
    assert answer.latency_ms <= 90.0


@pytest.mark.parametrize(
    "answer", [weak(), NoReading(outcome=Outcome.ERROR, why="gone"), good("another release than the plan wants")]
)
async def test_a_previous_release_that_will_not_do_leaves_it_to_the_ladder_and_nobody_is_asked_twice(
    answer: Reading | NoReading,
) -> None:
    counter = with_previous()
    counter.blue.answer, counter.green.answer = weak(), answer
    given = await counter.ask()
    assert (given.source, given.degrade_reason) == (Source.RULES, weak().why)
    assert (len(counter.blue.asked), len(counter.green.asked)) == (1, 1)


async def test_a_stand_in_that_fails_never_sends_its_callers_to_the_subject() -> None:
    counter = Counter(plan(Stage.CANARY, share=0.0, stand_in=Colour.GREEN))
    counter.green.answer = NoReading(outcome=Outcome.ERROR, why="gone")
    assert (await counter.ask()).source is Source.RULES
    assert counter.blue.asked == []


async def test_load_that_one_model_sheds_is_not_put_upon_the_next() -> None:
    counter = with_previous()
    counter.blue.answer = NoReading(outcome=Outcome.SHED, why="queue is full")
    assert (await counter.ask()).source is Source.RULES
    assert counter.green.asked == []


async def test_a_stand_in_that_fails_in_a_row_rests_and_costs_nobody_time_any_more() -> None:
    counter = Counter(plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN))
    counter.green.answer = NoReading(outcome=Outcome.ERROR, why="gone")
    answers = [await counter.ask() for _ in range(8)]
    assert len(counter.green.asked) == 5
    assert answers[7].degrade_reason == "the stand-in rests: 5 failures in a row, the last: gone"
    assert counter.noted[5:] == [(Arm.STAND_IN, Outcome.SHED)] * 3
    assert counter.answerer.resting() == {Colour.GREEN: "5 failures in a row, the last: gone"}


async def test_a_stand_in_that_is_loaded_anew_starts_with_a_clean_slate() -> None:
    counter = Counter(plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN))
    counter.green.answer = NoReading(outcome=Outcome.ERROR, why="gone")
    for _ in range(6):
        await counter.ask()
    counter.plan = replace(counter.plan, load_generation={Colour.BLUE: 1, Colour.GREEN: 2})
    await counter.ask()
    assert len(counter.green.asked) == 6


async def test_a_weak_text_after_another_does_not_make_a_good_stand_in_rest() -> None:
    counter = with_previous()
    counter.blue.answer = counter.green.answer = weak()
    for _ in range(20):
        await counter.ask()
    assert len(counter.green.asked) == 20


async def test_while_degraded_the_previous_release_says_why_it_answers() -> None:
    counter = Counter(plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN))
    counter.green.answer = good("r0")
    assert (await counter.ask()).degrade_reason == "degraded: as planned"


async def test_when_every_model_fails_everybody_is_answered() -> None:
    """B13: the last limit is passed and nobody is left, except the fallback."""
    counter = with_previous()
    counter.blue.answer = counter.green.answer = NoReading(outcome=Outcome.ERROR, why="gone")
    answers = await asyncio.gather(*(counter.ask(key=f"caller {number}") for number in range(200)))
    assert {answer.source for answer in answers} == {Source.RULES}
    assert all(answer.intent and answer.degrade_reason == "gone" for answer in answers)


async def test_of_a_crowd_after_the_rest_one_request_tries_the_stand_in_and_its_failure_costs_nobody_else() -> None:
    """B4: half-open lets the flood through."""
    counter = Counter(plan(Stage.DEGRADED, share=0.0, stand_in=Colour.GREEN))
    counter.green.answer = NoReading(outcome=Outcome.ERROR, why="gone")
    for _ in range(6):
        await counter.ask()
    counter.clock.advance(2.0)
    counter.green.asked.clear()
    answers = await asyncio.gather(*(counter.ask(key=f"caller {number}") for number in range(200)))
    assert len(counter.green.asked) == 1
    assert {answer.source for answer in answers} == {Source.RULES}
