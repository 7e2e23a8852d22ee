"""A call through a Serve handle: every way in which it can fail becomes a value that answering understands."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, cast

import numpy as np
import pytest
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle

from failsoft.errors import NotLoadedError, SaturatedError, ServingError
from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome
from failsoft.models.scores import ScoreBatch
from failsoft.serving.arms.handle_arm import HandleArm
from failsoft.serving.arms.replies import ModelReply
from failsoft.serving.quality.intents import IntentsAndEntities
from failsoft.serving.request import NoReading, Reading

pytestmark = pytest.mark.anyio


def reply(*logits: float, texts: int = 1) -> ModelReply:
    scores = ScoreBatch(
        intents=("play_music", "get_weather"),
        intent_logits_BC=np.asarray([logits] * texts, dtype=np.float32),
        spans=[[]] * texts,
        counts_B=np.ones(texts, dtype=np.int32),
        oov_fraction_B=np.zeros(texts, dtype=np.float32),
        left_out_B=np.zeros(texts, dtype=np.int32),
    )
    return ModelReply(scores=scores, measures={"temperature": 1.0}, release="r1", load_generation=1)


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

    def remote(self, texts: list[str] | None = None, within_s: float = 0.0) -> FakeResponse:
        return self.response if texts else FakeResponse(reply(0.0, 0.0))


def arm_over(handle: FakeHandle) -> HandleArm:
    return HandleArm(cast("DeploymentHandle[Any]", handle), IntentsAndEntities())


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
    assert (reading.output, reading.outcome) == ("play_music", Outcome.GOOD)


async def test_a_full_queue_is_shed_load_and_says_nothing_about_the_model() -> None:
    reading = await ask(BackPressureError(num_queued_requests=1, max_queued_requests=1))
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.SHED


@pytest.mark.parametrize("error", [RayActorError(), DeploymentUnavailableError.__new__(DeploymentUnavailableError)])
async def test_a_dead_or_absent_model_is_an_error_of_the_model(error: Exception) -> None:
    reading = await ask(error)
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.ERROR


async def test_what_a_model_says_when_it_fails_is_for_the_log_and_callers_hear_the_kind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may name a secret, or the text of another caller; half a character in it made the whole answer a 500."""
    told = ValueError("no way to postgres://user:hunter2@db: \ud83d")
    for error in (RayTaskError("predict", f"trace\nValueError: {told}", told).as_instanceof_cause(), told):
        caplog.clear()
        arm = await found(FakeHandle(error))
        first, second = await arm.ask("play some jazz"), await arm.ask("play some jazz")
        assert isinstance(first, NoReading)
        assert first == second
        assert (first.outcome, "ValueError" in first.why, "hunter2" in first.why) == (Outcome.ERROR, True, False)
        (record,) = caplog.records
        assert record.getMessage().endswith("hunter2@db: \ufffd")


async def test_a_call_that_is_given_up_is_cancelled_at_the_model_too() -> None:
    handle = FakeHandle(None)
    arm = await found(handle)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await arm.ask("play some jazz")
    for _ in range(3):  # the text, the call that carried it, and what the call waits for
        await asyncio.sleep(0)
    assert handle.response.cancelled


async def test_a_model_that_is_still_starting_is_not_waited_for_and_not_blamed() -> None:
    reading = await arm_over(FakeHandle(None)).ask("play some jazz")
    assert isinstance(reading, NoReading)
    assert (reading.outcome, reading.why) == (Outcome.SHED, "the model is still starting")


async def test_whatever_ends_the_warm_up_the_model_is_asked_from_then_on() -> None:
    class Broken(FakeHandle):
        def remote(self, texts: list[str] | None = None, within_s: float = 0.0) -> FakeResponse:
            return self.response if texts else FakeResponse(RuntimeError("the router is gone"))

    arm = arm_over(Broken(reply(9.0, 0.0)))
    with pytest.raises(RuntimeError):
        await arm.warm_up(within_s=1.0)
    assert isinstance(await arm.ask("play some jazz"), Reading)


async def test_a_handle_that_can_not_even_send_is_an_error_of_the_model() -> None:
    class Shut(FakeHandle):
        def remote(self, texts: list[str] | None = None, within_s: float = 0.0) -> FakeResponse:
            if texts:
                raise RayServeException("the handle is shut down")
            return super().remote(texts)

    reading = await (await found(Shut(None))).ask("play some jazz")
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.ERROR


class Answering(FakeHandle):
    """A model that answers texts, but raises over some."""

    def __init__(self, **errors: Exception) -> None:
        super().__init__(None)
        self.errors = errors
        self.calls: list[list[str]] = []
        self.within_s: list[float] = []

    def remote(self, texts: list[str] | None = None, within_s: float = 0.0) -> FakeResponse:
        if not texts:
            return FakeResponse(reply(0.0, 0.0))
        self.calls.append(list(texts))
        self.within_s.append(within_s)
        raised = [self.errors[text] for text in texts if text in self.errors]
        return FakeResponse(raised[0] if raised else reply(9.0, 0.0, texts=len(texts)))


async def ask_all(handle: FakeHandle, *texts: str) -> list[Outcome]:
    arm = await found(handle)
    return [reading.outcome for reading in await asyncio.gather(*map(arm.ask, texts))]


async def test_texts_of_the_same_moment_are_one_call() -> None:
    handle = Answering()
    assert await ask_all(handle, "a", "b", "c") == [Outcome.GOOD] * 3
    assert handle.calls == [["a", "b", "c"]]


async def test_a_text_that_the_model_raises_over_costs_only_its_own_answer() -> None:
    handle = Answering(poison=RayTaskError("predict", "...", ValueError("odd text")).as_instanceof_cause())
    assert await ask_all(handle, "a", "poison", "c") == [Outcome.GOOD, Outcome.ERROR, Outcome.GOOD]


@pytest.mark.parametrize(
    "error",
    [RayActorError(), RayTaskError("predict", "...", ServingError("nothing is loaded")).as_instanceof_cause()],
)
async def test_a_model_that_is_gone_or_empty_is_not_asked_the_same_again(error: Exception) -> None:
    handle = Answering(b=error)
    assert await ask_all(handle, "a", "b", "c") == [Outcome.ERROR] * 3
    assert len(handle.calls) == 1


async def test_texts_beyond_the_arms_own_bound_are_shed_without_a_call() -> None:
    """R5: shed load is answered by the fallback, and is no bad quality."""
    handle = Answering()
    arm = HandleArm(cast("DeploymentHandle[Any]", handle), IntentsAndEntities(), max_held=2)
    await arm.warm_up(within_s=1.0)
    readings = await asyncio.gather(*(arm.ask(text) for text in "abcd"))
    assert [reading.outcome for reading in readings] == [Outcome.GOOD, Outcome.GOOD, Outcome.SHED, Outcome.SHED]
    assert "queue is full" in readings[3].why
    assert (handle.calls, arm.held) == ([["a", "b"]], 0)


@pytest.mark.parametrize("garbage", ["an answer", 7, {"scores": None}])
async def test_a_reply_that_is_none_is_an_error_of_the_model_and_never_of_the_caller(garbage: object) -> None:
    reading = await ask(cast("ModelReply", garbage))
    assert reading.outcome is Outcome.ERROR
    assert "can't be read" in reading.why


async def test_a_release_that_is_still_being_read_is_no_fault_of_the_model() -> None:
    still_reading = RayTaskError("predict", "trace", NotLoadedError("blue is reading")).as_instanceof_cause()
    reading = await ask(still_reading)
    assert isinstance(reading, NoReading)
    assert reading.outcome is Outcome.SHED
    assert "could not begin" in reading.why


async def test_a_call_says_how_long_the_most_patient_of_its_callers_waits() -> None:
    handle, clock = Answering(), ManualClock(monotonic_s=100.0)
    arm = HandleArm(cast("DeploymentHandle[Any]", handle), IntentsAndEntities(), clock=clock)
    await arm.warm_up(within_s=1.0)
    await asyncio.gather(arm.ask("a", within_s=0.2), arm.ask("b", within_s=0.25))
    assert (handle.calls, handle.within_s) == ([["a", "b"]], [0.25])


async def test_a_call_that_came_to_its_turn_when_its_callers_had_left_is_shed_load() -> None:
    reading = await ask(RayTaskError("predict", "...", SaturatedError("its callers had left")).as_instanceof_cause())
    assert reading.outcome is Outcome.SHED


async def test_an_item_that_cannot_be_weighed_is_asked_alone_and_holds_up_nobody() -> None:
    """It stayed at the head of the line: every call after it failed before it was made, and the model was lost."""

    def weigh(text: str) -> int:
        if text == "odd":
            raise TypeError("no length")
        return len(text)

    handle = Answering()
    arm = HandleArm(cast("DeploymentHandle[Any]", handle), IntentsAndEntities(), weigh=weigh)
    await arm.warm_up(within_s=1.0)
    async with asyncio.timeout(1.0):
        readings = await asyncio.gather(*(arm.ask(text) for text in ("play", "odd", "stop")))
    assert all(isinstance(reading, Reading) for reading in readings)
    assert ["odd"] in handle.calls
