"""Waits for foreign code only so long: a read that hangs is left to itself, and the caller goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from failsoft.errors import ConfigError, SourceError

_T = TypeVar("_T")


class Deadline:
    """Runs calls one at a time in a thread of its own, and leaves the thread behind when a call takes too long.

    A file system's own time-outs are not enough: many have none, some start anew with each packet. A thread can't be
    ended, so one that hangs stays until its call returns or the process ends (it is a daemon: it holds up no exit);
    beyond ``max_hung`` of them nothing new is begun.
    """

    def __init__(self, timeout_s: float, *, max_hung: int = 8) -> None:
        if not timeout_s > 0.0:
            raise ConfigError(f"timeout_s is {timeout_s}; a call needs more than 0 s")
        if max_hung < 1:
            raise ConfigError(f"max_hung is {max_hung}; use 1 or more")
        self.timeout_s = timeout_s
        self._max_hung = max_hung
        self._hand: _Hand | None = None
        self._hung: list[_Hand] = []

    @property
    def hung(self) -> int:
        """Calls that were left behind and have not returned yet."""
        self._hung = [hand for hand in self._hung if not hand.free.is_set()]
        return len(self._hung)

    def call(self, work: Callable[[], _T]) -> _T:
        """The result of ``work``.

        Raises:
            SourceError: it took longer than ``timeout_s``, or too many hang already.
            Exception: whatever ``work`` raised.
        """
        if self.hung >= self._max_hung:
            raise SourceError(f"{self._max_hung} reads hang and none has come back; nothing new is begun")
        hand = self._hand or _Hand()
        self._hand = None
        job = _Job(work)
        hand.jobs.put(job)
        if not job.done.wait(self.timeout_s):
            hand.jobs.put(None)  # its end, should it ever come back
            self._hung.append(hand)
            raise SourceError(f"no answer within {self.timeout_s:g} s")
        self._hand = hand
        return job.result()

    def close(self) -> None:
        """Let the idle thread end."""
        if self._hand is not None:
            self._hand.jobs.put(None)
            self._hand = None


class _Job(Generic[_T]):
    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._value: list[_T] = []
        self._error: Exception | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self._value.append(self._work())
        except Exception as error:  # noqa: BLE001 -- foreign code in a foreign thread: its error belongs to the caller
            self._error = error
        self.done.set()

    def result(self) -> _T:
        if self._error is not None:
            raise self._error
        return self._value[0]


class _Hand:
    """One thread and its jobs."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self.free = threading.Event()
        """The thread has ended."""
        threading.Thread(target=self._work, name="failsoft-read", daemon=True).start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job.run()
        self.free.set()
