"""The one place of a large model: the old one leaves first, and what a swap took is measured."""

from __future__ import annotations

import asyncio
import threading

import pytest

from failsoft.errors import DamagedArtifactError
from failsoft.health.clock import ManualClock
from failsoft.serving.replicas.holder import Wanted
from failsoft.serving.replicas.slot import SlotHolder, Swap

pytestmark = pytest.mark.anyio


def wish(release: str, generation: int = 1) -> Wanted:
    return Wanted(release=release, load_generation=generation)


class Device:
    """Room for one release. Loads take made-up time; what is damaged is refused."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loaded: set[str] = set()
        self.most = 0
        self.loads: list[str] = []
        self.damaged: set[str] = set()
        self.in_memory: set[str] = set()
        self.refusals: list[str] = []
        self.swaps: list[Swap] = []
        self.asked_for = threading.Event()
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.slot: SlotHolder[str] = SlotHolder(
            self._load,
            on_refusal=lambda _wanted, why: self.refusals.append(why),
            on_swap=self.swaps.append,
            clock=self.clock,
            let_go=self.loaded.discard,
        )

    def holds(self) -> Wanted | None:
        """What is held now."""
        return None if self.slot.held is None else self.slot.held.wanted

    def _load(self, release: str) -> tuple[str, bool]:
        self.loads.append(release)
        self.asked_for.set()
        assert self.open_gate.wait(5.0)
        self.clock.advance(0.5 if release in self.in_memory else 40.0)
        if release in self.damaged:
            raise DamagedArtifactError(f"{release} is torn")
        self.loaded.add(release)
        self.most = max(self.most, len(self.loaded))
        return release, release in self.in_memory


async def test_two_releases_are_never_on_the_device_together() -> None:
    device = Device()
    for release in ("r1", "r2", "r1"):
        await device.slot.want(wish(release))
    assert (device.most, device.loaded) == (1, {"r1"})


async def test_a_swap_is_measured_from_the_last_answer_of_the_old_to_the_first_of_the_new() -> None:
    device = Device()
    await device.slot.want(wish("r1"))
    device.in_memory.add("r1")
    await device.slot.want(wish("r2"))
    await device.slot.want(wish("r1", 3))
    assert [(swap.release, swap.took_s, swap.from_memory) for swap in device.swaps] == [
        ("r1", 40.0, False),
        ("r2", 40.0, False),
        ("r1", 0.5, True),
    ]
    assert device.slot.status() == {"loading": False, "swap": "r1 was read from host memory in 0.50 s"}


async def test_while_a_swap_is_under_way_nothing_is_held_and_the_replica_counts_as_alive() -> None:
    device = Device()
    await device.slot.want(wish("r1"))
    device.open_gate.clear()
    device.asked_for.clear()
    swapping = asyncio.create_task(device.slot.want(wish("r2")))
    await asyncio.to_thread(device.asked_for.wait, 5.0)
    assert (device.holds(), device.slot.loading, device.slot.ready) == (None, True, True)
    device.open_gate.set()
    await swapping
    assert device.holds() == wish("r2")


async def test_a_release_that_will_not_load_leaves_the_slot_empty_and_says_why_once() -> None:
    device = Device()
    await device.slot.want(wish("r1"))
    device.damaged.add("r2")
    for _ in range(3):
        await device.slot.want(wish("r2"))
    assert device.holds() is None
    assert (device.slot.loading, device.slot.ready) == (False, False)
    assert device.refusals == ["r2 did not load: r2 is torn"]
    await device.slot.want(wish("r1", 3))
    assert (device.slot.refusal, device.loaded) == (None, {"r1"})


async def test_the_last_wish_wins_and_what_is_held_is_not_read_again() -> None:
    device = Device()
    device.open_gate.clear()
    wishes = [asyncio.create_task(device.slot.want(wish(name))) for name in ("r1", "r2", "r3")]
    await asyncio.sleep(0.01)
    device.open_gate.set()
    await asyncio.gather(*wishes)
    await device.slot.want(wish("r3"))
    assert device.loads == ["r1", "r3"]
    await device.slot.want(None)
    assert device.holds() == wish("r3")
