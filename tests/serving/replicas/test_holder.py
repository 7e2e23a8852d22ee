"""A model replica swaps releases whole and keeps the old one when the new one will not load."""

from __future__ import annotations

import asyncio
import threading

import pytest

from failsoft.errors import DamagedArtifactError
from failsoft.serving.plan.plan import Colour
from failsoft.serving.replicas.holder import ReleaseHolder, Wanted, wanted_of
from tests.serving.fakes import plan

pytestmark = pytest.mark.anyio


def wish(release: str, generation: int = 1) -> Wanted:
    return Wanted(release=release, load_generation=generation)


class Disk:
    """Counts loads, refuses what is damaged, and can make one load wait."""

    def __init__(self) -> None:
        self.loads: list[str] = []
        self.damaged: set[str] = set()
        self.open_gate = threading.Event()
        self.open_gate.set()

    def load(self, release: str) -> str:
        self.loads.append(release)
        self.open_gate.wait(5.0)
        if release in self.damaged:
            raise DamagedArtifactError(f"{release} is torn")
        return f"predictor of {release}"


def holder(disk: Disk, refusals: list[str] | None = None) -> ReleaseHolder[str]:
    return ReleaseHolder(disk.load, lambda _wanted, why: refusals.append(why) if refusals is not None else None)


async def test_a_release_is_loaded_once_for_each_generation() -> None:
    disk = Disk()
    shelf = holder(disk)
    for generation in (1, 1, 2):
        await shelf.want(wish("r1", generation))
    assert disk.loads == ["r1", "r1"]
    assert shelf.held is not None
    assert shelf.held.wanted == wish("r1", 2)


async def test_a_release_that_is_refused_again_and_again_is_told_once() -> None:
    """It is tried every two seconds; told each time it would fill the ledger."""
    disk, refusals = Disk(), list[str]()
    shelf = holder(disk, refusals)
    disk.damaged.add("r2")
    for _ in range(3):
        await shelf.want(wish("r2"))
    assert disk.loads == ["r2"] * 3
    assert refusals == ["r2 did not load: r2 is torn"]
    disk.damaged.clear()
    await shelf.want(wish("r2"))
    disk.damaged.add("r2")
    await shelf.want(wish("r2", 2))
    assert len(refusals) == 2


async def test_going_back_to_what_is_held_ends_the_refusal() -> None:
    disk = Disk()
    shelf = holder(disk)
    await shelf.want(wish("r1"))
    disk.damaged.add("r2")
    await shelf.want(wish("r2"))
    await shelf.want(wish("r1"))
    assert shelf.refusal is None


async def test_a_release_that_will_not_load_leaves_the_old_one_in_place_and_says_why() -> None:
    disk, refusals = Disk(), list[str]()
    shelf = holder(disk, refusals)
    await shelf.want(wish("r1"))
    disk.damaged.add("r2")
    await shelf.want(wish("r2"))
    assert shelf.held is not None
    assert shelf.held.predictor == "predictor of r1"
    assert shelf.ready
    assert refusals == [shelf.refusal]
    assert "r2 is torn" in refusals[0]


async def test_a_loader_that_raises_anything_at_all_is_a_refusal() -> None:
    def broken(_release: str) -> str:
        raise KeyError("intent_head.weight")

    shelf: ReleaseHolder[str] = ReleaseHolder(broken, lambda _wanted, _why: None)
    await shelf.want(wish("r1"))
    assert not shelf.ready
    assert "intent_head.weight" in (shelf.refusal or "")


async def test_the_old_release_answers_while_the_new_one_loads() -> None:
    disk = Disk()
    shelf = holder(disk)
    await shelf.want(wish("r1"))
    disk.open_gate.clear()
    loading = asyncio.create_task(shelf.want(wish("r2")))
    await asyncio.sleep(0.01)
    held_meanwhile = shelf.held
    disk.open_gate.set()
    await loading
    assert held_meanwhile is not None
    assert held_meanwhile.wanted.release == "r1"
    assert shelf.held is not None
    assert shelf.held.wanted.release == "r2"


async def test_the_last_wish_wins() -> None:
    disk = Disk()
    shelf = holder(disk)
    disk.open_gate.clear()
    wishes = [asyncio.create_task(shelf.want(wish(name))) for name in ("r1", "r2", "r3")]
    await asyncio.sleep(0.01)
    disk.open_gate.set()
    await asyncio.gather(*wishes)
    assert shelf.held is not None
    assert shelf.held.wanted.release == "r3"
    assert disk.loads == ["r1", "r3"]


async def test_an_idle_colour_is_ready_with_nothing() -> None:
    shelf = holder(Disk())
    await shelf.want(wanted_of(plan(), Colour.GREEN))
    assert shelf.ready
    assert shelf.held is None


def test_a_colour_wants_its_release_at_its_generation() -> None:
    assert wanted_of(plan(), Colour.BLUE) == wish("r1", 1)
