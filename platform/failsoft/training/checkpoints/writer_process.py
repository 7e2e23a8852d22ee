"""The writer, started by the training and fed over a socket.

``python -m failsoft.training.checkpoints.writer_process HANDLE PARENT``

It takes orders one at a time: the memory comes as a file handle, is written, digested, synced, renamed, and the answer
goes back. Loads no torch. When the training dies in mid-write it finishes that write, then ends: what was handed over
is not lost with the worker. A scheduler that asks all processes to leave asks the training, which needs its writer for
its last checkpoint; so the writer stays for as long as the training does.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import FailsoftError
from failsoft.health.clock import Clock, SystemClock
from failsoft.training.checkpoints.writer_link import Message, send, take
from failsoft.training.checkpoints.writer_order import Order, carry_out
from failsoft.training.checkpoints.writer_succession import at_work

_BEAT_EVERY_S = 0.5
_LOOK_EVERY_S = 2.0
_NICENESS = 19
"""The training goes first on every core; on idle cores, and at the end of a run, this process has them all the same."""


class Writer:
    """Carries out orders from one socket until it closes."""

    def __init__(self, wire: socket.socket, clock: Clock, *, training: int) -> None:
        self._wire = wire
        self._clock = clock
        self._beat_at_s = clock.monotonic_s()
        self._heard = bytearray()
        self._training = training

    def serve(self) -> None:
        """Until the training closes its end, or is gone."""
        while (order := self._next()) is not None:
            message, memory = order
            self._tell(self._answer(Order.from_plain(message), memory))

    def _next(self) -> tuple[Message, int] | None:
        memory = -1
        while self._awaited():
            content, handles, _flags, _address = socket.recv_fds(self._wire, 65536, 1)
            memory = handles[0] if handles else memory
            if not content:
                return None
            self._heard += content
            message = take(self._heard)
            if message is not None:
                return message, memory
        return None

    def _awaited(self) -> bool:
        """Wait for a word; False when the training is gone, though a fork of it (a loader's) still holds its end."""
        poller = select.poll()
        poller.register(self._wire, select.POLLIN)
        while not poller.poll(_LOOK_EVERY_S * 1000.0):
            if os.getppid() != self._training:
                return False
        return True

    def _answer(self, order: Order, memory: int) -> dict[str, Any]:
        try:
            with mmap.mmap(memory, 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
                return self._carried_out(order, view)
        finally:
            os.close(memory)

    def _carried_out(self, order: Order, view: memoryview) -> dict[str, Any]:
        """Every error ends here: one on its way up would hold pieces of the memory, which then can't be closed."""
        store = ArtifactStore(Path(order.root), self._clock, kind=order.kind)
        started_s = self._clock.monotonic_s()
        try:
            with at_work(store.root):
                written = carry_out(order, view, store, beat=self._beat)
        except (OSError, FailsoftError) as error:
            return {"say": "refused", "why": str(error)}
        took_s = self._clock.monotonic_s() - started_s
        return {
            "say": "written",
            "bytes": written.size_bytes,
            "removed": list(written.removed),
            "unpruned": written.unpruned,
            "took_s": took_s,
        }

    def _beat(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._beat_at_s >= _BEAT_EVERY_S:
            self._beat_at_s = now_s
            self._tell({"say": "beat"})

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            send(self._wire, message)
        except OSError:  # the training is gone; the write at hand is finished all the same
            return


def main(handle: int, training: int) -> None:
    """Serve the training, by its process id, at the other end of an inherited socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    with socket.socket(fileno=handle) as wire:
        try:
            Writer(wire, SystemClock(), training=training).serve()
        except ConnectionResetError:  # the training died with an answer unread
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
