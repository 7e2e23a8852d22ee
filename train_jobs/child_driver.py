"""A run's workers, held by a child of this process: what kills the child costs one attempt, and no run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Any, Self, TextIO

from pydantic import TypeAdapter

from failsoft.artifacts.home import Home
from failsoft.errors import DriverLostError, NoRayError, error_named
from failsoft.health.clock import Clock
from failsoft.health.json_object import is_count, json_object
from failsoft.health.ledger import Ledger, Side
from failsoft.training.survival.notice import read_notice
from failsoft.training.survival.room import NodeRoom
from failsoft.training.survival.supervise import DRIVER_LOST
from train_jobs.config import JobConfig
from train_jobs.connect import is_submitted, ray_answers
from train_jobs.result import JobResult

COMMAND = (sys.executable, "-m", "train_jobs.driver_process")
_RAY_LOOK_S = 2.0
_END_S = 30.0


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
        self._child: _Child | None = None

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

    def attempt(self, workers: int, excluded: frozenset[str]) -> str | None:
        """One attempt, in the child."""
        error = self._order("attempt", workers=workers, excluded=sorted(excluded))
        return None if error is None else str(error)

    def finish(self) -> JobResult:
        """Evaluation and release, by the child; the release is opened here."""
        return JobResult.from_json(self._order("finish"), home=self._home, clock=self._clock)

    def _order(self, do: str, **details: Any) -> Any:
        if self._child is None or not self._child.alive:
            self._child = _Child(self._command, TypeAdapter(JobConfig).dump_json(self._config).decode())
            self._ledger.record("driver_started", "a process to hold the workers", process=self._child.process.pid)
        try:
            return self._child.order(do, **details)
        except DriverLostError as error:
            self._ledger.record(DRIVER_LOST, str(error), process=self._child.process.pid)
            if self._child.alive:  # it says itself that Ray failed it; the next one connects anew
                self._drop()
            raise

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


class _Child:
    """One process, and what it was asked."""

    def __init__(self, command: Sequence[str], config: str) -> None:
        read, write = os.pipe()
        self.process = subprocess.Popen(
            [*command, str(write)], stdin=subprocess.PIPE, pass_fds=(write,), text=True, start_new_session=True
        )
        os.close(write)
        self._numbers = count()
        self._open: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._lost: DriverLostError | None = None
        self.knew = False
        """It has said what the cluster has."""
        self._tell(config)
        answers = os.fdopen(read, encoding="utf-8", errors="surrogateescape")
        self._ear = threading.Thread(target=self._hear, args=(answers,), name="driver-answers", daemon=True)
        self._ear.start()

    @property
    def alive(self) -> bool:
        """Whether it may still answer."""
        return self._lost is None

    def order(self, do: str, **details: Any) -> Any:
        """Ask, and wait for the answer.

        Raises:
            DriverLostError: the process ended first.
            FailsoftError: what the order raised there.
        """
        with self._lock:
            if self._lost is not None:
                raise self._lost
            number, answer = next(self._numbers), Future[Any]()
            self._open[number] = answer
            self._tell(json.dumps({"id": number, "do": do} | details))
        return answer.result()

    def end(self, *, kindly: bool) -> None:
        """Have it end; killed when it does not in time, or at once when there is no time."""
        if self.alive and kindly:
            self._tell(json.dumps({"id": -1, "do": "end"}))
        elif self.process.poll() is None:
            self.process.kill()
        try:
            self.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._ear.join()

    def _tell(self, line: str) -> None:
        to = self.process.stdin
        try:
            if to is not None:
                to.write(line + "\n")
                to.flush()
        except (OSError, ValueError):  # it is gone; whoever hears its answers says so
            return

    def _hear(self, answers: TextIO) -> None:
        with answers:
            understood = all(self._settle(line) for line in answers)
        if not understood:  # the rest of a line that it was killed over, or another's words; nothing more is answered
            self.process.kill()
        status = self.process.wait()
        with self._lock:
            if self.process.stdin is not None:
                with suppress(OSError):  # an order that it never took
                    self.process.stdin.close()
            torn = "" if understood else ", after an answer that is none"
            self._lost = DriverLostError(f"the driver process {self.process.pid} {_in_words(status)}{torn}")
            left, self._open = self._open, {}
        for answer in left.values():
            answer.set_exception(self._lost)

    def _settle(self, line: str) -> bool:
        """Whether the line is an answer; an order that waits for it has it now."""
        body = json_object(line)
        if body is None or not is_count(body.get("id")) or not ("value" in body or {"error", "says"} <= body.keys()):
            return False
        with self._lock:
            answer = self._open.pop(body["id"], None)
        if answer is None:
            return True
        if "error" in body:
            answer.set_exception(error_named(str(body["error"]), str(body["says"])))
        else:
            answer.set_result(body["value"])
        return True


def _in_words(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"was killed by signal {-status}"
