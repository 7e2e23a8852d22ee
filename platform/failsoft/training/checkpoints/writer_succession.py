"""One writer at a time: who comes after a killed worker lets its writer finish what it has begun.

The lock is the kernel's (``flock``), so it goes with the process that holds it, however that ends. It is a courtesy,
not a guard: where a file system has no locks, or a dead disk holds the old writer for ever, work goes on, and the sweep
of orphans takes the half-written folder from under the old one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from failsoft.artifacts.asides import has_it_alone
from failsoft.health.clock import Clock

_LOCK = ".writer"
_LOOK_EVERY_S = 0.02


@contextmanager
def at_work(root: Path) -> Iterator[None]:
    """Hold the place of the writer for the time of the block, if it is free."""
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        has_it_alone(handle)
        yield
    finally:
        os.close(handle)


def until_free(root: Path, clock: Clock, *, patience_s: float) -> bool:
    """Wait until no writer is at work on this store; returns whether that came true in time."""
    try:
        handle = os.open(root / _LOCK, os.O_RDWR)
    except OSError:  # nobody has ever written here, or nobody can
        return True
    try:
        deadline_s = clock.monotonic_s() + patience_s
        while not has_it_alone(handle):
            if clock.monotonic_s() >= deadline_s:
                return False
            clock.sleep_s(_LOOK_EVERY_S)
        return True
    finally:
        os.close(handle)
