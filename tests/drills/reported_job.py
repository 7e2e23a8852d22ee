"""The toy run on Ray with copies on a remote folder: what the drill of Ray's reports looks at."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from enum import StrEnum

from failsoft.health.clock import SystemClock
from failsoft.training.checkpoints.checkpoint import Checkpoints, Deliver
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.mirror_policy import MirrorPolicy
from failsoft.training.checkpoints.retention import Last
from failsoft.training.checkpoints.writer import writer_behind
from failsoft.training.checkpoints.writer_link import MIRROR, Message, ProcessLink
from failsoft.training.loop import TrainLoop
from failsoft.training.ranks import Ranks
from tests.drills.toy_job import ToyJob, build_toy

KEEP = (Last(count=3),)


class Trouble(StrEnum):
    """With the remote store, once the run is under way."""

    NONE = "none"
    REFUSES = "refuses"
    HANGS = "hangs"


@dataclass(frozen=True, kw_only=True)
class ReportedJob(ToyJob):
    """A picklable config."""

    remote: str = ""
    """Address of the remote place."""
    trouble: Trouble = Trouble.NONE
    wait_at_end_s: float = 60.0
    """For the last copy."""


class TroubledLink(ProcessLink):
    """A real process that tells what is there; asked to copy, the store refuses or hangs."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(MIRROR)
        self._trouble = trouble
        self._copying = False

    def send(self, order: Message, memory: int) -> None:
        self._copying = order["do"] == "copy" and self._trouble is not Trouble.NONE
        if not self._copying:
            super().send(order, memory)

    def receive(self, timeout_s: float) -> Message | None:
        if not self._copying:
            return super().receive(timeout_s)
        if self._trouble is Trouble.HANGS:
            threading.Event().wait(timeout_s)
            return None
        self._copying = False
        return {"say": "refused", "why": "403 Forbidden"}


def build_reported(job: ReportedJob, ranks: Ranks, deliver: Deliver) -> TrainLoop:
    loop, clock = build_toy(replace(job, behind=False), ranks, deliver), SystemClock()
    old = loop.checkpoints
    mirror = Mirror(
        old.store,
        job.remote,
        clock=clock,
        rng=random.Random(3),
        rules=KEEP,
        policy=MirrorPolicy(wait_at_end_s=job.wait_at_end_s),
        start=lambda: TroubledLink(job.trouble),
    )
    loop.checkpoints = Checkpoints(
        store=old.store,
        identity=old.identity,
        ranks=old.ranks,
        ledger=old.ledger,
        deliver=old.deliver,
        writer=writer_behind(old.store, clock, rules=KEEP),
        mirror=mirror,
    )
    return loop
