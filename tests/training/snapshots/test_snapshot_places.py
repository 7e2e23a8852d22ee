"""Where a run keeps its RAM snapshots: per config, told in the ledger, and without a difference to what is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.health.ledger import read_ledger
from failsoft.training.batches import GlobalBatches
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from tests.training.diary_loop import Setting, group_life
from tests.training.toys import same, weights_of


def setting(place: SnapshotPlace) -> Setting:
    batches = GlobalBatches(num_samples=48, global_batch=6, seed=3)
    faults = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=18, count=12))  # twice to RAM: as it is, and slower
    return Setting(batches=batches, total=40, every=14, dropout=0.0, place=place, faults=faults)


@pytest.mark.parametrize("place", [SnapshotPlace.RANK_ZERO, SnapshotPlace.SHARDED])
def test_two_ranks_roll_back_to_the_same_weights_wherever_their_snapshots_lie(
    tmp_path: Path, place: SnapshotPlace
) -> None:
    expected = group_life(tmp_path / "each", setting(SnapshotPlace.EACH_RANK), 2, None)[0][0]
    for loop, _ in group_life(tmp_path / "other", setting(place), 2, None):
        assert loop.breaker.rollbacks == 2
        assert (loop.state.position, loop.state.step) == (expected.state.position, expected.state.step)
        assert same(weights_of(loop.state.model), weights_of(expected.state.model))


def test_the_ledger_says_how_much_ram_the_snapshots_take_and_where(tmp_path: Path) -> None:
    group_life(tmp_path, setting(SnapshotPlace.SHARDED), 2, None)
    told = [event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "snapshot_memory"]
    last = told[-1].data
    assert last["place"] == "sharded"
    assert last["held_bytes"] == last["most_bytes"] == last["most_bytes_by_place"]["sharded"]
    assert 0 < last["held_bytes"] < last["most_bytes_by_place"]["each_rank"]
    assert len(told) <= 4, "it is told when it changes, not with each snapshot"
