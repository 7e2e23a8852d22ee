"""A child process that is given orders and answers them, watched while it has one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from tempfile import TemporaryFile
from typing import Any, TextIO

from failsoft.errors import DriverLostError, error_named
from failsoft.health.clock import Clock
from failsoft.health.json_object import is_count, json_object
from train_jobs.driver_watch import DriverWatchPolicy, Vigil

STACKS_SIGNAL = signal.SIGUSR2
"""Has the process write where all its threads are; handled outside of Python, so also where that stands still."""
_STACKS_LOOK_S = 0.1
_END_S = 30.0


@dataclass(frozen=True, kw_only=True)
class ChildWatch:
    """How a child is watched."""

    policy: DriverWatchPolicy
    clock: Clock
    signs: Callable[[str], object]
    """What moves while it carries out an order of this name."""
    hung: Callable[[str, int, str], object]
    """Told of one that was ended for standing still: why, its process, its stacks."""


class Child:
    """One process, and what it was asked.

    Args:
        command: what to run; handles for its answers and for its stacks are appended.
        config: one line, the first that it reads.
        watch: how it is watched while it has an order.
    """

    def __init__(self, command: Sequence[str], config: str, watch: ChildWatch) -> None:
        read, write = os.pipe()
        self._stacks = TemporaryFile()  # noqa: SIM115 -- open as long as the process is
        handles = (write, self._stacks.fileno())
        self.process = subprocess.Popen(
            [*command, *map(str, handles)], stdin=subprocess.PIPE, pass_fds=handles, text=True, start_new_session=True
        )
        os.close(write)
        self._watch = watch
        self._beats = 0
        self._hung: str | None = None
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
        answer = self._asked(do, details)
        vigil = Vigil(do, self._watch.policy)
        while True:
            done, _ = wait([answer], timeout=self._watch.policy.look_s)
            if done:
                return answer.result()
            why = vigil.look(self._watch.clock.monotonic_s(), beats=self._beats, signs=self._watch.signs(do))
            if why is not None:
                self._give_up(why)

    def _asked(self, do: str, details: Mapping[str, Any]) -> Future[Any]:
        with self._lock:
            if self._lost is not None:
                raise self._lost
            number, answer = next(self._numbers), Future[Any]()
            self._open[number] = answer
            self._tell(json.dumps({"id": number, "do": do} | dict(details)))
        return answer

    def _give_up(self, why: str) -> None:
        """Whoever waits for an answer hears of the end from its ear; two may find it hung at once."""
        with self._lock:
            first, self._hung = self._hung is None, self._hung or why
        if first:
            stacks = self._left_stacks()
            self.process.kill()
            self._watch.hung(why, self.process.pid, stacks)

    def _left_stacks(self) -> str:
        """Where all its threads are, by its own word; "" when it takes no signal any more."""
        clock, until_s, size = self._watch.clock, self._watch.clock.monotonic_s() + self._watch.policy.stacks_s, 0
        with suppress(ProcessLookupError, ValueError):  # it has ended meanwhile, and its ear has closed the file
            self.process.send_signal(STACKS_SIGNAL)
            self.process.send_signal(signal.SIGCONT)  # one that was stopped takes no other signal before this
            while clock.monotonic_s() < until_s:
                clock.sleep_s(_STACKS_LOOK_S)
                grown = os.fstat(self._stacks.fileno()).st_size
                if grown == size > 0:  # it has stopped writing
                    break
                size = grown
            return os.pread(self._stacks.fileno(), size, 0).decode("utf-8", "replace")
        return ""

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
            how = f"stood still and was ended: {self._hung}" if self._hung else _in_words(status)
            self._lost = DriverLostError(f"the driver process {self.process.pid} {how}{torn}")
            self._stacks.close()
            left, self._open = self._open, {}
        for answer in left.values():
            answer.set_exception(self._lost)

    def _settle(self, line: str) -> bool:
        """Whether the line is a beat or an answer; an order that waits for it has it now."""
        body = json_object(line)
        if body is not None and "beat" in body:
            self._beats += 1
            return True
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
