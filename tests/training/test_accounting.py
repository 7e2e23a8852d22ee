"""Toy runs that are killed, refuse and roll back: their own words account for all of their time and all samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.health.clock import ManualClock
from failsoft.health.faults import Fault, FaultKind, FaultPlan, burst
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.accounting.goodput import Account, account
from failsoft.training.accounting.stretches import Part
from failsoft.training.batches import GlobalBatches
from failsoft.training.letters.requeue import append_requeue
from failsoft.training.loop import Poisoned
from failsoft.training.progress import PositionMark
from tests.training.diary_loop import Death, DiaryTask, Setting, diary_loop, group_life

ALL = Setting(batches=GlobalBatches(num_samples=50, global_batch=4, seed=2), total=39, every=5, record=True)


def lived(folder: Path, setting: Setting, *deaths: int, faults: FaultPlan | None = None) -> None:
    for deadly in (*deaths, None):
        loop, _ = diary_loop(folder, setting, deadly=deadly, faults=faults)
        try:
            loop.run()
        except Death:
            assert deadly is not None


def clocked(
    folder: Path,
    clock: ManualClock,
    *,
    deadly: int | None,
    faults: FaultPlan | None = None,
    setting: Setting = ALL,
) -> None:
    """One life in which each batch takes a second."""
    loop, task = diary_loop(folder, setting, deadly=deadly, faults=faults)
    ledger = Ledger(folder / "ledger.jsonl", clock, side=Side.TRAINING, subject=folder.name)
    desk = replace(loop.desk, clock=clock, ledger=ledger)
    loop = replace(loop, desk=desk, checkpoints=replace(loop.checkpoints, ledger=ledger))
    assert isinstance(task, DiaryTask)
    task.clock = clock
    try:
        loop.run()
    except Death:
        assert deadly is not None


def accounted(folder: Path) -> Account:
    return account(read_ledger(folder / "ledger.jsonl").events, run=folder.name)


def test_each_refused_batch_costs_its_time_and_a_rollback_the_work_since_its_snapshot(tmp_path: Path) -> None:
    faults = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=17, count=5))
    clocked(tmp_path / "run", ManualClock(), deadly=None, faults=faults)
    result = accounted(tmp_path / "run")
    assert (result.seconds(Part.REFUSED), result.seconds(Part.UNDONE)) == (5.0, 2.0)  # a snapshot is due at step 15
    assert result.seconds(Part.PRODUCTIVE) == 39.0 - 5.0 - 2.0
    assert result.seconds(Part.STALL) == 0.0


def test_a_restart_costs_the_work_since_its_checkpoint_and_the_time_until_workers_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(PositionMark, "last_set_s", lambda _self: clock.wall_s() - 30.0)  # the file's time is real time
    clocked(tmp_path / "run", clock, deadly=13)
    clock.advance(30.0)
    clocked(tmp_path / "run", clock, deadly=None)
    result = accounted(tmp_path / "run")
    assert (result.seconds(Part.LOST), result.seconds(Part.UNSPLIT)) == (3.0, 30.0)
    assert result.seconds(Part.PRODUCTIVE) == 39.0
    assert result.wall_s == 39.0 + 3.0 + 30.0
    assert result.incidents[0].batches == 3


def test_the_last_sign_of_life_is_the_moment_of_the_last_batch_begun(tmp_path: Path) -> None:
    lived(tmp_path, ALL, 13)
    starts = [event for event in read_ledger(tmp_path / "ledger.jsonl").events if event.kind == "run_started"]
    assert starts[0].data["last_seen_s"] is None
    seen_s, changed_s = starts[1].data["last_seen_s"], (tmp_path / "position").stat().st_mtime
    assert 0.0 <= changed_s - seen_s < 60.0


WAYS_BACK = [(Poisoned.SKIP, 5), (Poisoned.SKIP, 10), (Poisoned.SKIP, 15), (Poisoned.REPLAY, 5)]
"""What becomes of a stretch, and how many batches in a row are bad: one, two and three remedies, the third on disk."""


@pytest.mark.parametrize(("poisoned", "count"), WAYS_BACK)
@settings(max_examples=3, deadline=None)
@given(deaths=st.lists(st.integers(0, 38), max_size=4), bad=st.integers(10, 34))
def test_a_run_killed_anywhere_around_a_rollback_accounts_for_every_sample(
    tmp_path_factory: pytest.TempPathFactory, poisoned: Poisoned, count: int, deaths: list[int], bad: int
) -> None:
    folder = tmp_path_factory.mktemp("killed")
    faults = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=bad, count=count))
    lived(folder, replace(ALL, poisoned=poisoned), *deaths, faults=faults)
    found = verify(folder)
    assert found.sound
    dead = sum(epoch.counts[Fate.DEAD] for epoch in found.epochs)
    positions = range(bad, min(bad + count, 39))
    assert dead == sum(len(ALL.batches.global_indices(position)) for position in positions)
    assert all(sum(epoch.counts.values()) == 50 and not epoch.counts[Fate.NOT_YET] for epoch in found.epochs)
    if poisoned is Poisoned.REPLAY:
        assert sum(epoch.counts[Fate.UNDONE] for epoch in found.epochs) == 0


@pytest.mark.parametrize("worlds", [(1, 2, 3), (4, 3, 1)])
def test_a_run_that_is_resized_at_each_restart_saw_each_sample_once(
    tmp_path: Path, worlds: tuple[int, int, int]
) -> None:
    group_life(tmp_path, ALL, worlds[0], 12)
    group_life(tmp_path, ALL, worlds[1], 28)
    group_life(tmp_path, ALL, worlds[2], None)
    found = verify(tmp_path)
    assert [epoch.counts[Fate.ONCE] for epoch in found.epochs] == [50, 50, 50]
    assert (found.worlds, found.generations) == (worlds, 3)
    assert found.repeated_batches == (12 - 10) + (28 - 25)


def test_a_stretch_that_is_met_again_costs_the_time_of_its_first_pass(tmp_path: Path) -> None:
    faults = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=17, count=5))
    setting = replace(ALL, poisoned=Poisoned.REPLAY)
    clocked(tmp_path / "run", ManualClock(), deadly=None, faults=faults, setting=setting)
    result = accounted(tmp_path / "run")
    assert result.seconds(Part.REFUSED) == 10.0  # both passes
    assert result.seconds(Part.UNDONE) == 2.0
    assert result.seconds(Part.PRODUCTIVE) == 39.0 - 5.0
    assert [incident.kind for incident in result.incidents] == ["rollback"]


def test_a_requeued_batch_is_no_longer_dead(tmp_path: Path) -> None:
    faults = FaultPlan(faults=(Fault(kind=FaultKind.NAN_BATCH, position=20),))
    lived(tmp_path, ALL, faults=faults)
    append_requeue(tmp_path, 20, at_s=0.0)
    lived(tmp_path, ALL, faults=faults)
    found = verify(tmp_path)
    assert (found.reached, found.generations) == (40, 2)
    assert [epoch.counts[Fate.ONCE] for epoch in found.epochs] == [50, 50, 50]


def test_a_batch_that_died_again_when_it_was_requeued_is_no_longer_dead_once_it_is_trained_on(tmp_path: Path) -> None:
    nan = [Fault(kind=FaultKind.NAN_BATCH, position=position) for position in (20, ALL.total)]
    lived(tmp_path, ALL, faults=FaultPlan(faults=tuple(nan[:1])))
    append_requeue(tmp_path, 20, at_s=0.0)
    lived(tmp_path, ALL, faults=FaultPlan(faults=tuple(nan)))
    assert [epoch.counts[Fate.DEAD] for epoch in verify(tmp_path).epochs] == [0, 4, 0]
    append_requeue(tmp_path, ALL.total, at_s=0.0)
    lived(tmp_path, ALL)
    assert [epoch.counts[Fate.ONCE] for epoch in verify(tmp_path).epochs] == [50, 50, 50]


def test_a_run_that_was_not_asked_to_keeps_no_record(tmp_path: Path) -> None:
    lived(tmp_path, replace(ALL, record=False))
    assert not (tmp_path / "consumed").exists()


def test_a_single_refused_batch_is_dead_and_nothing_else_is(tmp_path: Path) -> None:
    lived(tmp_path, ALL, faults=FaultPlan(faults=(Fault(kind=FaultKind.NAN_BATCH, position=20),)))
    found = verify(tmp_path)
    assert found.epochs[1].odd_ids[Fate.DEAD] == tuple(sorted(ALL.batches.global_indices(20).tolist()))
    assert [epoch.counts[Fate.DEAD] for epoch in found.epochs] == [0, 4, 0]
