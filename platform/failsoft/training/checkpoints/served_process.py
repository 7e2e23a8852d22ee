"""The frame of a process that the training starts and feeds with orders over a socket. Loads no torch.

It takes orders one at a time and answers each. When the training dies in mid-order it finishes that order, then ends:
what was handed over is not lost with the worker. A scheduler that asks all processes to leave asks the training, which
needs its helper for its last checkpoint; so the helper stays for as long as the training does.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from failsoft.health.clock import Clock, SystemClock
from failsoft.training.checkpoints.writer_link import HURRY, NO_MEMORY, Message, send, take
from failsoft.training.checkpoints.writer_pace import Pace

_BEAT_EVERY_S = 0.5
_LOOK_EVERY_S = 2.0
_NICENESS = 19
"""The training goes first on every core; on idle cores, and at the end of a run, this process has them all the same."""


class Wire:
    """This end of the socket, until the training closes its own or is gone."""

    def __init__(self, wire: socket.socket, clock: Clock, *, training: int) -> None:
        self._wire = wire
        self.clock = clock
        self._beat_at_s = clock.monotonic_s()
        self._heard = bytearray()
        self._memory = NO_MEMORY
        self._training = training
        self._pace = Pace()
        self._poller = select.poll()
        self._poller.register(wire, select.POLLIN)

    def orders(self) -> Iterator[tuple[Message, int]]:
        """Each order, with the file handle that came with it."""
        while (message := self._next()) is not None:
            if message == HURRY:  # for an order that is done already
                continue
            memory, self._memory = self._memory, NO_MEMORY
            self._pace.begins(time.process_time(), hurried=self._hurry_came_along())
            yield message, memory

    def tell(self, message: dict[str, Any]) -> None:
        """Say something to the training, if it still is."""
        try:
            send(self._wire, message)
        except OSError:  # the training is gone; the work at hand is finished all the same
            return

    def beat(self) -> None:
        """A sign of life, at most every half second, and a rest for the sake of the training; called while working."""
        now_s = self.clock.monotonic_s()
        if now_s - self._beat_at_s >= _BEAT_EVERY_S:
            self._beat_at_s = now_s
            self.tell({"say": "beat"})
        rest_s = self._pace.rest_s(time.process_time())
        if not self._pace.hurried and self._poller.poll(rest_s * 1000.0):
            self._pace.hurried = self._told_to_hurry()

    def alone(self) -> bool:
        """Whether the training is gone."""
        return os.getppid() != self._training

    def _hurry_came_along(self) -> bool:
        """Whether it was read in one piece with its order: nothing would be left in the socket to notice it by."""
        return take(self._heard) == HURRY

    def _told_to_hurry(self) -> bool:
        """Also when the training is gone: nobody is to be spared any more."""
        try:
            return not self._read() or take(self._heard) == HURRY
        except OSError:  # it died with an answer unread; the work at hand is finished all the same
            return True

    def _next(self) -> Message | None:
        while (message := take(self._heard)) is None:
            if not self._awaited() or not self._read():
                return None
        return message

    def _read(self) -> bool:
        """False when the training has closed its end."""
        content, handles, _flags, _address = socket.recv_fds(self._wire, 65536, 1)
        self._memory = handles[0] if handles else self._memory
        self._heard += content
        return bool(content)

    def _awaited(self) -> bool:
        """Wait for a word; False when the training is gone, though a fork of it (a loader's) still holds its end."""
        while not self._poller.poll(_LOOK_EVERY_S * 1000.0):
            if self.alone():
                return False
        return True


def serve(handle: int, training: int, work: Callable[[Wire], None]) -> None:
    """Work for the training, by its process id, at the other end of an inherited socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    _never_first()
    with socket.socket(fileno=handle) as wire:
        try:
            work(Wire(wire, SystemClock(), training=training))
        except ConnectionResetError:  # the training died with an answer unread
            return


def _never_first() -> None:
    """An order that wakes this process does not take the core from the training thread that sent it.

    At the lowest priority alone it did: 0.2 to 6 ms of a hand-over were spent in the first look at the order.
    """
    with suppress(AttributeError, OSError):  # another system than Linux, or a container that forbids it
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
