"""Copies reach the subject one by one, or are counted; the live path never notices."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from failsoft.errors import ConfigError
from failsoft.serving.arms.mirror import MirrorQueue, NotMirrored

pytestmark = pytest.mark.anyio


async def consume(queue: MirrorQueue[str], sent: list[str], *, fails_on: str = "") -> None:
    """Run the consumer until the queue is empty."""

    async def send(item: str) -> None:
        await asyncio.sleep(0)
        if item == fails_on:
            raise ConnectionError("the subject is gone")
        sent.append(item)

    consumer = asyncio.create_task(queue.run(send))
    for _ in range(50):
        await asyncio.sleep(0)
    consumer.cancel()
    with suppress(asyncio.CancelledError):
        await consumer


async def test_copies_are_sent_in_order() -> None:
    queue: MirrorQueue[str] = MirrorQueue(4)
    assert [queue.offer(item) for item in "abc"] == [True, True, True]
    sent: list[str] = []
    await consume(queue, sent)
    assert (sent, queue.sent, queue.waiting, queue.dropped) == (["a", "b", "c"], 3, 0, {})


async def test_copies_beyond_the_queue_are_dropped_counted_and_never_raise() -> None:
    """C18: a subject that is a hundred times slower costs copies, not live requests."""
    queue: MirrorQueue[str] = MirrorQueue(2)
    assert [queue.offer(item) for item in "abcde"] == [True, True, False, False, False]
    assert queue.dropped == {NotMirrored.FULL: 3}
    assert queue.waiting == 2


async def test_a_copy_of_any_size_is_mirrored() -> None:
    """C17: large ones were silently left out elsewhere, which biased the sample."""
    queue: MirrorQueue[str] = MirrorQueue(2)
    assert all(queue.offer("x" * size) for size in (1, 5_000_000))


async def test_a_copy_that_fails_is_counted_and_the_next_one_is_sent() -> None:
    queue: MirrorQueue[str] = MirrorQueue(4)
    for item in "abc":
        queue.offer(item)
    sent: list[str] = []
    await consume(queue, sent, fails_on="b")
    assert sent == ["a", "c"]
    assert queue.dropped == {NotMirrored.FAILED: 1}
    assert queue.last_error == "ConnectionError", "what it says may quote the copy"


async def test_one_copy_is_under_way_at_a_time() -> None:
    queue: MirrorQueue[str] = MirrorQueue(8)
    under_way, most = 0, 0

    async def send(_item: str) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    consumer = asyncio.create_task(queue.run(send))
    for _ in range(8):
        queue.offer("x")
    for _ in range(40):
        await asyncio.sleep(0)
    consumer.cancel()
    assert (most, queue.sent) == (1, 8)


async def test_cancelling_the_consumer_ends_it() -> None:
    queue: MirrorQueue[str] = MirrorQueue(1)
    consumer = asyncio.create_task(queue.run(lambda _item: asyncio.sleep(3600)))
    queue.offer("x")
    await asyncio.sleep(0)
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer


def test_a_queue_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="size is 0"):
        MirrorQueue[str](0)
