"""How many workers an attempt gets: chosen before it from what the cluster can hold, and raised while it runs.

Ray Train has an elastic policy of its own, which is not used: while resources are short its controller spins (91 % of
a core, measured on Ray 2.60), its view of the cluster is up to 20 s old and counts nodes that are being drained, and a
resize takes the workers down without a word, so that all since the last checkpoint is repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from failsoft.errors import DriverLostError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger
from failsoft.training.progress import PositionMark
from failsoft.training.survival.growth import RESIZE_ASKED, Growth, ResizePolicy
from failsoft.training.survival.notice import drop_resize, withdraw_resize
from failsoft.training.survival.preflight_record import read_record
from failsoft.training.survival.room import (
    WORKERS_CHOSEN,
    NodeRoom,
    WorkerNeed,
    WorkerRange,
    fitting,
    fitting_when_idle,
    in_words,
    silent,
)
from train_jobs.driver import Driver

_SETTLING_LOOK_S = 0.2
_LOOK_AGAIN_S = 30.0
"""How often a waiting run looks whether a node that was unfit still is."""


@dataclass(frozen=True, kw_only=True)
class CrewPlan:
    """What a run may have, and where that is written down."""

    workers: WorkerRange
    need: WorkerNeed
    folder: Path
    """The run's folder."""
    ledger: Ledger
    resize: ResizePolicy = field(default_factory=ResizePolicy)


@dataclass(frozen=True, kw_only=True)
class _Hands:
    workers: int
    excluded: frozenset[str]


class _Barred:
    """Nodes that shall get no worker, while a run waits for some: one may have come, or been mended, meanwhile.

    Args:
        driver: looks.
        clock: tells the time.
        before: called before each look.
    """

    def __init__(self, driver: Driver, clock: Clock, before: Callable[[], object]) -> None:
        self._driver = driver
        self._clock = clock
        self._before = before
        self._seen: frozenset[str] = frozenset()
        self._barred: frozenset[str] | None = None
        self._asked_s = 0.0

    def among(self, rooms: Iterable[NodeRoom]) -> frozenset[str]:
        """Asked for anew when a node is there that was not, and now and then while one is barred."""
        here, now_s = frozenset(room.node for room in rooms), self._clock.monotonic_s()
        old = self._barred is not None and not here - self._seen
        if self._barred is None or not old or (self._barred and now_s - self._asked_s >= _LOOK_AGAIN_S):
            self._before()
            self._barred = self._driver.excluded()
            self._asked_s = self._clock.monotonic_s()
            self._seen |= here
        return self._barred


class Crew:
    """Carries out the attempts of one run, each with as many workers as there is room for.

    Args:
        driver: holds the workers.
        plan: limits and places.
        clock: tells the time and waits.
        told: whether the run was told to leave; asked while waiting.
        say: told in a sentence what is waited for, when that changes.
    """

    def __init__(
        self,
        driver: Driver,
        plan: CrewPlan,
        *,
        clock: Clock,
        told: Callable[[], bool] = lambda: False,
        say: Callable[[str], object] = lambda _said: None,
    ) -> None:
        self._driver = driver
        self._plan = plan
        self._clock = clock
        self._told = told
        self._say = say
        self._growth = Growth(plan.resize, plan.workers.most)
        self._wishes = False

    def run_once(self) -> str | None:
        """One attempt, from looking for room to the end of its workers.

        Returns:
            None when the workers ended by themselves, else what ended the attempt.

        Raises:
            FailsoftError: the run can't be trained at all.
        """
        try:
            withdraw_resize(self._plan.folder)
            self._driver.start()
            hands = self._muster()
            self._wish_no_more()
            if hands is None:
                return "told to leave while it waited for workers"
            self._growth.began(hands.workers, self._clock.monotonic_s())
            with self._looking_for_more(hands):
                return self._driver.attempt(hands.workers, hands.excluded)
        except (DriverLostError, OSError) as error:  # an OSError: storage that went away since it was looked at
            return str(error)

    def _muster(self) -> _Hands | None:
        """Wait until the least fit, and a moment longer for the most; None: told to leave instead.

        Where the cluster does not say what it has, Ray itself shall find out.
        """
        since_s, said, limits = self._clock.monotonic_s(), "", self._plan.workers
        barred = _Barred(self._driver, self._clock, before=self._wish_no_more)
        while not self._told():
            rooms = self._driver.rooms()
            if rooms is None:
                return _Hands(workers=limits.most, excluded=barred.among(()))
            excluded = barred.among(rooms) | silent(rooms)
            chosen = limits.choose(fitting(rooms, self._plan.need, excluded))
            most = min(limits.most, fitting_when_idle(rooms, self._plan.need, excluded))
            settled = self._clock.monotonic_s() - since_s >= self._plan.resize.settle_s
            if chosen is not None and (chosen >= most or settled):
                self._chosen(chosen, rooms, excluded)
                return _Hands(workers=chosen, excluded=excluded)
            if settled:
                said = self._awaited(rooms, excluded, said)
                self._wishes = True
                self._driver.wish(limits.least, excluded)
            self._clock.sleep_s(self._plan.resize.look_s if settled else _SETTLING_LOOK_S)
        return None

    def _wish_no_more(self) -> None:
        """However the wait ended: a wish that comes true holds room, of others, and of a look that needs the GPUs."""
        if self._wishes:
            self._driver.wish(0, frozenset())
            self._wishes = False

    def _chosen(self, workers: int, rooms: tuple[NodeRoom, ...], excluded: frozenset[str]) -> None:
        limits = self._plan.workers
        where = in_words(rooms, self._plan.need, excluded)
        why = f"{workers} of {limits.least} to {limits.most} workers; {where}"
        self._plan.ledger.record(WORKERS_CHOSEN, why, workers=workers, least=limits.least, most=limits.most)

    def _awaited(self, rooms: tuple[NodeRoom, ...], excluded: frozenset[str], said: str) -> str:
        missing = self._plan.workers.least - fitting(rooms, self._plan.need, excluded)
        reasons = read_record(self._plan.folder).in_words(excluded & {room.node for room in rooms})
        where = in_words(rooms, self._plan.need, excluded) + (f". {reasons}" if reasons else "")
        now = f"waits for {missing} worker{'s' if missing > 1 else ''}: {where}"
        if now != said:
            self._say(now)
            self._plan.ledger.record("workers_awaited", now, missing=missing)
        return now

    @contextmanager
    def _looking_for_more(self, hands: _Hands) -> Iterator[None]:
        """While the block runs with fewer workers than it may have, ask them to leave once there is room for more."""
        if hands.workers >= self._plan.workers.most:
            yield
            return
        over = threading.Event()
        before_s = PositionMark(self._plan.folder).last_set_s()
        looking = threading.Thread(target=self._look, args=(hands, before_s, over), name="failsoft-growth", daemon=True)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()

    def _look(self, hands: _Hands, before_s: float | None, over: threading.Event) -> None:
        """Not before the workers are at work, which set a position then: until then they hold nothing."""
        mark = PositionMark(self._plan.folder)
        while not over.wait(self._plan.resize.look_s):
            if mark.last_set_s() == before_s:
                continue
            target = self._growth.look(self._spare(hands), self._clock.monotonic_s())
            if target is not None and self._asked(hands.workers, target):
                return

    def _spare(self, hands: _Hands) -> int | None:
        try:
            rooms = self._driver.rooms()
        except DriverLostError:  # the attempt itself says so in a moment
            return None
        return None if rooms is None else fitting(rooms, self._plan.need, hands.excluded | silent(rooms))

    def _asked(self, workers: int, target: int) -> bool:
        why = f"planned resize from {workers} to {target} workers"
        try:
            drop_resize(self._plan.folder, why)
        except OSError:  # storage that refuses just now; asked again at the next look
            return False
        self._plan.ledger.record(RESIZE_ASKED, why, workers=workers, to=target)
        return True
