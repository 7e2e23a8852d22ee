"""All couriers of a home, each in a thread of its own: a target that is away holds nobody else up."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from failsoft.alerts.courier import Courier
from failsoft.errors import ConfigError

FOLDER = "alerts"
_LOOK_EVERY_S = 0.5


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the office of this home for the time of the block; the kernel takes it back from a process that dies.

    Raises:
        ConfigError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"another failsoft alerts run works on {folder.parent}; one is enough") from error
        yield


@contextmanager
def at_work(couriers: Sequence[Courier], failed: Callable[[Courier, Exception], None]) -> Iterator[None]:
    """Let all of them carry for the time of the block, and at its end what is there by then.

    Args:
        couriers: one of each target.
        failed: told of an error that is no target's, such as a ledger that can't be read, once until the courier,
            which tries again, has succeeded or fails in another way.
    """
    over = threading.Event()
    threads = [threading.Thread(target=_carry, args=(courier, over, failed), daemon=True) for courier in couriers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(_LOOK_EVERY_S)
        for courier, thread in zip(couriers, threads, strict=True):
            if not thread.is_alive():
                courier.close()


def _carry(courier: Courier, over: threading.Event, failed: Callable[[Courier, Exception], None]) -> None:
    said, last = "", False
    while not last:
        last = over.wait(_LOOK_EVERY_S)
        try:
            courier.carry()
            said = ""
        except Exception as error:  # noqa: BLE001 -- the end of a thread: whoever dies here tells nobody of anything any more
            if repr(error) != said:
                failed(courier, error)
            said = repr(error)
