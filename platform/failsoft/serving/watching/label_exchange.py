"""How a label that came to one gateway finds the other that gave the answer: by way of the controller.

The controller keeps handed-on labels for a while; each gateway asks for those that it has not seen, by a long poll, as
it asks for plans. No gateway calls another.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock
from failsoft.serving.watching.late_labels import MAX_WAITING, LateLabels, Told

_MOST = 1000
"""Labels in one message."""
_WAIT_S = 10.0
_RETRY_S = 1.0
_GATHER_S = 0.05
"""Labels that come within so long travel together."""

Place = tuple[str, int]
"""Which post office, and how many labels it had taken."""
NOWHERE: Place = ("", 0)


class LabelPost:
    """Keeps labels until every gateway has had time to see them. Lives in the controller; nothing of it is durable.

    Args:
        clock: tells how old a label is.
        max_labels: so many are kept at most …
        max_age_s: … and none for longer.
    """

    def __init__(self, clock: Clock, *, max_labels: int = 10_000, max_age_s: float = 120.0) -> None:
        self._clock, self._max_age_s = clock, max_age_s
        self._era, self._taken = uuid.uuid4().hex, 0
        self._labels: deque[tuple[float, Told]] = deque(maxlen=max_labels)
        self._news = asyncio.Event()

    def put(self, labels: Sequence[Sequence[Any]]) -> None:
        """Take some, as pairs of key and label."""
        now_s = self._clock.monotonic_s()
        while self._labels and now_s - self._labels[0][0] > self._max_age_s:
            self._labels.popleft()
        self._labels.extend((now_s, Told(int(key), label)) for key, label in labels)
        self._taken += len(labels)
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def after(self, place: Place, timeout_s: float) -> tuple[Place, list[tuple[int, Any]]]:
        """Labels that came after a place, at most 1,000, and the place behind them; waits for one.

        A place of another post office is before all that are here.
        """
        if not self._new(place):
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                pass
        new = self._new(place)
        found = [tuple(told) for _, told in list(self._labels)[len(self._labels) - new :][:_MOST]] if new else []
        return (self._era, self._taken - new + len(found)), found

    def _new(self, place: Place) -> int:
        era, seen = place
        return min(len(self._labels), self._taken - (seen if era == self._era else 0))


class Office(Protocol):
    """The post in the controller, however far away. Each call may raise FailsoftError or OSError."""

    async def hand_on(self, labels: Sequence[Told]) -> None:
        """See :meth:`LabelPost.put`."""
        ...

    async def wait_labels(self, place: Place, timeout_s: float) -> tuple[Place, list[Told]]:
        """See :meth:`LabelPost.after`."""
        ...


class LabelExchange:
    """A gateway's two duties: hand on what it can't place, and look at what others handed on.

    Args:
        labels: of this gateway.
        office: in the controller.
    """

    def __init__(self, labels: LateLabels, office: Office) -> None:
        self._labels, self._office = labels, office
        self._due = asyncio.Event()

    def take(self, labels: Sequence[Told]) -> dict[str, int]:
        """See :meth:`LateLabels.take`; what is not from here is on its way soon after."""
        ends = self._labels.take(labels)
        if self._labels.waiting:
            self._due.set()
        return ends

    async def send(self) -> None:
        """Hand on for ever; what does not get through goes again, and counts once all the same."""
        while True:
            await self._due.wait()
            await asyncio.sleep(_GATHER_S)
            self._due.clear()
            while self._labels.waiting:
                await self._hand_on()

    async def listen(self) -> None:
        """Look at what others handed on, for ever."""
        place = NOWHERE
        while True:
            try:
                place, labels = await self._office.wait_labels(place, _WAIT_S)
            except (FailsoftError, OSError):
                await asyncio.sleep(_RETRY_S)
            else:
                self._labels.take(labels, handed_on=True)

    async def _hand_on(self) -> None:
        waiting = self._labels.waiting
        some = [waiting.popleft() for _ in range(min(_MOST, len(waiting)))]
        try:
            await self._office.hand_on(some)
        except (FailsoftError, OSError):
            room = max(0, MAX_WAITING - len(waiting))
            waiting.extendleft(some[: -room - 1 : -1])  # the newest of them; a full queue would drop what came since
            await asyncio.sleep(_RETRY_S)
