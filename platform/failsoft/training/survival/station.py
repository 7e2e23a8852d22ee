"""What stands around the loop in one worker process: the environment of its network, its notice, its watchdog.

Two moments: :func:`prepare` before the process group is made, in the process's main thread (where alone Python lets
handlers of signals be set); :func:`watched` around building and running the loop, in whichever thread that runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger
from failsoft.training.loop import TrainLoop
from failsoft.training.ranks import Ranks
from failsoft.training.survival.agreement import NoticedRanks
from failsoft.training.survival.fabric import FabricConfig
from failsoft.training.survival.muster import muster_of
from failsoft.training.survival.notice import Deadline, Notice, NoticePolicy, Word, listen
from failsoft.training.survival.watch_policy import WatchPolicy
from failsoft.training.survival.watchdog import Watchdog, WatchPost


@dataclass(kw_only=True)
class Station:
    """What a process knows of itself before its loop is there; the handlers of its signals point here."""

    notice: Notice = field(default_factory=Notice)
    network: dict[str, str] = field(default_factory=dict)
    """How the network was set up, in words."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """Where a worker writes, and its limits."""

    folder: Path
    """The run's folder."""
    ledger: Ledger
    clock: Clock
    watch: WatchPolicy = field(default_factory=WatchPolicy)
    notice: NoticePolicy = field(default_factory=NoticePolicy)


def prepare(station: Station, fabric: FabricConfig) -> None:
    """Set the network's variables (never over the user's) and listen to signals; in the main thread.

    Raises:
        ConfigError: a variable that the user has set can't be meant as it is.
    """
    station.network = fabric.explained(os.environ)
    os.environ.update(fabric.missing_from(os.environ))
    station.notice = Notice()
    listen(station.notice)


@contextmanager
def watched(
    station: Station, orders: Orders, ranks: Ranks, *, overhear: Callable[[], Word | None] = lambda: None
) -> Iterator[Callable[[Callable[[Ranks], TrainLoop]], TrainLoop]]:
    """Watch, and look out for notices, for the time of the block; all ranks enter it together.

    Args:
        station: of this process, prepared before.
        orders: where to write, and the limits.
        ranks: bare.
        overhear: asked twice a second for a word that comes no other way (Ray's drain notice).

    Yields:
        A function that has a loop built upon ranks that carry notices, and connects it.
    """
    noticed, notice = NoticedRanks(ranks, station.notice), station.notice
    deadline = Deadline(notice, orders.folder, policy=orders.notice, ledger=orders.ledger, clock=orders.clock)

    def listen_around() -> None:
        word = None if notice.heard is not None else overhear()
        if word is not None:
            notice.give(word)

    def connected(build: Callable[[Ranks], TrainLoop]) -> TrainLoop:
        loop = build(noticed)
        loop.watch, loop.told = watchdog, noticed.told
        return loop

    post = WatchPost(folder=orders.folder, ledger=orders.ledger, clock=orders.clock, rank=ranks.rank)
    try:
        with Watchdog(post, orders.watch, chores=[listen_around, deadline.look]) as watchdog:
            watchdog.joins(muster_of(ranks, watchdog.folder, orders.clock, nudgeable=watchdog.nudgeable))
            if ranks.rank == 0:
                orders.ledger.record("network", "as the workers found it", **station.network)
            yield connected
    finally:
        notice.closed = True
