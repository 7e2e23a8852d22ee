"""A writer's other end that does what a test says, in no time."""

from __future__ import annotations

from typing import Any

from failsoft.health.clock import ManualClock
from failsoft.training.checkpoints.writer_link import Message

WRITTEN: Message = {"say": "written", "bytes": 10, "removed": [], "unpruned": "", "took_s": 0.5}
BEAT: Message = {"say": "beat"}


def refused(why: str) -> Message:
    return {"say": "refused", "why": why}


class Dies(Exception):
    """In a script: the writer is gone here."""


class FakeLink:
    """Answers from ``says``; when that is empty it is silent, and waiting for it takes the clock's time."""

    def __init__(self, clock: ManualClock, *says: Message | type[Dies]) -> None:
        self.clock = clock
        self.says = list(says)
        self.orders: list[dict[str, Any]] = []
        self.handles: list[int] = []
        self.stopped = False
        self.closed = False
        self.parted = False
        self.deaf = False
        self.hurried = 0

    def send(self, order: Message, memory: int) -> None:
        if self.deaf:
            raise ConnectionError("broken pipe")
        self.orders.append(dict(order))
        self.handles.append(memory)

    def hurry(self) -> None:
        self.hurried += 1

    def receive(self, timeout_s: float) -> Message | None:
        if not self.says:
            self.clock.advance(timeout_s)
            return None
        said = self.says.pop(0)
        if isinstance(said, type):
            raise ConnectionError("the writer ended with code -9")
        return said

    def stop(self) -> None:
        self.stopped = True

    def part(self) -> None:
        self.parted = True

    def close(self, patience_s: float) -> None:
        self.closed = True


class Links:
    """Starts one prepared link after the other."""

    def __init__(self, *links: FakeLink) -> None:
        self.waiting = list(links)
        self.started: list[FakeLink] = []

    def __call__(self) -> FakeLink:
        if not self.waiting:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.started.append(self.waiting.pop(0))
        return self.started[-1]
