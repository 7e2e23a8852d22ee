"""The wire between the training and its writer: length-prefixed JSON over a socket pair, memory by file handle."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import failsoft

_LENGTH_BYTES = 4
_SEND_PATIENCE_S = 5.0
WRITER = "failsoft.training.checkpoints.writer_process"
MIRROR = "failsoft.training.checkpoints.mirror_process"
NO_MEMORY = -1
"""Instead of a file handle, with an order that needs none."""
_GENTLE = ("ionice", "-c", "2", "-n", "7")
_LEFT_BEHIND: list[subprocess.Popen[bytes]] = []
"""Killed but not let go by a dead disk, or parted from; kept so that they can be collected later."""

Message = Mapping[str, Any]
HURRY: Message = {"say": "hurry"}


class Link(Protocol):
    """A writer at the other end."""

    def send(self, order: Message, memory: int) -> None:
        """Hand over an order and the file handle of its memory, or :data:`NO_MEMORY`.

        Raises:
            ConnectionError: the writer is gone.
        """
        ...

    def hurry(self) -> None:
        """Say that somebody waits for the order at hand, so that the writer spares nobody any more; never raises."""
        ...

    def receive(self, timeout_s: float) -> Message | None:
        """The next message, or None when none came in time.

        Raises:
            ConnectionError: the writer is gone.
        """
        ...

    def stop(self) -> None:
        """Kill the writer; never waits for it."""
        ...

    def close(self, patience_s: float) -> None:
        """Let the writer end by itself, and kill it when it does not in time."""
        ...

    def part(self) -> None:
        """Let the writer finish what it is at and end by itself, however long that takes; never waits for it."""
        ...


class ProcessLink:
    """A writer in a process of its own, so that it takes neither the interpreter lock nor torch's threads.

    A plain subprocess that loads no torch: forking a process with CUDA or threads breaks both, and copies its pages.

    Args:
        module: what the process runs; :data:`WRITER` or :data:`MIRROR`.
    """

    def __init__(self, module: str = WRITER) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            gentle = _GENTLE if shutil.which(_GENTLE[0]) else ()
            self.process = subprocess.Popen(
                [*gentle, sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": _python_path()},
                start_new_session=True,  # Ctrl-C in the terminal is for the training, which then lets it finish
            )
        ours.settimeout(_SEND_PATIENCE_S)
        self._socket = ours
        self._heard = bytearray()
        self._hurried = False

    def send(self, order: Message, memory: int) -> None:
        """See :class:`Link`."""
        self._hurried = False
        try:
            send(self._socket, order, None if memory == NO_MEMORY else memory)
        except OSError as error:
            raise ConnectionError(f"the writer took no order: {error}") from error

    def hurry(self) -> None:
        """Once for each order: who hangs reads nothing, and a full socket would hold the training up."""
        if self._hurried:
            return
        self._hurried = True
        with suppress(OSError):  # a writer that is gone is noticed by whoever listens
            send(self._socket, HURRY)

    def receive(self, timeout_s: float) -> Message | None:
        """See :class:`Link`."""
        message = take(self._heard)
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        while message is None and poller.poll(max(0.0, timeout_s) * 1000.0):
            self._heard += self._read()
            message = take(self._heard)
        return message

    def _read(self) -> bytes:
        try:
            content = self._socket.recv(65536)
        except OSError as error:
            raise ConnectionError(f"the writer hung up: {error}") from error
        if not content:
            code = self._reaped(1.0)
            raise ConnectionError(f"the writer ended with {'no code yet' if code is None else f'code {code}'}")
        return content

    def stop(self) -> None:
        """See :class:`Link`."""
        self._socket.close()
        self.process.kill()
        if self._reaped(0.1) is None:
            _LEFT_BEHIND.append(self.process)

    def close(self, patience_s: float) -> None:
        """See :class:`Link`."""
        self._hang_up()
        if self._reaped(patience_s) is None:
            self.stop()

    def part(self) -> None:
        """See :class:`Link`."""
        self._hang_up()
        if self._reaped(0.1) is None:
            _LEFT_BEHIND.append(self.process)

    def _hang_up(self) -> None:
        with suppress(OSError):  # it is gone already
            self._socket.shutdown(socket.SHUT_RDWR)  # a close alone says nothing while a loader's fork holds this end
        self._socket.close()

    def _reaped(self, patience_s: float) -> int | None:
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None


def send(wire: socket.socket, message: Message, memory: int | None = None) -> None:
    """Send one message, and with it a file handle.

    Raises:
        OSError: the other end is gone, or takes nothing any more.
    """
    body = json.dumps(message).encode()
    framed = len(body).to_bytes(_LENGTH_BYTES, "big") + body
    sent = socket.send_fds(wire, [framed], [] if memory is None else [memory])
    wire.sendall(framed[sent:])


def take(heard: bytearray) -> Message | None:
    """Take the first whole message out of what was heard; None while there is none."""
    size = int.from_bytes(heard[:_LENGTH_BYTES], "big")
    if len(heard) < _LENGTH_BYTES or len(heard) < _LENGTH_BYTES + size:
        return None
    body = bytes(heard[_LENGTH_BYTES : _LENGTH_BYTES + size])
    del heard[: _LENGTH_BYTES + size]
    message: Message = json.loads(body)
    return message


def _python_path() -> str:
    """Where the writer finds this very failsoft, whatever folder the job runs in."""
    source = str(Path(failsoft.__file__).parent.parent)
    return os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
