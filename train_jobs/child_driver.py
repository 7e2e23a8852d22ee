"""A run's workers, held by a child of this process: what kills the child costs one attempt, and no run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter

from failsoft.artifacts.home import Home
from failsoft.errors import DriverLostError, NoRayError
from failsoft.health.clock import Clock
from failsoft.health.ledger import Ledger, Side
from failsoft.training.progress import PROGRESS_NAME, PositionMark
from failsoft.training.survival.notice import read_notice
from failsoft.training.survival.room import NodeRoom
from failsoft.training.survival.stacks import bounded
from failsoft.training.survival.supervise import DRIVER_LOST
from train_jobs.child import Child, ChildWatch
from train_jobs.config import JobConfig
from train_jobs.connect import is_submitted, ray_answers
from train_jobs.result import JobResult

COMMAND = (sys.executable, "-m", "train_jobs.driver_process")
_RAY_LOOK_S = 2.0


class ChildDriver:
    """Starts the child when it is needed, and another one when that has died.

    One thread gives orders at a time, but :meth:`rooms` may be asked from any.

    Args:
        config: the job; its ``home`` is absolute.
        clock: waits for Ray.
        say: told in a sentence when Ray is waited for.
        command: what to run; the handle for answers is appended.
    """

    def __init__(
        self,
        config: JobConfig,
        *,
        clock: Clock,
        say: Callable[[str], object] = lambda _said: None,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._config = config
        self._clock = clock
        self._say = say
        self._command = tuple(command)
        self._home = Home.find(config.home)
        self._ledger = Ledger(self._home.ledger, clock, side=Side.TRAINING, subject=config.run)
        self._watch = ChildWatch(policy=config.driver_watch, clock=clock, signs=self._signs, hung=self._tell_hung)
        self._child: Child | None = None

    def __enter__(self) -> Self:
        """Nothing is started before it is needed."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the child; it gets the time to end its Ray."""
        if self._child is not None:
            self._child.end(kindly=not isinstance(error, KeyboardInterrupt))

    @property
    def process_id(self) -> int | None:
        """Of the child that lives, if one does."""
        return None if self._child is None or not self._child.alive else self._child.process.pid

    def start(self) -> None:
        """Have the child prepare the run and connect to Ray; wait for a Ray where there is none yet.

        Raises:
            NoRayError: for as long as the job's patience goes there was none; or the run was told to leave meanwhile.
            FailsoftError: the run can't be trained.
        """
        since_s, waited = self._clock.monotonic_s(), False
        while True:
            try:
                if is_submitted(os.environ) and not ray_answers(os.environ):
                    raise NoRayError(f"nobody answers at {os.environ['RAY_ADDRESS']}")
                self._order("start")
                self._refuse_lost_head()
                return
            except NoRayError as error:
                if not is_submitted(os.environ):  # its own Ray came up by half; the rest goes with the child
                    self._drop()
                self._wait_for_ray(error, since_s, first=not waited)
                waited = True

    def excluded(self) -> frozenset[str]:
        """As the child knows them."""
        return frozenset(self._order("excluded"))

    def rooms(self) -> tuple[NodeRoom, ...] | None:
        """As the child sees the cluster; None also while there is no child."""
        if self._child is None or not self._child.alive:
            return None
        rooms = self._child.order("rooms")
        return None if rooms is None else tuple(TypeAdapter(list[NodeRoom]).validate_python(rooms))

    def wish(self, workers: int, excluded: frozenset[str]) -> None:
        """By the child."""
        self._order("wish", workers=workers, excluded=sorted(excluded))

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        """One attempt, in the child."""
        error = self._order("attempt", workers=workers, excluded=sorted(excluded))
        return None if error is None else str(error)

    def finish(self) -> JobResult:
        """Evaluation and release, by the child; the release is opened here."""
        return JobResult.from_json(self._order("finish"), home=self._home, clock=self._clock)

    def _order(self, do: str, **details: Any) -> Any:
        if self._child is None or not self._child.alive:
            config = TypeAdapter(JobConfig).dump_json(self._config).decode()
            self._child = Child(self._command, config, self._watch)
            self._ledger.record("driver_started", "a process to hold the workers", process=self._child.process.pid)
        try:
            return self._child.order(do, **details)
        except DriverLostError as error:
            self._ledger.record(DRIVER_LOST, str(error), process=self._child.process.pid)
            if self._child.alive:  # it says itself that Ray failed it; the next one connects anew
                self._drop()
            raise

    def _signs(self, order: str) -> object:
        """What the workers leave in the run's folder; of other orders nothing is to be seen but their answer."""
        if order != "attempt":
            return None
        folder = self._home.run(self._config.run)
        try:
            progress = (folder / PROGRESS_NAME).read_bytes()
        except OSError:
            progress = b""
        return PositionMark(folder).read(), progress

    def _tell_hung(self, why: str, process: int, stacks: str) -> None:
        kept = bounded(stacks) or "none: it took no signal any more"
        self._ledger.record("hang", why, by="supervisor", process=process, stacks=kept)

    def _refuse_lost_head(self) -> None:
        """A child whose cluster said once what it has, and no longer does, is connected to a Ray that is gone."""
        child = self._child
        if child is None:
            return
        if self.rooms() is not None:
            child.knew = True
        elif child.knew:
            self._drop()
            raise NoRayError("Ray's head does not say any more what its cluster has")

    def _drop(self) -> None:
        if self._child is not None:
            self._child.end(kindly=False)
        self._child = None

    def _wait_for_ray(self, error: NoRayError, since_s: float, *, first: bool) -> None:
        patience_s = self._config.ray_patience_s
        if first:
            said = f"waits up to {patience_s:g} s for a Ray to connect to: {error}"
            self._say(said)
            self._ledger.record("ray_awaited", said)
        if read_notice(self._home.run(self._config.run)) is not None:
            raise DriverLostError("told to leave while it waited for Ray")
        if self._clock.monotonic_s() - since_s >= patience_s:
            raise NoRayError(
                f"{error}; waited {patience_s:g} s. Start Ray again, then the same command: it goes on from its newest "
                "checkpoint"
            ) from error
        self._clock.sleep_s(_RAY_LOOK_S)
