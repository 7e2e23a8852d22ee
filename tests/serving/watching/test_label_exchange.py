"""A label that comes to the wrong gateway finds the right one by way of the controller, also when that is away."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from failsoft.errors import ServingError
from failsoft.health.clock import ManualClock
from failsoft.serving.watching.answer_memory import answer_key
from failsoft.serving.watching.label_exchange import NOWHERE, LabelExchange, LabelPost, Place
from failsoft.serving.watching.late_labels import MAX_WAITING, Told
from tests.serving.watching.test_late_labels import Gateway

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class PostHere:
    """The controller's post, in this process; it can be away."""

    def __init__(self) -> None:
        self.post = LabelPost(ManualClock())
        self.away = False

    async def hand_on(self, labels: Sequence[Told]) -> None:
        if self.away:
            raise ServingError("no controller")
        self.post.put([tuple(told) for told in labels])

    async def wait_labels(self, place: Place, timeout_s: float) -> tuple[Place, list[Told]]:
        place, labels = await self.post.after(place, timeout_s)
        return place, [Told(*told) for told in labels]


@asynccontextmanager
async def exchanging(gateways: Sequence[Gateway], office: PostHere) -> AsyncIterator[list[LabelExchange]]:
    exchanges = [LabelExchange(gateway.labels, office) for gateway in gateways]
    tasks = [asyncio.create_task(duty) for one in exchanges for duty in (one.send(), one.listen())]
    try:
        yield exchanges
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("not within 5 s")


def wrong(count: int) -> list[Told]:
    return [Told(answer_key(f"q{number}", 0), "stop") for number in range(count)]


async def test_labels_that_another_gateway_takes_trip_the_one_that_gave_the_answers_and_count_once() -> None:
    home, other = Gateway(), Gateway()
    for number in range(40):
        home.gave(f"q{number}")
    async with exchanging([home, other], PostHere()) as (_, elsewhere):
        assert elsewhere.take(wrong(40)) == {"handed_on": 40}
        assert elsewhere.take(wrong(40)) == {"handed_on": 40}
        await until(lambda: home.labels.status().get("repeated") == 40)
    assert len(home.trips) == 1
    assert other.trips == []
    assert home.batch().labelled == 40
    assert "counted" not in other.labels.status()


async def test_what_can_not_be_handed_on_waits_for_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("failsoft.serving.watching.label_exchange._RETRY_S", 0.02)
    home, other, office = Gateway(), Gateway(), PostHere()
    home.gave("q0")
    office.away = True
    async with exchanging([home, other], office) as (_, elsewhere):
        elsewhere.take(wrong(1))
        await asyncio.sleep(0.1)
        assert other.labels.status()["waiting"] == 1
        office.away = False
        await until(lambda: home.labels.status().get("counted") == 1)


class SlowPost(PostHere):
    """A controller that goes away while it is told something; more labels come meanwhile."""

    def __init__(self, more: Callable[[], object]) -> None:
        super().__init__()
        self.tried = asyncio.Event()
        self._more = more

    async def hand_on(self, labels: Sequence[Told]) -> None:
        assert labels
        if not self.tried.is_set():
            self._more()
        self.tried.set()
        raise ServingError("it went away")


async def test_what_could_not_be_handed_on_makes_room_for_what_came_since() -> None:
    other = Gateway()
    new = [Told(number, "new") for number in range(10)]
    office = SlowPost(lambda: other.labels.take(new))
    async with exchanging([other], office) as (exchange,):
        exchange.take([Told(number, "old") for number in range(MAX_WAITING)])
        await office.tried.wait()
    waiting = list(other.labels.waiting)
    assert (len(waiting), waiting[-10:], waiting[0].key) == (MAX_WAITING, new, 10)


class PicklingPost(PostHere):
    """What is handed on crosses to another process."""

    async def hand_on(self, labels: Sequence[Told]) -> None:
        await super().hand_on(pickle.loads(pickle.dumps(list(labels))))  # noqa: S301 -- just made here


async def test_no_label_ends_the_duty_to_hand_on() -> None:
    home, other = Gateway(), Gateway()
    home.gave("q0")
    deep: list[object] = []
    for _ in range(499):
        deep = [deep]
    async with exchanging([home, other], PicklingPost()) as (_, elsewhere):
        assert elsewhere.take([Told(answer_key("q0", 0), deep)]) == {"not_compared": 1}
        elsewhere.take(wrong(1))
        await until(lambda: home.labels.status().get("counted") == 1)


async def test_a_post_forgets_what_is_old_and_starts_anew_without_losing_its_readers() -> None:
    clock = ManualClock()
    post = LabelPost(clock, max_labels=3, max_age_s=10.0)
    post.put([(1, "a"), (2, "b")])
    place, labels = await post.after(NOWHERE, 0.0)
    assert labels == [(1, "a"), (2, "b")]
    assert await post.after(place, 0.0) == (place, [])
    clock.advance(11.0)
    post.put([(3, "c")])
    assert (await post.after(NOWHERE, 0.0))[1] == [(3, "c")]
    assert (await post.after(place, 0.0))[1] == [(3, "c")]
    anew = LabelPost(clock)
    anew.put([(4, "d")])
    assert (await anew.after(place, 0.0))[1] == [(4, "d")]


async def test_a_great_many_labels_travel_in_pieces_and_none_is_missed() -> None:
    post = LabelPost(ManualClock())
    post.put([(number, "a") for number in range(2500)])
    place, seen = NOWHERE, list[int]()
    while len(seen) < 2500:
        place, labels = await post.after(place, 0.0)
        assert 0 < len(labels) <= 1000
        seen += [key for key, _ in labels]
    assert seen == list(range(2500))
