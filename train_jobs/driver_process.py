"""The process that holds a run's workers, as a child of its supervisor.

``python -m train_jobs.driver_process ANSWERS STACKS``

Lines of JSON: the job's config first, then orders, come on standard input; answers, and a beat each second, go to the
file handle ``ANSWERS``; asked by a signal, it leaves its stacks in the file handle ``STACKS``. When the input ends, the
supervisor is gone, and so is this process at once: a run has one driver, and Ray takes the workers of a driver that is
gone away. ``rooms`` is answered while an attempt runs, all other orders one after another.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any, TextIO

from pydantic import TypeAdapter

from failsoft.artifacts.home import Home
from failsoft.errors import FailsoftError
from failsoft.health.clock import SystemClock
from failsoft.local_ray import settle_environment
from train_jobs.child import STACKS_SIGNAL
from train_jobs.config import JobConfig
from train_jobs.connect import connected, is_submitted
from train_jobs.exporting import exporting

EXIT_ORPHANED = 75
"""Of a child whose supervisor is gone; nobody is left to read it."""
_SUCCESSION_S = 60.0
_BEAT_S = 1.0


class Answers:
    """Writes answers, one line each, from any thread."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self._lock = threading.Lock()

    def give(self, number: int, carry_out: Callable[[], Any]) -> None:
        """Carry an order out and answer it: with its value, or with the name and words of what it raised."""
        try:
            line = json.dumps({"id": number, "value": carry_out()})
        except FailsoftError as error:
            line = json.dumps({"id": number, "error": type(error).__name__, "says": str(error)})
        except Exception as error:  # noqa: BLE001 -- the process boundary: the supervisor shall hear of it in words
            traceback.print_exc()
            line = json.dumps({"id": number, "error": "Exception", "says": f"{type(error).__name__}: {error}"})
        self._write(line)

    def beat(self) -> None:
        """Say that this process lives, and Python in it."""
        self._write('{"beat": 1}')

    def _write(self, line: str) -> None:
        with self._lock:
            self._to.write(line + "\n")
            self._to.flush()


@contextmanager
def beating(answers: Answers) -> Iterator[None]:
    """Beat for the time of the block, whatever the main thread does meanwhile."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_BEAT_S):
            try:
                answers.beat()
            except OSError:  # the supervisor is gone; who reads its orders ends this process
                return

    beats = threading.Thread(target=beat, name="driver-beats", daemon=True)
    beats.start()
    try:
        yield
    finally:
        over.set()
        beats.join()


class _Post:
    """Carries orders out."""

    def __init__(self, config: JobConfig, stack: ExitStack) -> None:
        from train_jobs.job import HereDriver  # noqa: PLC0415 -- loads torch and Ray, after their environment is there

        self._config = config
        self._stack = stack
        self._driver = HereDriver(config, SystemClock())
        self._connected = False

    def carry_out(self, order: Mapping[str, Any]) -> Any:
        """Carry out one order but ``rooms``."""
        if order["do"] == "start":
            return self._start()
        if order["do"] == "attempt":
            return self._driver.attempt(int(order["workers"]), frozenset(order["excluded"]))
        if order["do"] == "wish":
            return self._driver.wish(int(order["workers"]), frozenset(order["excluded"]))
        if order["do"] == "excluded":
            return sorted(self._driver.excluded())
        return self._driver.finish().to_json()

    def rooms(self) -> list[dict[str, Any]] | None:
        """What the cluster has left."""
        rooms = self._driver.rooms() if self._connected else None
        return None if rooms is None else [asdict(room) for room in rooms]

    def _start(self) -> None:
        self._driver.start()
        if not self._connected:
            self._stack.enter_context(connected(self._config))
            self._stack.enter_context(exporting(self._config))
            self._stack.enter_context(_passing_signals_on(self._config))
            self._connected = True


def main(handle: int, stacks: int) -> None:
    """Carry orders out until the input ends or the order is to end."""
    faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True)
    with os.fdopen(handle, "w", encoding="utf-8") as to, ExitStack() as stack:
        answers = Answers(to)
        stack.enter_context(beating(answers))
        config = TypeAdapter(JobConfig).validate_json(sys.stdin.readline())
        if not is_submitted(os.environ):
            settle_environment()
        stack.enter_context(_alone(config))
        post = _Post(config, stack)
        orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=_listen, args=(post, answers, orders), name="orders", daemon=True).start()
        while (order := orders.get())["do"] != "end":
            answers.give(order["id"], lambda order=order: post.carry_out(order))  # type: ignore[misc]


def _listen(post: _Post, answers: Answers, orders: queue.SimpleQueue[dict[str, Any]]) -> None:
    ended = False
    for line in sys.stdin:
        order = json.loads(line)
        ended = ended or order["do"] == "end"
        if order["do"] == "rooms":
            answers.give(order["id"], post.rooms)
        else:
            orders.put(order)
    if not ended:
        os._exit(EXIT_ORPHANED)


def _alone(config: JobConfig) -> Any:
    """A child of a supervisor that was killed a moment ago may still be about to end."""
    from failsoft.training.checkpoints.driver_lock import sole_trainer  # noqa: PLC0415 -- as above

    return sole_trainer(Home.find(config.home).run(config.run), SystemClock(), patience_s=_SUCCESSION_S)


def _passing_signals_on(config: JobConfig) -> Any:
    """A scheduler that signals every process of a job may well mean the run."""
    from failsoft.training.survival.notice import Notice, carrying, listening  # noqa: PLC0415 -- as above

    stack, notice = ExitStack(), Notice()
    stack.enter_context(listening(notice))
    stack.enter_context(carrying(notice, Home.find(config.home).run(config.run)))
    return stack


if __name__ == "__main__":
    from train_jobs.driver_process import main as named_main  # by its name, so that workers can import what they get

    named_main(int(sys.argv[1]), int(sys.argv[2]))
