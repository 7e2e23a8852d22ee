"""A call through a Serve handle: every way in which it can fail becomes a value that answering understands."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, cast

import numpy as np
import pytest
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle

from failsoft.health.window import Outcome
from failsoft.models.scores import ScoreBatch
from failsoft.serving.defence import QualityPolicy
from failsoft.serving.gateway import HandleArm
from failsoft.serving.replies import ModelReply
from failsoft.serving.request import NoReading, Reading

pytestmark = pytest.mark.anyio


def reply(*logits: float) -> ModelReply:
    scores = ScoreBatch(
        intents=("play_music", "get_weather"),
        intent_logits_BC=np.asarray([logits], dtype=np.float32),
        spans=[[]],
        counts_B=np.ones(1, dtype=np.int32),
        oov_fraction_B=np.zeros(1, dtype=np.float32),
        left_out_B=np.zeros(1, dtype=np.int32),
    )
    return ModelReply(scores=scores, temperature=1.0, release="r1", load_generation=1)


class FakeResponse:
    """Awaits like a DeploymentResponse: an answer, an error, or for ever."""

    def __init__(self, outcome: ModelReply | Exception | None) -> None:
        self._outcome = outcome
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __await__(self) -> Generator[Any, None, ModelReply]:
        if self._outcome is None:
            yield from asyncio.sleep(60.0).__await__()
        if isinstance(self._outcome, Exception):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class FakeHandle:
    """A deployment handle with the one method that a gateway calls."""

    def __init__(self, outcome: ModelReply | Exception | None) -> None:
        self.response = FakeResponse(outcome)
        self.predict = self.describe = self
        self.deployment_name = "blue"

    def remote(self, texts: list[str] | None = None) -> FakeResponse:
        return self.response if texts else FakeResponse(reply(0.0, 0.0))


def arm_over(handle: FakeHandle) -> HandleArm:
    return HandleArm(cast("DeploymentHandle[Any]", handle), QualityPolicy())


async def found(handle: FakeHandle) -> HandleArm:
    arm = arm_over(handle)
    await arm.warm_up(within_s=1.0)
    return arm


async def ask(outcome: ModelReply | Exception | None) -> Reading | NoReading:
    arm = await found(FakeHandle(outcome))
    return await arm.ask("play some jazz")


async def test_a_reply_is_judged_by_the_gateway() -> None:
    reading = await ask(reply(9.0, 0.0))
    assert isinstance(reading, Reading)
    assert (reading.intent, reading.outcome) == ("play_music", Outcome.GOOD)


async def test_a_full_queue_is_shed_load_and_says_nothing_about_the_model() -> None:
    reading = await ask(BackPressureError(num_queued_requests=1, max_queued_requests=1))
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.SHED


@pytest.mark.parametrize("error", [RayActorError(), DeploymentUnavailableError.__new__(DeploymentUnavailableError)])
async def test_a_dead_or_absent_model_is_an_error_of_the_model(error: Exception) -> None:
    reading = await ask(error)
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.ERROR


async def test_a_call_that_is_given_up_is_cancelled_at_the_model_too() -> None:
    handle = FakeHandle(None)
    arm = await found(handle)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await arm.ask("play some jazz")
    assert handle.response.cancelled


async def test_a_model_that_is_still_starting_is_not_waited_for_and_not_blamed() -> None:
    reading = await arm_over(FakeHandle(None)).ask("play some jazz")
    assert isinstance(reading, NoReading)
    assert (reading.outcome, reading.why) == (Outcome.SHED, "the model is still starting")


async def test_whatever_ends_the_warm_up_the_model_is_asked_from_then_on() -> None:
    class Broken(FakeHandle):
        def remote(self, texts: list[str] | None = None) -> FakeResponse:
            return self.response if texts else FakeResponse(RuntimeError("the router is gone"))

    arm = arm_over(Broken(reply(9.0, 0.0)))
    with pytest.raises(RuntimeError):
        await arm.warm_up(within_s=1.0)
    assert isinstance(await arm.ask("play some jazz"), Reading)


async def test_a_handle_that_can_not_even_send_is_an_error_of_the_model() -> None:
    class Shut(FakeHandle):
        def remote(self, texts: list[str] | None = None) -> FakeResponse:
            if texts:
                raise RayServeException("the handle is shut down")
            return super().remote(texts)

    reading = await (await found(Shut(None))).ask("play some jazz")
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.ERROR
