"""Copies to host memory are made aside: nobody waits for them, and a newer plan is followed once they are done."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.artifacts.home import Home
from failsoft.health.clock import ManualClock
from failsoft.serving.plan.plan import Colour, RoutingPlan
from failsoft.serving.replicas.host_shelf import HostShelf
from failsoft.serving.replicas.slot_memory import SlotMemory
from tests.serving.fakes import plan


class SlowShelf(HostShelf):
    """Copies for as long as the test says."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(Home(root=tmp_path).releases(ManualClock()), tmp_path / "memory", ManualClock())
        self.asked: list[list[str]] = []
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.fails: Exception | None = None

    def keep(self, names: Iterable[str]) -> None:
        self.asked.append(sorted(names))
        self.begun.release()
        assert self.may_end.acquire(timeout=5.0)
        if self.fails:
            raise self.fails


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[SlowShelf]:
    shelf = SlowShelf(tmp_path)
    yield shelf
    shelf.may_end.release(100)


def naming(*releases: str) -> RoutingPlan:
    return replace(plan(), releases=dict(zip(Colour, (*releases, None), strict=False)))


def until_done(memory: SlotMemory, shelf: SlowShelf) -> None:
    shelf.may_end.release()
    done = threading.Event()
    memory._copier.submit(done.set)  # behind the copy, in the same thread
    assert done.wait(5.0)


def test_nobody_waits_for_a_copy_and_a_newer_plan_is_kept_for_behind_it(shelf: SlowShelf) -> None:
    memory = SlotMemory(shelf)
    memory.keep_for(naming("r1", "r2"))
    assert shelf.begun.acquire(timeout=5.0)
    assert memory.status()["copying"] is True
    memory.keep_for(naming("r3", "r1"))
    assert shelf.asked == [["r1", "r2"]], "one copy at a time"
    until_done(memory, shelf)
    memory.keep_for(naming("r3", "r1"))
    assert shelf.begun.acquire(timeout=5.0)
    assert shelf.asked == [["r1", "r2"], ["r1", "r3"]]


def test_what_is_kept_is_not_copied_again_unless_a_part_was_refused(shelf: SlowShelf) -> None:
    memory = SlotMemory(shelf)
    memory.keep_for(naming("r1"))
    until_done(memory, shelf)
    memory.keep_for(naming("r1"))
    assert shelf.asked == [["r1"]]
    shelf.refusals["r1"] = "no room"
    memory.keep_for(naming("r1"))
    assert shelf.begun.acquire(timeout=5.0)
    assert shelf.begun.acquire(timeout=5.0)
    assert shelf.asked == [["r1"], ["r1"]]


def test_a_bug_in_the_copying_is_not_hidden(shelf: SlowShelf) -> None:
    memory, shelf.fails = SlotMemory(shelf), ZeroDivisionError("a bug")
    memory.keep_for(naming("r1"))
    until_done(memory, shelf)
    with pytest.raises(ZeroDivisionError):
        memory.keep_for(naming("r1"))
