"""A bound over all of some work that waits, however often it is kept waiting for a little.

A time-out of ``httpx`` is for each wait on the socket: a server that drips a byte of an answer now and then holds its
caller for as long as it likes. So does looking up a name.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


def within(seconds: float, work: Callable[[], ResultT]) -> ResultT:
    """What the work gives, if that is there in so many seconds; done in a thread of its own.

    What is not done by then goes on in its thread, which nobody waits for any more, not even the end of the process.

    Raises:
        TimeoutError: it was not.
        Exception: whatever the work raised.
    """
    done: queue.SimpleQueue[tuple[ResultT | None, Exception | None]] = queue.SimpleQueue()

    def carry_out() -> None:
        try:
            done.put((work(), None))
        except Exception as error:  # noqa: BLE001 -- raised again where it is waited for
            done.put((None, error))

    threading.Thread(target=carry_out, name="within a time", daemon=True).start()
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"not done within {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # without an error it is one
