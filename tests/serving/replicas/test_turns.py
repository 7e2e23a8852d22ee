"""Who computes a model's calls: a thread, unless they have shown to be short. Made-up time, real threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from failsoft.health.clock import ManualClock
from failsoft.serving.replicas.turns import PROVEN, QUICK_MS, ModelTurns

pytestmark = pytest.mark.anyio


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=1) as made:
        yield made


class Model:
    """Says in which thread it was called; its calls take made-up time."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self.clock = ManualClock()
        self.turns = ModelTurns(thread, self.clock)
        self.here: list[bool] = []

    def call(self, took_ms: float, *, raises: bool = False) -> Callable[[], tuple[str, float]]:
        def timed() -> tuple[str, float]:
            self.here.append(threading.current_thread() is threading.main_thread())
            self.clock.advance(took_ms / 1000)
            if raises:
                raise OSError("inside the model")
            return "scores", took_ms

        return timed

    async def ask(self, took_ms: float, *, times: int = 1, only_computes: bool = True) -> None:
        for _ in range(times):
            assert await self.turns.score(self.call(took_ms), only_computes=only_computes) == ("scores", took_ms)


async def test_a_model_that_has_shown_to_be_quick_is_called_without_a_hop(thread: ThreadPoolExecutor) -> None:
    model = Model(thread)
    await model.ask(QUICK_MS, times=PROVEN + 3)
    assert model.here == [False] * PROVEN + [True] * 3


@pytest.mark.parametrize(
    ("took_ms", "only_computes"),
    [
        pytest.param(QUICK_MS + 0.1, True, id="too long"),
        pytest.param(float("nan"), True, id="nobody knows how long"),
        pytest.param(1.0, False, id="it may wait for something"),
    ],
)
async def test_any_other_model_keeps_to_its_thread(
    thread: ThreadPoolExecutor, took_ms: float, only_computes: bool
) -> None:
    model = Model(thread)
    for _ in range(2 * PROVEN):
        call = model.call(0.0)
        await model.turns.score(lambda call=call: (call()[0], took_ms), only_computes=only_computes)  # type: ignore[misc]
    assert model.here == [False] * 2 * PROVEN


async def test_one_long_call_or_a_raise_sends_it_back_to_the_thread(thread: ThreadPoolExecutor) -> None:
    model = Model(thread)
    await model.ask(1.0, times=PROVEN)
    await model.ask(QUICK_MS + 1.0)
    await model.ask(1.0, times=PROVEN)
    with pytest.raises(OSError, match="inside the model"):
        await model.turns.score(model.call(1.0, raises=True), only_computes=True)
    await model.ask(1.0)
    assert model.here == [False] * PROVEN + [True] + [False] * PROVEN + [True] + [False]


async def test_a_model_that_is_slow_now_and_then_holds_its_replica_up_ever_more_seldom(
    thread: ThreadPoolExecutor,
) -> None:
    model = Model(thread)
    held_up = 0
    for _ in range(40):
        await model.ask(1.0, times=2 * PROVEN)
        await model.ask(80.0)
        held_up += model.here[-1]
    assert held_up == 2, "once after 20 quick ones, once after 40; 80 in a row it never had"
    await model.ask(1.0, times=4 * PROVEN + 1)
    assert model.here[-1], "a model that has been mended is trusted again"


async def test_while_a_call_is_in_the_thread_none_is_made_beside_it(thread: ThreadPoolExecutor) -> None:
    model = Model(thread)
    await model.ask(1.0, times=PROVEN)
    held, inside = threading.Event(), threading.Event()

    def long() -> tuple[str, float]:
        inside.set()
        held.wait(10.0)
        return "scores", 1.0

    first = asyncio.create_task(model.turns.score(long, only_computes=False))
    await asyncio.to_thread(inside.wait, 10.0)
    second = asyncio.create_task(model.turns.score(model.call(1.0), only_computes=True))
    await asyncio.sleep(0)
    assert model.here == [False] * PROVEN
    held.set()
    await asyncio.gather(first, second)
    assert model.here == [False] * PROVEN + [False]


async def test_what_came_in_while_the_replica_was_held_up_is_as_old_as_that(thread: ThreadPoolExecutor) -> None:
    model = Model(thread)
    await model.ask(1.0, times=PROVEN)
    began_s = model.clock.monotonic_s()
    assert model.turns.came_s() == began_s
    await model.ask(2_000.0)
    assert model.turns.came_s() == began_s, "it may have stood before the door for two seconds"
    model.clock.advance(0.06)
    assert model.turns.came_s() == model.clock.monotonic_s()
