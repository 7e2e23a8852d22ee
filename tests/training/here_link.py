"""The mirror's work done at once in this process, on a file system of the test's choice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from failsoft.artifacts.remote_place import Place
from failsoft.artifacts.store import ArtifactStore
from failsoft.health.clock import Clock, ManualClock
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy
from failsoft.training.checkpoints.mirror_work import MirrorWork
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer_link import Message

URL = "odd://root/run"


class HereLink:
    """Has its answer ready when the order is given."""

    def __init__(self, work: MirrorWork) -> None:
        self.work = work
        self.says: list[Message] = []
        self.orders: list[dict[str, Any]] = []

    def send(self, order: Message, memory: int) -> None:
        assert memory == -1
        self.orders.append(dict(order))
        self.says.append(self.work.answer(order, lambda: None))

    def receive(self, timeout_s: float) -> Message | None:
        return self.says.pop(0) if self.says else None

    def hurry(self) -> None:
        """It is done already."""

    def stop(self) -> None:
        """Nothing runs."""

    def close(self, patience_s: float) -> None:
        """Nothing runs."""

    def part(self) -> None:
        """Nothing runs."""


def mirror_here(
    store: ArtifactStore,
    place: Place | Callable[[], Place],
    *,
    clock: Clock | None = None,
    policy: MirrorPolicy | None = None,
    keep: int = 3,
) -> Mirror:
    clock = clock or ManualClock()
    work = MirrorWork(lambda _url: place if isinstance(place, Place) else place(), clock)
    return Mirror(
        store,
        URL,
        clock=clock,
        rng=random.Random(1),
        policy=policy,
        rules=(Last(count=keep),),
        start=lambda: HereLink(work),
    )
