"""Snapshots in memory of a host find their ranks when those have changed hosts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from failsoft.health.clock import ManualClock
from failsoft.training.rng import capture_rng
from failsoft.training.snapshots import refuge_moving
from failsoft.training.snapshots.refuge import Refuge
from failsoft.training.snapshots.refuge_folder import RefugeFolder
from failsoft.training.snapshots.refuge_moving import OnHost, Route, bring_home, routes
from failsoft.training.snapshots.refuge_note import Moment, Note, Owner, checksum
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from tests.training.diary_loop import ThreadRanks

OWNER = Owner(run="00000000000000aa", rank=0, world=3, bound="blake3:11")
SIZE = 1000


def at(position: int) -> Moment:
    return Moment(group="g", number=position, position=position, step=position)


def opened(host: Path, rank: int) -> Refuge:
    owner = replace(OWNER, rank=rank)
    folder = RefugeFolder(host, owner)
    folder.open(ManualClock(), patience_s=0.0)
    return Refuge(folder, owner=owner, place=SnapshotPlace.EACH_RANK, group="h", max_fraction=0.5)


def left(host: Path, rank: int, position: int, *, summed: bool = True) -> None:
    """What a killed worker leaves; not ``summed``: killed before its sum was known."""
    folder = opened(host, rank).folder
    body = folder.new_body(SIZE, max_fraction=0.5)
    body.numbers[:] = rank + 10 * position
    folder.write_note(
        Note(
            owner=replace(OWNER, rank=rank),
            moment=at(position),
            body=body.path.name,
            size_bytes=SIZE,
            checksum=checksum(body.numbers) if summed else "",
            place=SnapshotPlace.EACH_RANK,
            parts="[]",
            scalars={},
            rng=capture_rng(),
            beside={},
        )
    )
    folder.close()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(refuge_moving, "_PIECE_BYTES", 300)
    folders = [tmp_path / f"host-{number}" for number in range(3)]
    for folder in folders:
        folder.mkdir()
    return folders


def arrive(hosts: Sequence[Path | None], *, newer_than: int = -1) -> tuple[list[Route], list[Refuge | None]]:
    """Ranks 0, 1 and 2 arrive on these hosts, or have no room there."""
    refuges = [None if host is None else opened(host, rank) for rank, host in enumerate(hosts)]
    table: list[object] = [None] * 3
    meeting = threading.Barrier(3, timeout=60.0)
    group = [ThreadRanks(rank, 3, table, meeting) for rank in range(3)]
    with ThreadPoolExecutor(3) as threads:
        moved = list(threads.map(lambda rank: bring_home(refuges[rank], group[rank], newer_than=newer_than), range(3)))
    assert moved[0] == moved[1] == moved[2]
    return moved[0], refuges


def numbers(refuge: Refuge | None) -> list[int]:
    """Of each snapshot that its rank could go on from."""
    assert refuge is not None
    bodies = [(refuge.folder.old_body(note.body, note.size_bytes).numbers, note) for note in refuge.notes()]
    assert all(checksum(body) == note.checksum for body, note in bodies)
    return [int(np.unique(body).item()) for body, _ in bodies]


def test_each_rank_finds_its_own_newest_snapshot_wherever_it_was_left(hosts: list[Path]) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 4)
        left(hosts[rank], rank, 8)
    moved, refuges = arrive([hosts[1], hosts[2], hosts[2]])
    assert moved == []  # nobody of this group is on the host of rank 0's
    for refuge in refuges:
        assert refuge is not None
        refuge.close()
    moved, refuges = arrive([hosts[1], hosts[2], hosts[0]])
    assert [(way.rank, way.carrier, way.moment.position) for way in moved] == [(0, 2, 8), (1, 0, 8), (2, 1, 8)]
    assert [numbers(refuge) for refuge in refuges] == [[80], [81], [82]]


def test_what_was_not_summed_up_yet_is_summed_up_for_the_way(hosts: list[Path]) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 4, summed=False)
    moved, refuges = arrive([hosts[1], hosts[0], hosts[2]])
    assert [(way.rank, way.carrier) for way in moved] == [(0, 1), (1, 0)]
    assert [numbers(refuge) for refuge in refuges[:2]] == [[40], [41]]


def test_numbers_that_a_worker_not_quite_dead_touches_while_they_are_summed_up_are_no_snapshot(
    hosts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 4, summed=False)

    def touched_meanwhile(sums: NDArray[np.uint8]) -> str:
        owner = RefugeFolder(hosts[0], OWNER)  # of rank 0, which has arrived on another host
        for note in owner.notes():
            if owner.old_body(note.body, SIZE).numbers[0] == sums[0]:
                owner.drop_note(note.body)
                sums[: SIZE // 2] = 99
        return checksum(sums)

    monkeypatch.setattr(refuge_moving, "checksum", touched_meanwhile)
    moved, refuges = arrive([hosts[1], hosts[0], hosts[2]])
    assert [(way.rank, way.carrier) for way in moved] == [(0, 1), (1, 0)]
    assert [numbers(refuge) for refuge in refuges[:2]] == [[], [41]]


def test_who_is_where_it_was_moves_nothing(hosts: list[Path]) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 4)
    assert arrive(hosts)[0] == []


def test_what_a_checkpoint_is_as_new_as_is_not_worth_the_way(hosts: list[Path]) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 8)
    assert arrive([hosts[1], hosts[0], hosts[2]], newer_than=8)[0] == []


def test_where_a_rank_has_no_room_nobodys_is_moved(hosts: list[Path]) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 8)
    assert arrive([hosts[1], hosts[0], None])[0] == []


def test_numbers_that_went_meanwhile_keep_nobody_waiting_and_are_no_snapshot(hosts: list[Path]) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 8)
    next(hosts[0].rglob("body-*")).unlink()
    _, refuges = arrive([hosts[1], hosts[0], hosts[2]])
    assert [numbers(refuge) for refuge in refuges] == [[], [81], [82]]


def test_a_host_that_is_full_keeps_nobody_waiting_and_takes_no_snapshot(
    hosts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(3):
        left(hosts[rank], rank, 8)

    def full(*_args: object, **_settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RefugeFolder, "new_body", full)
    _, refuges = arrive([hosts[1], hosts[0], hosts[2]])
    assert [numbers(refuge) for refuge in refuges] == [[], [], [82]]


found = st.dictionaries(st.integers(0, 2), st.lists(st.integers(1, 4).map(at), max_size=3), max_size=3)


@given(on_hosts=st.lists(found, min_size=3, max_size=3), newer_than=st.integers(-1, 4))
def test_after_all_ways_each_rank_has_the_newest_moment_that_was_there_for_all(
    on_hosts: list[OnHost], newer_than: int
) -> None:
    ways = routes(on_hosts, newer_than=newer_than)
    anywhere = [{moment for host in on_hosts for moment in host.get(rank, ())} for rank in range(3)]
    newest = max((one.position for one in set.intersection(*anywhere)), default=-1)
    if newest <= newer_than:
        assert ways == []
        return
    assert all(way.moment == at(newest) for way in ways)
    assert all(way.moment in on_hosts[way.carrier].get(way.rank, ()) for way in ways)
    away = {way.rank for way in ways}
    assert away == {rank for rank in range(3) if at(newest) not in on_hosts[rank].get(rank, ())}
