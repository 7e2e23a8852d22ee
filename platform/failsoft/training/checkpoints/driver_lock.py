"""One driver for one run: a second one would train the same batches and sweep away what the first is writing.

The lock is the kernel's (``flock``), so it goes with the process that holds it, however that ends. Where a file system
has no locks there is none; keep two drivers from one run there by other means.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from failsoft.errors import ConfigError
from failsoft.health.clock import Clock

LOCK_NAME = ".driver"
TRAINER_NAME = ".trainer"
_LOOK_S = 0.1
_MAX_NOTE_BYTES = 256


@contextmanager
def sole_driver(run_folder: Path) -> Iterator[None]:
    """Be the only driver of the run in ``run_folder`` for the time of the block.

    Raises:
        ConfigError: another process is; says which, and what to do. Nothing of the run was touched.
    """
    run_folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(run_folder / LOCK_NAME, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        _take(handle, run_folder)
        yield
    finally:
        os.close(handle)


@contextmanager
def sole_trainer(run_folder: Path, clock: Clock, *, patience_s: float) -> Iterator[None]:
    """Be the only process that holds the run's workers, for the time of the block; a driver may have it in a child.

    A child that outlives its driver for a moment is waited for.

    Raises:
        ConfigError: it was still there after ``patience_s``.
    """
    handle = os.open(run_folder / TRAINER_NAME, os.O_CREAT | os.O_RDWR, 0o600)
    until_s = clock.monotonic_s() + patience_s
    try:
        while True:
            try:
                _take(handle, run_folder)
                break
            except ConfigError:
                if not clock.monotonic_s() < until_s:
                    raise
            clock.sleep_s(_LOOK_S)
        yield
    finally:
        os.close(handle)


def _take(handle: int, run_folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(handle, _MAX_NOTE_BYTES, 0).decode("utf-8", "replace").strip() or "another process"
        raise ConfigError(
            f"run {run_folder.name!r} is being trained by {holder}; wait for it, tell it to leave (failsoft preempt "
            f"{run_folder.name}), or use another run name"
        ) from error
    except OSError:  # a file system without locks
        return
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
