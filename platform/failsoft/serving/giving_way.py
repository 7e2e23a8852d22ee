"""A thread for work that no caller waits for, such as reading a release: all others get the processor first."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

_NICENESS = 5
"""Steps below the others of its process: it gets a third of what a thread gets that has work to do, and all of a core
that is idle. Not more: Python's lock is its process's own, and whoever holds it without a core keeps that process's
health checks waiting."""


def giving_way(name: str) -> ThreadPoolExecutor:
    """One such thread, by name; begun when first used. Not for a process whose own answers need what it holds.

    On systems that know no niceness of single threads it is a thread as any other.
    """
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=name, initializer=_step_back)


def _step_back() -> None:
    with suppress(OSError, AttributeError):  # Linux takes a thread's number here; elsewhere nothing is lost
        own = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, own, min(19, os.getpriority(os.PRIO_PROCESS, own) + _NICENESS))
