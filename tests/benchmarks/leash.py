"""No process of a benchmark outlives the one that started it, and none stays when it is told to end.

Whoever starts a host starts it by :func:`on_leash`: the kernel tells it to end (SIGTERM) when its starter is gone,
however that went. A host holds its block by :func:`led`: a SIGTERM ends it in order, and what it has started and left
behind is killed. Ray's own handler of SIGTERM ends Ray's daemons first, and whatever asks them to shut down then waits
without end. Linux only, as all that kills here.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from tests.benchmarks.process_tree import born, descendants

GRACE_S = 40.0
"""A host that was told to end has so long for ending in order."""
_TRIES = 5
_TOLD = 128 + signal.SIGTERM
_WHEN_PARENT_DIES = 1  # PR_SET_PDEATHSIG of prctl(2); kept over exec


def on_leash(command: Sequence[str]) -> list[str]:
    """The command, to be started by a thread that lives as long as what is started is wanted."""
    return [sys.executable, "-m", "tests.benchmarks.leash", str(os.getpid()), *command]


class Leash:
    """A host's: what is below it is noted while it is all there."""

    def __init__(self) -> None:
        self._below: dict[int, int] = {}
        self._ends = False  # apart from the event, whose lock a signal could find taken by this very thread
        self._wake = threading.Event()
        threading.Thread(target=self._end_late, name="leash", daemon=True).start()

    def take(self) -> None:
        """From now on SIGTERM ends this process in order; once more after whoever takes the signal, as Ray does."""
        signal.signal(signal.SIGTERM, self._told)

    def end(self) -> None:
        """The host is about to shut down: note all that runs below it. It has :data:`GRACE_S` now, and no more."""
        self._ends = True
        self._wake.set()
        self.note()

    def note(self) -> None:
        """Note what runs below this process by now."""
        self._below |= {pid: at for pid in descendants(os.getpid())[1:] if (at := born(pid)) is not None}

    def sweep(self) -> None:
        """Kill what was noted and is still there."""
        for pid, at in self._below.items():
            if born(pid) == at:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _told(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._ends:
            self.end()
            raise SystemExit(_TOLD)

    def _end_late(self) -> None:
        self._wake.wait()
        time.sleep(GRACE_S)
        self.note()
        self.sweep()
        os._exit(_TOLD)


@contextmanager
def led() -> Iterator[Leash]:
    """Hold a host's work; what it has left behind is killed after the block. SIGUSR1 has it write where it stands."""
    faulthandler.register(signal.SIGUSR1)
    leash = Leash()
    leash.take()
    try:
        yield leash
    finally:
        try:
            leash.end()
        finally:  # a SIGTERM may come in between
            leash.sweep()


def ray_in_time(leash: Leash, start: Callable[[], object]) -> None:
    """Start Ray, which gives itself half a minute, and start it anew where a busy machine had no such half minute.

    What is below the host by then goes with a try that failed; SIGTERM is the host's again when Ray is up.
    """
    for left in reversed(range(_TRIES)):
        try:
            start()
            break
        except Exception as error:
            if "timed out during startup" not in str(error) or not left:
                raise
            leash.note()
            leash.sweep()
    leash.take()


def main() -> None:
    """Become the command; end at once when the starter is gone by now."""
    starter, command = int(sys.argv[1]), sys.argv[2:]
    kernel = ctypes.CDLL(None, use_errno=True)
    if kernel.prctl(_WHEN_PARENT_DIES, signal.SIGTERM) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if os.getppid() != starter:
        raise SystemExit(_TOLD)
    os.execvp(command[0], command)  # noqa: S606 -- the benchmark's own command


if __name__ == "__main__":
    main()
