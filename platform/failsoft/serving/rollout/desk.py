"""One thread for a rollout: it decides and stores in order, and nobody who asks meanwhile waits for a disk.

A plan is made durable before it is true, so a move takes as long as storage does. That is the mover's time, and no one
else's: plans are read, polls answered and labels passed on by the event loop while this thread waits for a disk that
hangs. No plan waits here, only what leads to one: each is made of what is true when its turn comes, so the newest is
the one that storage gets last. What waits is bounded, since those who hear nothing ask again for as long as that takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from failsoft.errors import ConfigError, PlanStoreError
from failsoft.health.clock import Clock
from failsoft.serving.rollout.evidence import OutcomeBatch

ResultT = TypeVar("ResultT")

MOST_WAITING = 1000
"""Orders, trips and reports; each holds one of the calls that the controller answers at a time, most of which are
polls for plans (``_MAX_CALLS`` in controller.py)."""

_MOST_SAID = 1000
"""Characters of why a batch can't be read: it is quoted there."""


class Desk:
    """Does what it is given, one after the other, in a thread of its own.

    Args:
        clock: tells for how long it has been at one thing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollout")
        self._since_s: float | None = None
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Things that are not done, with the one that it is at."""
        return self._waiting

    def hangs(self, patience_s: float) -> str | None:
        """In words for how long storage has not answered; None: no longer than ``patience_s``."""
        since_s = self._since_s
        busy_s = 0.0 if since_s is None else self._clock.monotonic_s() - since_s
        if not busy_s > patience_s:
            return None
        return f"storage has not answered for {busy_s:.0f} s, for which {self._waiting} orders and reports wait"

    async def do(self, work: Callable[[], ResultT], *, own: bool = False) -> ResultT:
        """Have it done after all that was given before, and wait for it; raises what it raises.

        Whoever stops waiting does not stop the work: half a move is none.

        Args:
            work: what to do.
            own: a duty of the controller's own, which is given once at a time and always taken.

        Raises:
            PlanStoreError: ``MOST_WAITING`` wait already; it never will be done.
        """
        if self._waiting >= MOST_WAITING and not own:
            raise PlanStoreError(
                f"{self.hangs(0.0) or 'the controller is behind'}, and no more is taken until then; nothing was changed"
            )
        given = asyncio.get_running_loop().run_in_executor(self._thread, self._done, work)
        self._waiting += 1
        given.add_done_callback(self._over)
        return await asyncio.shield(given)

    def close(self) -> None:
        """Wait for what is being done, and begin nothing more."""
        self._thread.shutdown(cancel_futures=True)

    def _over(self, _given: asyncio.Future[ResultT]) -> None:
        self._waiting -= 1

    def _done(self, work: Callable[[], ResultT]) -> ResultT:
        self._since_s = self._clock.monotonic_s()
        try:
            return work()
        finally:
            self._since_s = None


class Inbox:
    """Reports that wait for their turn: one of each gateway.

    A gateway that hears nothing tells all of it again with what came since, so its newest report holds the one before.
    A batch that can't be read (of another version, or damaged) will not be readable the next time either: it is
    dropped, counted and told, and its gateway goes on.

    Args:
        record: called with an event's kind, reason and data, of what can't be read: the first time, and whenever twice
            as much was dropped.
    """

    def __init__(self, record: Callable[..., object]) -> None:
        self._newest: dict[str, Sequence[OutcomeBatch]] = {}
        self._record = record
        self._why = ""
        self._told = 0
        self.unreadable = 0
        """Batches that were dropped."""

    def put(self, report: Sequence[Mapping[str, Any]]) -> None:
        """A gateway's batches, oldest first; a report that was overtaken by a later one is none."""
        read = [batch for body in report if (batch := self._read(body)) is not None]
        if not read:
            return
        known = self._newest.get(read[-1].gateway)
        if known is None or known[-1].sequence <= read[-1].sequence:
            self._newest[read[-1].gateway] = read

    def take(self) -> Iterator[OutcomeBatch]:
        """All that waits; may be called in another thread than :meth:`put`, and writes down what was dropped."""
        while self._newest:
            yield from self._newest.popitem()[1]
        if self.unreadable >= max(1, 2 * self._told):
            self._told = self.unreadable
            why = f"{self._told} batches of gateways' reports could not be read and were dropped; the last: {self._why}"
            self._record("report_unreadable", why, count=self._told)

    def _read(self, body: Mapping[str, Any]) -> OutcomeBatch | None:
        try:
            return OutcomeBatch.of(body)
        except ConfigError as error:
            self.unreadable += 1
            self._why = str(error)[:_MOST_SAID]
            return None
