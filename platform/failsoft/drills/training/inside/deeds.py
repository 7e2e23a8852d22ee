"""Faults that need no torch: signals to oneself at an exact point, and standing still."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.inside.marks import Marks, born
from failsoft.drills.training.inside.orders import Strike

Deed = Callable[[Strike, Marks], None]


def act(strike: Strike, marks: Marks) -> bool:
    """Do what needs no torch; False for what somebody else must do."""
    deed = _DEEDS.get(strike.fault.kind)
    if deed is None:
        return False
    deed(strike, marks)
    return True


def _kill_worker(_strike: Strike, marks: Marks) -> None:
    """The process that trains, and this one: whoever writes for it dies with its machine."""
    for pid in (*_named(marks, "trains"), os.getpid()):
        _signal(pid, signal.SIGKILL)


def _kill_driver(_strike: Strike, marks: Marks) -> None:
    _signal(_main(marks), signal.SIGKILL)


def _terminate(_strike: Strike, marks: Marks) -> None:
    _signal(_main(marks), signal.SIGTERM)


def _drain(_strike: Strike, marks: Marks) -> None:
    """The drill sends SIGTERM to all processes, and SIGKILL when the time is over: nobody inside could."""
    marks.say("drain")


def _stand_still(strike: Strike, _marks: Marks) -> None:
    if strike.fault.arguments.get("how") == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        threading.Event().wait()


_DEEDS: dict[DrillFault, Deed] = {
    DrillFault.KILL_WORKER: _kill_worker,
    DrillFault.KILL_DRIVER: _kill_driver,
    DrillFault.SIGTERM: _terminate,
    DrillFault.DRAIN: _drain,
    DrillFault.HANG: _stand_still,
    DrillFault.TORN_CHECKPOINT: _kill_worker,
    DrillFault.FLIPPED_CHECKPOINT: _kill_worker,
    DrillFault.MISSING_CHECKPOINT: _kill_worker,
}
"""A checkpoint is damaged while nobody runs: first the process dies, then the drill does it."""


def _main(marks: Marks) -> int:
    """The process that the user started."""
    return next(iter(_named(marks, "main")), os.getpid())


def _named(marks: Marks, what: str) -> list[int]:
    """The last process that said so, where it is still there: of an earlier start the number may be a stranger's."""
    last = [mark for mark in marks.read() if mark["what"] == what][-1:]
    return [int(mark["pid"]) for mark in last if mark["born"] is not None and mark["born"] == born(int(mark["pid"]))]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:  # of an attempt that is over
        return
