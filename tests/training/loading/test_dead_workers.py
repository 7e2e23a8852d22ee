"""A worker that is killed may hold a lock or be half-way through a message: nobody waits for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from failsoft.health.clock import SystemClock
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.lane import Fallen, Lane, LoaderPolicy
from failsoft.training.loading.order import RankOrder

BIG = 1_000_000
"""Bytes of a sample: many times what a pipe holds, so that a worker stands in the middle of writing it."""


class BigRows:
    """Rows that travel in the message itself and not in shared memory."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> dict[str, NDArray[np.uint8]]:
        return {"x": np.full(BIG, index, dtype=np.uint8)}


def as_arrays(samples: list[dict[str, NDArray[np.uint8]]]) -> dict[str, NDArray[np.uint8]]:
    return {"x": np.stack([sample["x"] for sample in samples])}


def lane_of() -> Lane:
    batches = GlobalBatches(num_samples=40, global_batch=4, seed=2)
    order = RankOrder(batches=batches, rank=0, world=1, total=10)
    checked = Checked(BigRows(), reserve=order.reserve, collate=as_arrays)
    return Lane(checked, order, LoaderPolicy(workers=1, look_every_s=0.1), SystemClock(), stride=1)


def within(seconds: float, work: Callable[[], Any]) -> list[Any]:
    """What ``work`` gives, in a list; an empty one when it is not over in time."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    return found


def test_a_lock_that_a_killed_worker_held_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that looks whether it shall leave, and is killed just then."""
    shared = list[Any]()
    made = torch.multiprocessing.get_context("forkserver").Event

    def remembered() -> Any:
        shared.append(made())
        return shared[-1]

    monkeypatch.setattr(type(torch.multiprocessing.get_context("forkserver")), "Event", lambda _self: remembered())
    lane = lane_of()
    lane.fetch(0)
    shared[0]._cond.acquire()
    assert lane.pid is not None
    os.kill(lane.pid, signal.SIGKILL)
    lane._iterator._workers[0].join(60.0)
    found = within(60.0, lambda: lane.fetch(1))
    assert found, "torch waits for the lock to say that its worker is dead"
    assert isinstance(found[0], Fallen)
    assert within(60.0, lane.stop) == [None]


def test_a_message_that_a_killed_worker_has_half_written_is_its_end_and_not_waited_for() -> None:
    lane = lane_of()
    lane.fetch(0)
    assert lane._iterator._worker_result_queue._reader.poll(60.0), "the next batch is being written"
    assert lane.pid is not None
    os.kill(lane.pid, signal.SIGKILL)
    found = within(60.0, lambda: lane.fetch(1))
    assert found
    assert isinstance(found[0], Fallen)
    assert "SIGKILL" in found[0].cause
    assert within(60.0, lambda: lane.fetch(1))[0].real == 4
    lane.stop()
