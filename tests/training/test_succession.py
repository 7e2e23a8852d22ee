"""Runs that are killed and go on from a snapshot in memory of the host, or from disk where that is right."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failsoft.errors import DropRateError, PreemptedError
from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.accounting.exactness import Fate, verify
from failsoft.training.loop import LoopPlan, Poisoned, TrainLoop
from failsoft.training.snapshots import refuge_note
from failsoft.training.snapshots.host_memory import HOST_MEMORY_VARIABLE
from failsoft.training.snapshots.refuge_opening import KEY_NAME
from failsoft.training.snapshots.snapshot import SnapshotPolicy
from tests.training.test_loop import Death, die_at, nan_at
from tests.training.toys import same, toy_loop, weights_of

PLAN = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=1000)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for ``/dev/shm``."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setenv(HOST_MEMORY_VARIABLE, str(folder))
    return folder


def run_of(folder: Path, *, plan: LoopPlan = PLAN, faults: FaultPlan | None = None) -> TrainLoop:
    policy = SnapshotPolicy()  # reads the variable now
    return toy_loop(folder, plan=replace(plan, snapshots=policy), faults=faults)


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def began(folder: Path) -> list[tuple[int, int]]:
    """Position and repeated batches of each group of workers."""
    return [(int(e.data["position"]), int(e.data["repeated_batches"])) for e in told(folder, "run_started")]


def left_in(memory: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in memory.rglob("*") if path.is_file()}


def files(memory: Path, kind: str) -> list[Path]:
    return sorted(memory.rglob(f"{kind}-*"), key=lambda path: path.stat().st_mtime_ns)


def undisturbed(folder: Path, *, plan: LoopPlan = PLAN, faults: FaultPlan | None = None) -> TrainLoop:
    loop = run_of(folder, plan=plan, faults=faults)
    loop.run()
    return loop


def test_a_killed_worker_goes_on_from_its_last_snapshot_and_not_from_disk(tmp_path: Path, memory: Path) -> None:
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
    assert left_in(memory) == set()


@given(deaths=st.lists(st.integers(0, 23), min_size=1, max_size=5), checkpoint_every=st.sampled_from([3, 8, 1000]))
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whenever_it_is_killed_and_however_often_it_repeats_few_batches_and_ends_the_same(
    deaths: list[int], checkpoint_every: int, tmp_path_factory: pytest.TempPathFactory, memory: Path
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


def published(folder: Path) -> set[int]:
    return {int(event.data["position"]) for event in told(folder, "checkpoint_published")}


def test_a_run_that_only_ever_progresses_in_memory_still_gets_its_checkpoint(tmp_path: Path, memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=10)
    for position in (5, 9, 13):
        die_at(run_of(tmp_path / "run", plan=plan), position)
    assert published(tmp_path / "run") == {10}


def test_each_sample_counts_once_when_runs_go_on_from_memory(tmp_path: Path, memory: Path) -> None:
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
    spoil: str, tmp_path: Path, memory: Path
) -> None:
    die_at(run_of(tmp_path / "run"), 15)
    note = files(memory, "note")[-1]
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


def test_killed_while_it_copies_a_worker_goes_on_from_the_snapshot_before(tmp_path: Path, memory: Path) -> None:
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


def goes_by_disk(folder: Path, loop: TrainLoop, *, to: int) -> None:
    loop.run()
    assert began(folder)[-1][0] == to
    assert all(event.data["source"] == "disk" for event in told(folder, "restored"))


def test_a_checkpoint_that_is_as_new_as_the_snapshot_goes_first(tmp_path: Path, memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=8)
    die_at(run_of(tmp_path, plan=plan), 9)
    goes_by_disk(tmp_path, run_of(tmp_path, plan=plan), to=8)


def test_another_host_has_no_snapshot_and_goes_by_disk(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, checkpoint_every_steps=8)
    die_at(run_of(tmp_path, plan=plan), 15)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv(HOST_MEMORY_VARIABLE, str(tmp_path / "other"))
    goes_by_disk(tmp_path, run_of(tmp_path, plan=plan), to=8)


def test_another_run_in_the_same_place_takes_nothing_over(tmp_path: Path, memory: Path) -> None:
    die_at(run_of(tmp_path / "run"), 15)
    for path in (tmp_path / "run").iterdir():  # somebody starts afresh under the same name
        if path.is_file():
            path.unlink()
    assert not (tmp_path / "run" / KEY_NAME).exists()
    run_of(tmp_path / "run").run()
    assert began(tmp_path / "run") == [(0, 0)]


def test_other_code_goes_on_and_says_so(tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die_at(run_of(tmp_path), 15)
    monkeypatch.setattr("failsoft.training.succession.versions", lambda: {"torch": "another"})
    run_of(tmp_path).run()
    assert began(tmp_path)[-1] == (12, 3)
    (said,) = told(tmp_path, "versions_differ")
    assert said.data["versions"]["torch"][1] == "another"


def test_other_settings_take_nothing_over(tmp_path: Path, memory: Path) -> None:
    die_at(run_of(tmp_path), 15)
    goes_by_disk(tmp_path, run_of(tmp_path, plan=replace(PLAN, seed=4)), to=0)


def test_a_snapshot_of_another_number_of_ranks_is_not_used_and_its_memory_is_given_back(
    tmp_path: Path, memory: Path
) -> None:
    die_at(run_of(tmp_path), 15)
    (folder,) = memory.glob("*/*/rank-0000-of-0001")
    folder.rename(folder.with_name("rank-0000-of-0002"))
    goes_by_disk(tmp_path, run_of(tmp_path), to=0)
    assert left_in(memory) == set()


def test_a_format_that_is_not_known_is_no_snapshot(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(run_of(tmp_path), 15)
    monkeypatch.setattr(refuge_note, "FORMAT", 2)
    goes_by_disk(tmp_path, run_of(tmp_path), to=0)


def test_who_takes_checkpoints_away_to_go_on_from_an_older_one_gets_that(tmp_path: Path, memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=4)
    loop = run_of(tmp_path, plan=plan)
    die_at(loop, 15)
    loop.checkpoints.store.remove("position-000000000012")
    loop.checkpoints.store.remove("position-000000000008")
    goes_by_disk(tmp_path, run_of(tmp_path, plan=plan), to=4)


def test_a_damaged_checkpoint_does_not_keep_a_run_from_going_on_from_memory(tmp_path: Path, memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=8)
    loop = run_of(tmp_path, plan=plan)
    die_at(loop, 15)
    damaged = loop.checkpoints.store.root / "position-000000000008" / "state.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    run_of(tmp_path, plan=plan).run()
    assert began(tmp_path)[-1] == (12, 3)


def test_what_a_rollback_to_disk_undoes_comes_back_from_nowhere(tmp_path: Path, memory: Path) -> None:
    plan = LoopPlan(
        total_batches=40, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8, poisoned=Poisoned.REPLAY
    )
    faults = FaultPlan(faults=burst(FaultKind.INF_GRADIENT, first=14, count=9))
    oracle = undisturbed(tmp_path / "oracle", plan=plan, faults=faults)
    for position in (13, 15, 17, 23, 25):
        die_at(run_of(tmp_path / "run", plan=plan, faults=faults), position)
    last = undisturbed(tmp_path / "run", plan=plan, faults=faults)
    assert same(weights_of(last.state.model), weights_of(oracle.state.model))


def test_without_room_a_run_goes_on_says_so_once_and_is_carried_by_its_checkpoints(
    tmp_path: Path, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(memory)
    fields = dict(zip(("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail"), real, strict=False))
    small = type("Small", (), fields | {"f_bavail": 0})()
    monkeypatch.setattr(os, "statvfs", lambda _path: small)
    plan = replace(PLAN, checkpoint_every_steps=8)
    die_at(run_of(tmp_path, plan=plan), 15)
    (said,) = told(tmp_path, "snapshots_go_with_worker")
    assert "bytes left" in said.why
    assert "--shm-size" in said.why
    goes_by_disk(tmp_path, run_of(tmp_path, plan=plan), to=8)


@pytest.mark.parametrize("place", ["absent", "/proc"])
def test_a_place_that_is_none_is_said_and_nothing_else(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST_MEMORY_VARIABLE, str(tmp_path / place))
    run_of(tmp_path).run()
    assert len(told(tmp_path, "snapshots_go_with_worker")) == 1
    assert len(told(tmp_path, "run_finished")) == 1


def test_turned_off_it_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOST_MEMORY_VARIABLE, "off")
    run_of(tmp_path).run()
    assert told(tmp_path, "snapshots_go_with_worker") == []


def test_a_run_that_was_told_to_leave_and_saved_leaves_nothing_in_memory(tmp_path: Path, memory: Path) -> None:
    loop = run_of(tmp_path)
    loop.told = lambda: "the node is wanted" if loop.state.position == 14 else None
    with pytest.raises(PreemptedError):
        loop.run()
    assert left_in(memory) == set()


def test_a_diagnosis_leaves_nothing_in_memory(tmp_path: Path, memory: Path) -> None:
    plan = LoopPlan(total_batches=200, seed=3, snapshot_every_steps=50, checkpoint_every_steps=100)
    with pytest.raises(DropRateError):
        run_of(tmp_path, plan=plan, faults=nan_at(*range(0, 200, 3))).run()
    assert left_in(memory) == set()


def test_two_buffers_are_all_that_a_run_ever_takes(tmp_path: Path, memory: Path) -> None:
    for position in (13, 15, 18):
        die_at(run_of(tmp_path), position)
        sizes = [path.stat().st_size for path in files(memory, "body")]
        assert len(sizes) == 2
        assert len(set(sizes)) == 1
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in memory.rglob("*-*") if path.is_file())
