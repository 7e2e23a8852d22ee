"""How a loader's worker ends without anybody waiting for what it held.

A worker may be killed at any instruction: while it holds the lock of the event by which torch tells it to leave, and
half-way through a message. torch's own ways of ending a worker and of reading from it would then wait for ever (seen on
torch 2.13 with workers that were killed; the comment in its ``_shutdown_workers`` knows of it).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch.utils.data._utils import signal_handling

_REAPED_WITHIN_S = 5.0
"""As torch waits: a process that the kernel does not let go is left to it."""


def keep_apart(iterator: Any) -> None:
    """Make the worker's death, and its end, a matter of whoever asks for its batches. To be called once, at the start.

    Args:
        iterator: of a torch ``DataLoader`` with workers. Its own ``_shutdown_workers``, which it also calls when it is
            at its end or forgotten, is replaced by one that waits for no lock.
    """
    if iterator._worker_pids_set:  # torch's handler of SIGCHLD raises in the middle of anything
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]  # of torch._C
        iterator._worker_pids_set = False
    results, pinning = iterator._worker_result_queue, getattr(iterator, "_pin_memory_thread_done_event", None)
    queues = list(iterator._index_queues)
    if pinning is None:  # the thread that pins memory reads the results, and is told by that same queue to leave
        results._writer.close()  # now only the worker writes: its death ends a message that it had begun
        queues.append(results)
    iterator._for_starting_workers = iterator._workers_done_event  # a worker that starts looks it up by its name
    iterator._workers_done_event = threading.Event()  # torch asks it about dead workers; the shared one, one may hold
    iterator._shutdown_workers = partial(_end, iterator._workers, queues, pinning)


def _end(workers: Sequence[Any], queues: Sequence[Any], pinning: Any) -> None:
    for worker in workers:
        worker.kill()  # nothing of it is needed: no polite end could be worth waiting for a read that hangs
    for worker in workers:
        worker.join(_REAPED_WITHIN_S)
    if pinning is not None:
        pinning.set()
    for queue in queues:
        queue.cancel_join_thread()
        queue.close()
