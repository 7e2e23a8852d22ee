"""When a run goes on from disk although a worker has left snapshots in memory, and when nothing is left there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.errors import DropRateError, IncompatibleArtifactError, PreemptedError
from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.training.loop import LoopPlan, Poisoned
from failsoft.training.snapshots import refuge_note
from failsoft.training.snapshots.host_memory import HOST_MEMORY_VARIABLE
from failsoft.training.snapshots.refuge_opening import KEY_NAME
from tests.training.killed_runs import PLAN, began, files, goes_by_disk, left_in, run_of, told, undisturbed
from tests.training.test_loop import die_at, nan_at
from tests.training.toys import same, weights_of


def test_a_checkpoint_that_is_as_new_as_the_snapshot_goes_first(tmp_path: Path, host_memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=8)
    die_at(run_of(tmp_path, plan=plan), 9)
    goes_by_disk(tmp_path, run_of(tmp_path, plan=plan), to=8)


def test_another_host_has_no_snapshot_and_goes_by_disk(
    tmp_path: Path, host_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, checkpoint_every_steps=8)
    die_at(run_of(tmp_path, plan=plan), 15)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv(HOST_MEMORY_VARIABLE, str(tmp_path / "other"))
    goes_by_disk(tmp_path, run_of(tmp_path, plan=plan), to=8)


def test_another_run_in_the_same_place_takes_nothing_over(tmp_path: Path, host_memory: Path) -> None:
    die_at(run_of(tmp_path / "run"), 15)
    for path in (tmp_path / "run").iterdir():  # somebody starts afresh under the same name
        if path.is_file():
            path.unlink()
    assert not (tmp_path / "run" / KEY_NAME).exists()
    run_of(tmp_path / "run").run()
    assert began(tmp_path / "run") == [(0, 0)]


def test_other_code_goes_on_and_says_so(tmp_path: Path, host_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die_at(run_of(tmp_path), 15)
    monkeypatch.setattr("failsoft.training.succession.versions", lambda: {"torch": "another"})
    run_of(tmp_path).run()
    assert began(tmp_path)[-1] == (12, 3)
    (said,) = told(tmp_path, "versions_differ")
    assert said.data["versions"]["torch"][1] == "another"


def test_other_settings_take_nothing_over(tmp_path: Path, host_memory: Path) -> None:
    die_at(run_of(tmp_path), 15)
    goes_by_disk(tmp_path, run_of(tmp_path, plan=replace(PLAN, seed=4)), to=0)


def test_a_snapshot_of_another_number_of_ranks_is_not_used_and_its_memory_is_given_back(
    tmp_path: Path, host_memory: Path
) -> None:
    die_at(run_of(tmp_path), 15)
    (folder,) = host_memory.glob("*/*/rank-0000-of-0001")
    folder.rename(folder.with_name("rank-0000-of-0002"))
    goes_by_disk(tmp_path, run_of(tmp_path), to=0)
    assert left_in(host_memory) == set()


def test_a_model_of_another_dtype_takes_no_snapshot_over_and_is_told_what_differs(
    tmp_path: Path, host_memory: Path
) -> None:
    plan = replace(PLAN, checkpoint_every_steps=8)
    die_at(run_of(tmp_path, plan=plan), 15)
    wide = run_of(tmp_path, plan=plan)
    wide.state.model.double()
    with pytest.raises(IncompatibleArtifactError, match="float32, the model has float64"):
        wide.run()
    (said,) = told(tmp_path, "snapshot_passed_over")
    assert "0.weight was torch.float32, it is torch.float64 now" in said.why
    run_of(tmp_path, plan=plan).run()  # as it was before; what it left is still there
    assert began(tmp_path)[-1] == (12, 3)


def test_a_format_that_is_not_known_is_no_snapshot(
    tmp_path: Path, host_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at(run_of(tmp_path), 15)
    monkeypatch.setattr(refuge_note, "FORMAT", 2)
    goes_by_disk(tmp_path, run_of(tmp_path), to=0)


def test_who_takes_checkpoints_away_to_go_on_from_an_older_one_gets_that(tmp_path: Path, host_memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=4)
    loop = run_of(tmp_path, plan=plan)
    die_at(loop, 15)
    loop.checkpoints.store.remove("position-000000000012")
    loop.checkpoints.store.remove("position-000000000008")
    goes_by_disk(tmp_path, run_of(tmp_path, plan=plan), to=4)


def test_a_damaged_checkpoint_does_not_keep_a_run_from_going_on_from_memory(tmp_path: Path, host_memory: Path) -> None:
    plan = replace(PLAN, checkpoint_every_steps=8)
    loop = run_of(tmp_path, plan=plan)
    die_at(loop, 15)
    damaged = loop.checkpoints.store.root / "position-000000000008" / "state.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    run_of(tmp_path, plan=plan).run()
    assert began(tmp_path)[-1] == (12, 3)


def test_what_a_rollback_to_disk_undoes_comes_back_from_nowhere(tmp_path: Path, host_memory: Path) -> None:
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
    tmp_path: Path, host_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(host_memory)
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


def test_a_run_that_was_told_to_leave_and_saved_leaves_nothing_in_memory(tmp_path: Path, host_memory: Path) -> None:
    loop = run_of(tmp_path)
    loop.told = lambda: "the node is wanted" if loop.state.position == 14 else None
    with pytest.raises(PreemptedError):
        loop.run()
    assert left_in(host_memory) == set()


def test_a_diagnosis_leaves_nothing_in_memory(tmp_path: Path, host_memory: Path) -> None:
    plan = LoopPlan(total_batches=200, seed=3, snapshot_every_steps=50, checkpoint_every_steps=100)
    with pytest.raises(DropRateError):
        run_of(tmp_path, plan=plan, faults=nan_at(*range(0, 200, 3))).run()
    assert left_in(host_memory) == set()


def test_two_buffers_are_all_that_a_run_ever_takes(tmp_path: Path, host_memory: Path) -> None:
    for position in (13, 15, 18):
        die_at(run_of(tmp_path), position)
        sizes = [path.stat().st_size for path in files(host_memory, "body")]
        assert len(sizes) == 2
        assert len(set(sizes)) == 1
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in host_memory.rglob("*-*") if path.is_file())
