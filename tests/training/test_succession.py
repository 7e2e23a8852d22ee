"""Runs that are killed and go on from a snapshot in memory of the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.loop import TrainLoop
from failsoft.training.snapshots.refuge import Refuge
from tests.training.killed_runs import PLAN, began, files, left_in, published, run_of, told, undisturbed
from tests.training.test_loop import Death, die_at
from tests.training.toys import same, weights_of


def test_a_killed_worker_goes_on_from_its_last_snapshot_and_not_from_disk(tmp_path: Path, host_memory: Path) -> None:
    die_at(run_of(tmp_path / "run"), 15)
    again = run_of(tmp_path / "run")
    again.run()
    assert began(tmp_path / "run") == [(0, 0), (12, 3)]
    (restored,) = told(tmp_path / "run", "restored")
    assert restored.data["source"] == "memory of the host"
    assert restored.data["checkpoint"] == "the snapshot of step 12"
    oracle = undisturbed(tmp_path / "oracle")
    assert same(weights_of(again.state.model), weights_of(oracle.state.model))
    assert again.breaker.state_dict() == oracle.breaker.state_dict()
    assert left_in(host_memory) == set()


@given(deaths=st.lists(st.integers(0, 23), min_size=1, max_size=5), checkpoint_every=st.sampled_from([3, 8, 1000]))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whenever_it_is_killed_and_however_often_it_repeats_few_batches_and_ends_the_same(
    deaths: list[int], checkpoint_every: int, tmp_path_factory: pytest.TempPathFactory, host_memory: Path
) -> None:
    folder = tmp_path_factory.mktemp("killed")
    plan = replace(PLAN, checkpoint_every_steps=checkpoint_every, checkpoint_at_epoch_end=True)
    faults = FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=10, count=5))
    for position in sorted(deaths):
        die_at(run_of(folder / "run", plan=plan, faults=faults), position)
    last = undisturbed(folder / "run", plan=plan, faults=faults)
    oracle = undisturbed(folder / "oracle", plan=plan, faults=faults)
    assert same(weights_of(last.state.model), weights_of(oracle.state.model))
    assert last.breaker.state_dict() == oracle.breaker.state_dict()
    assert published(folder / "run") == published(folder / "oracle")
    assert all(repeated <= 4 + 5 for _, repeated in began(folder / "run"))  # 4 updates, and 5 that were refused


def test_a_run_that_only_ever_progresses_in_memory_still_gets_its_checkpoint(tmp_path: Path, host_memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=10)
    for position in (5, 9, 13):
        die_at(run_of(tmp_path / "run", plan=plan), position)
    assert published(tmp_path / "run") == {10}


def test_each_sample_counts_once_when_runs_go_on_from_memory(tmp_path: Path, host_memory: Path) -> None:
    def recorded() -> TrainLoop:
        loop = run_of(tmp_path / "run")
        loop.desk = replace(loop.desk, record_consumed=True)
        loop.__post_init__()
        return loop

    for position in (6, 15, 15, 22):
        die_at(recorded(), position)
    recorded().run()
    proof = verify(tmp_path / "run")
    assert [report.counts[Fate.ONCE] for report in proof.epochs] == [64] * 3
    assert proof.repeated_batches == 2 + 3 + 3 + 2


@pytest.mark.parametrize("spoil", ["cut the note", "change the note", "change a number", "cut the numbers"])
def test_a_snapshot_that_is_not_what_was_summed_up_is_not_used_but_the_one_before(
    spoil: str, tmp_path: Path, host_memory: Path
) -> None:
    die_at(run_of(tmp_path / "run"), 15)
    note = files(host_memory, "note")[-1]
    victim = note if "note" in spoil else note.with_name(note.name.replace("note-", "body-"))
    content = bytearray(victim.read_bytes())
    if "cut" in spoil:
        del content[len(content) // 2 :]
    else:
        content[len(content) // 3] ^= 4
    victim.write_bytes(content)
    again = run_of(tmp_path / "run")
    again.run()
    assert began(tmp_path / "run") == [(0, 0), (8, 7)]
    assert same(weights_of(again.state.model), weights_of(undisturbed(tmp_path / "oracle").state.model))


def never_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is always killed before the thread behind it has summed a snapshot up."""
    monkeypatch.setattr(Refuge, "_seal", lambda *_: None)


@pytest.mark.parametrize("death", [4, 5, 8, 11, 12, 13, 16, 23])
def test_killed_before_its_snapshot_is_summed_up_a_worker_repeats_no_more_than_its_interval(
    death: int, tmp_path: Path, host_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as for_once:
        never_summed_up(for_once)
        die_at(run_of(tmp_path / "run"), death)
    again = run_of(tmp_path / "run")
    again.run()
    assert began(tmp_path / "run") == [(0, 0), (death - death % 4, death % 4)]
    assert same(weights_of(again.state.model), weights_of(undisturbed(tmp_path / "oracle").state.model))


def test_a_snapshot_that_nobody_summed_up_is_not_used_once_a_number_in_it_is_not_finite(
    tmp_path: Path, host_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as for_once:
        never_summed_up(for_once)
        die_at(run_of(tmp_path / "run"), 15)
    note = files(host_memory, "note")[-1]
    body = note.with_name(note.name.replace("note-", "body-"))
    content = bytearray(body.read_bytes())
    content[: len(content) // 2] = b"\xff" * (len(content) // 2)
    body.write_bytes(content)
    again = run_of(tmp_path / "run")
    again.run()
    assert began(tmp_path / "run") == [(0, 0), (8, 7)]
    assert same(weights_of(again.state.model), weights_of(undisturbed(tmp_path / "oracle").state.model))


def test_killed_while_it_copies_a_worker_goes_on_from_the_snapshot_before(tmp_path: Path, host_memory: Path) -> None:
    loop = run_of(tmp_path / "run")
    fill = loop._snapshots.take

    def dies_at_the_third() -> str | None:
        if loop.state.step == 12:
            arena = loop._snapshots._spare
            assert arena is not None
            loop._snapshots.room.settle()
            loop._snapshots.room.filling(arena)
            arena._raw[: len(arena._raw) // 2] = 7
            raise Death
        return fill()

    loop._snapshots.take = dies_at_the_third  # type: ignore[method-assign]
    with pytest.raises(Death):
        loop.run()
    again = run_of(tmp_path / "run")
    again.run()
    assert began(tmp_path / "run") == [(0, 0), (8, 3)]
    assert same(weights_of(again.state.model), weights_of(undisturbed(tmp_path / "oracle").state.model))
