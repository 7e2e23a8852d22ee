"""What waits for storage that hangs is bounded; what was given before is done in order, whoever still waits for it."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from failsoft.errors import ConfigError, PlanStoreError
from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm
from failsoft.serving.rollout import desk as module
from failsoft.serving.rollout.desk import Desk, Inbox
from failsoft.serving.rollout.evidence import OutcomeBatch

pytestmark = pytest.mark.anyio


async def given(desk: Desk, count: int, done: list[int], back: threading.Event) -> list[asyncio.Task[None]]:
    """Works that wait for storage, each noted when it is done."""

    def work(number: int) -> None:
        assert back.wait(30.0)
        done.append(number)

    tasks = [asyncio.create_task(desk.do(partial(work, number))) for number in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_more_than_so_many_things_are_turned_away_in_words_and_those_before_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    desk, done, back = Desk(ManualClock()), list[int](), threading.Event()
    tasks = await given(desk, 5, done, back)
    outcomes = await asyncio.gather(*tasks[3:], return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PlanStoreError] * 2
    assert (desk.waiting, "nothing was changed" in str(outcomes[0])) == (3, True)
    back.set()
    await asyncio.gather(*tasks[:3])
    assert (done, desk.waiting) == ([0, 1, 2], 0)
    desk.close()


async def test_a_duty_of_its_own_is_always_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 1)
    desk, done, back = Desk(ManualClock()), list[int](), threading.Event()
    await given(desk, 1, done, back)
    turn = asyncio.create_task(desk.do(partial(done.append, 7), own=True))
    await asyncio.sleep(0)
    back.set()
    await turn
    assert done == [0, 7]
    desk.close()


async def test_whoever_stops_waiting_stops_nothing_and_what_was_not_begun_still_counts() -> None:
    desk, done, back = Desk(ManualClock()), list[int](), threading.Event()
    tasks = await given(desk, 3, done, back)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert desk.waiting == 3
    back.set()
    await desk.do(partial(done.append, 3))
    assert done == [0, 1, 2, 3]
    desk.close()


async def test_it_says_for_how_long_storage_has_not_answered() -> None:
    clock, begun, back = ManualClock(), threading.Event(), threading.Event()
    desk = Desk(clock)

    def work() -> None:
        begun.set()
        assert back.wait(30.0)

    task = asyncio.create_task(desk.do(work))
    await asyncio.to_thread(begun.wait)
    assert desk.hangs(1.0) is None
    clock.advance(61.0)
    assert str(desk.hangs(1.0)).startswith("storage has not answered for 61 s")
    back.set()
    await task
    assert desk.hangs(1.0) is None
    desk.close()


async def test_what_a_work_raises_is_raised_where_it_is_waited_for() -> None:
    def work() -> None:
        raise ConfigError("no")

    desk = Desk(ManualClock())
    with pytest.raises(ConfigError):
        await desk.do(work)
    assert desk.waiting == 0
    desk.close()


def batch(gateway: str, sequence: int) -> OutcomeBatch:
    outcomes = {Outcome.GOOD: sequence}
    return OutcomeBatch(gateway=gateway, sequence=sequence, epoch=1, arm=Arm.SUBJECT, mirrored=False, outcomes=outcomes)


def unheard(kind: str, why: str, **data: Any) -> None:
    raise AssertionError(f"{kind}: {why} {data}")


UNREADABLE: dict[str, Any] = {
    "half a count": {"outcomes": {"good": 1.5}},
    "an outcome of another version": {"outcomes": {"splendid": 1}},
    "an arm of another version": {"arm": "third"},
    "a name that is none": {"gateway": 7},
    "nothing at all": None,
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_batch_that_can_not_be_read_holds_up_no_other_one_and_is_told(kind: str) -> None:
    told = list[tuple[str, str, dict[str, Any]]]()
    inbox = Inbox(lambda what, why, **data: told.append((what, why, data)))
    odd: Any = UNREADABLE[kind] and batch("g1", 1).as_json() | UNREADABLE[kind]
    inbox.put([odd, batch("g1", 2).as_json()])
    inbox.put([odd])
    inbox.put([batch("g2", 1).as_json(), odd])
    assert sorted((one.gateway, one.sequence) for one in inbox.take()) == [("g1", 2), ("g2", 1)]
    assert [(what, data) for what, _why, data in told] == [("report_unreadable", {"count": 3})]
    assert "batch" in told[0][1]


def test_many_that_can_not_be_read_are_told_of_ever_more_seldom() -> None:
    counts = list[int]()
    inbox = Inbox(lambda _what, _why, **data: counts.append(data["count"]))
    for _ in range(100):
        inbox.put([{}])
        assert list(inbox.take()) == []
    assert counts == [1, 2, 4, 8, 16, 32, 64]


def test_of_each_gateway_the_newest_report_waits_which_holds_those_before() -> None:
    inbox = Inbox(unheard)
    for last in (1, 2, 3):
        inbox.put([batch("g1", sequence).as_json() for sequence in range(1, last + 1)])
    inbox.put([batch("g2", 1).as_json()])
    inbox.put([batch("g1", 1).as_json(), batch("g1", 2).as_json()])  # sent before, and came later
    inbox.put([])
    taken = sorted((one.gateway, one.sequence) for one in inbox.take())
    assert taken == [("g1", 1), ("g1", 2), ("g1", 3), ("g2", 1)]
    assert list(inbox.take()) == []


def test_where_one_report_can_not_be_counted_those_of_others_wait_on() -> None:
    inbox = Inbox(unheard)
    for gateway in ("g1", "g2", "g3"):
        inbox.put([batch(gateway, 1).as_json()])
    next(inbox.take())  # and whoever takes it stumbles
    assert len(list(inbox.take())) == 2
