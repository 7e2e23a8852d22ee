"""Several texts of one request: under one deadline, and a few at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from failsoft.health.clock import Clock
from failsoft.serving.request import Answerer
from failsoft.serving.visit import Waits
from failsoft.serving.web.messages import Answer, Ask

AT_ONCE = 4
"""Texts of one request that the model is asked at the same time. All at once they would fill its queue, so that most
were shed, and long ones would wait for each other until a healthy model looked late."""


async def answer_all(answerer: Answerer, request: Ask, *, request_id: str, clock: Clock) -> list[Answer]:
    """One answer for each item, in order. Items that the model has no time for any more are answered by the ladder."""
    waits = Waits(clock.monotonic_s(), request.timeout_ms)
    if not request.is_several:  # the ordinary case: no task and no turns for it
        key = request.key or f"{request_id}/0"
        (item,) = request.items
        return [
            await answerer.answer(
                item,
                key=key,
                request_id=request_id,
                waits=waits,
                caller=request.whose,
            )
        ]
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(row: int, text: Any) -> Answer:
        key = request.key or f"{request_id}/{row}"
        async with turns:
            return await answerer.answer(
                text,
                key=key,
                request_id=request_id,
                row=row,
                waits=waits,
                caller=request.whose,
            )

    return await asyncio.gather(*(one(row, text) for row, text in enumerate(request.items)))
