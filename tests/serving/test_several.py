"""Many texts in one request: all are answered in time, and none of them is held against a healthy model."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import pytest

from failsoft.health.clock import SystemClock
from failsoft.health.window import Outcome
from failsoft.serving.config import GatewayConfig
from failsoft.serving.intake.sanitizer import TextPolicy
from failsoft.serving.intents import INTENTS
from failsoft.serving.plan.plan import Colour
from failsoft.serving.request import Answerer, Reading, Situation
from failsoft.serving.several import AT_ONCE, answer_all
from failsoft.serving.web.messages import Answer, PredictRequest, Source
from tests.serving.fakes import Notes, good, ladder, plan

pytestmark = pytest.mark.anyio


class OneAtATime:
    """A healthy model: one thread, so that texts which are asked together wait for each other."""

    def __init__(self, *, takes_s: float) -> None:
        self._takes_s, self._turn = takes_s, asyncio.Lock()
        self.inside = self.most_inside = 0

    async def ask(self, text: str, *, within_s: float = math.inf) -> Reading:
        """A good answer, after the others that were there before."""
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            async with self._turn:
                await asyncio.sleep(self._takes_s if text else 0.0)
            return good()
        finally:
            self.inside -= 1


async def ask(model: OneAtATime, notes: Notes, texts: list[str], *, deadline_ms: float) -> list[Answer]:
    clock = SystemClock()
    answerer = Answerer(
        situation=lambda: Situation(
            plan=plan(), text_policy=TextPolicy(), subject_policy=TextPolicy(), ladder=ladder()
        ),
        models={Colour.BLUE: model},
        journal=notes,
        clock=clock,
        config=GatewayConfig(deadline_ms=deadline_ms),
        task=INTENTS,
    )
    return await answer_all(answerer, PredictRequest(texts=texts), request_id="q1", clock=clock)


async def test_a_full_request_of_short_texts_is_answered_by_the_model_and_does_not_fill_its_queue() -> None:
    model, notes = OneAtATime(takes_s=0.001), Notes()
    answers = await ask(model, notes, [f"play {row}" for row in range(64)], deadline_ms=20_000.0)
    assert [answer.source for answer in answers] == [Source.PRIMARY] * 64
    assert model.most_inside == AT_ONCE


async def test_texts_that_take_the_model_longer_than_the_request_has_are_not_held_against_it() -> None:
    model, notes = OneAtATime(takes_s=0.08), Notes()
    answers = await ask(model, notes, ["play it"] * 18, deadline_ms=1_000.0)
    outcomes = Counter(seen.outcome for seen in notes.seen)
    assert outcomes[Outcome.LATE] == 0
    assert outcomes[Outcome.GOOD] >= AT_ONCE
    assert outcomes[Outcome.SHED] >= 5
    assert max(answer.latency_ms for answer in answers) < 2_000.0


async def test_a_model_that_hangs_is_late_for_the_texts_that_it_was_asked_in_time() -> None:
    model, notes = OneAtATime(takes_s=30.0), Notes()
    await ask(model, notes, ["play it"] * 18, deadline_ms=100.0)
    outcomes = Counter(seen.outcome for seen in notes.seen)
    assert outcomes == {Outcome.LATE: AT_ONCE, Outcome.SHED: 18 - AT_ONCE}
