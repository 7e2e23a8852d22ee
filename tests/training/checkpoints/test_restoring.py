"""Where a run goes on from when there are two places, several ranks, and any of them may be missing or ill."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from failsoft.errors import IncompatibleArtifactError
from failsoft.health.ledger import read_ledger
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.shard_layout import ShardPlace
from failsoft.training.checkpoints.shard_writing import Around, Staging
from failsoft.training.checkpoints.tensor_file import Stamp
from failsoft.training.loop import TrainLoop
from failsoft.training.summary import summarise
from tests.artifacts.odd_files import Disk, Plan, as_planned
from tests.training.here_link import mirror_here
from tests.training.killed_runs import PLAN, run_of
from tests.training.test_loop import die_at, event, kinds
from tests.training.toys import same, toy_loop, weights_of


def broken(_number: int, kind: str, path: str) -> None:
    raise OSError(f"no route to host: {kind} {path}")


def mirrored(loop: TrainLoop, disk: Disk, *, plan: Plan = as_planned, keep: int = 3) -> TrainLoop:
    """The loop, with copies on this disk."""
    old = loop.checkpoints
    loop.checkpoints = Checkpoints(
        store=old.store,
        identity=old.identity,
        ranks=old.ranks,
        ledger=old.ledger,
        mirror=mirror_here(old.store, disk.place(plan), clock=loop.desk.clock, keep=keep),
    )
    return loop


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> TrainLoop:
    loop = toy_loop(tmp_path_factory.mktemp("undisturbed"))
    loop.run()
    return loop


def test_a_fresh_machine_goes_on_from_the_remote_store_alone_and_ends_alike(
    tmp_path: Path, undisturbed: TrainLoop
) -> None:
    disk = Disk()
    die_at(mirrored(toy_loop(tmp_path / "old"), disk), 21)
    again = mirrored(toy_loop(tmp_path / "new"), disk)
    again.run()
    assert event(tmp_path / "new", "restored").data["checkpoint"] == "position-000000000016"
    assert event(tmp_path / "new", "checkpoint_fetched").data["position"] == 16
    assert same(weights_of(again.state.model), weights_of(undisturbed.state.model))


def test_what_is_newer_here_is_not_fetched_and_is_copied_first(tmp_path: Path) -> None:
    disk = Disk()
    die_at(toy_loop(tmp_path), 21)  # no copies yet
    loop = mirrored(toy_loop(tmp_path), disk)
    loop.run()
    assert "checkpoint_fetched" not in kinds(tmp_path)
    events = read_ledger(tmp_path / "ledger.jsonl").events
    copied = [one.data["position"] for one in events if one.kind == "checkpoint_mirrored"]
    assert copied == [16, 24]
    assert summarise(events, run=tmp_path.name).copied == 2


def test_what_has_no_copy_yet_is_copied_also_by_a_run_that_goes_on_from_memory(
    tmp_path: Path, host_memory: Path
) -> None:
    disk, schedule = Disk(), replace(PLAN, checkpoint_every_steps=8)
    die_at(run_of(tmp_path, plan=schedule), 15)  # no copies yet
    die_at(mirrored(run_of(tmp_path, plan=schedule), disk), 15)
    assert event(tmp_path, "restored").data["source"] == "memory of the host"
    assert event(tmp_path, "checkpoint_mirrored").data["position"] == 8


def test_the_newer_of_both_is_taken(tmp_path: Path) -> None:
    disk = Disk()
    die_at(mirrored(toy_loop(tmp_path), disk), 21)
    shutil.rmtree(tmp_path / "checkpoints" / "position-000000000016")  # the local disk lost the newest
    mirrored(toy_loop(tmp_path), disk).run()
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000016"
    assert event(tmp_path, "checkpoint_fetched").data["name"] == "position-000000000016"


def test_a_damaged_local_one_is_put_aside_and_the_copy_fetched(tmp_path: Path) -> None:
    disk = Disk()
    die_at(mirrored(toy_loop(tmp_path), disk), 21)
    (tmp_path / "checkpoints" / "position-000000000016" / "state.safetensors").write_bytes(b"")
    mirrored(toy_loop(tmp_path), disk).run()
    assert event(tmp_path, "checkpoint_quarantined").data["name"] == "position-000000000016"
    assert event(tmp_path, "restored").data["checkpoint"] == "position-000000000016"


def test_a_damaged_copy_is_marked_and_the_one_before_it_taken(tmp_path: Path) -> None:
    disk = Disk()
    die_at(mirrored(toy_loop(tmp_path / "old"), disk), 21)
    (path,) = [name for name in disk.files if "000016" in name and name.endswith("safetensors")]
    disk.files[path] = disk.files[path][:-1] + b"\x7f"
    mirrored(toy_loop(tmp_path / "new"), disk).run()
    assert event(tmp_path / "new", "remote_checkpoint_damaged").data["name"] == "position-000000000016"
    assert event(tmp_path / "new", "restored").data["checkpoint"] == "position-000000000008"
    assert any("000016" in name and name.endswith("damaged.txt") for name in disk.files)


def test_with_a_remote_store_that_is_away_a_run_trains_to_its_end_and_says_so(
    tmp_path: Path, undisturbed: TrainLoop
) -> None:
    die_at(toy_loop(tmp_path), 21)
    loop = mirrored(toy_loop(tmp_path), Disk(), plan=broken)
    loop.run()
    assert same(weights_of(loop.state.model), weights_of(undisturbed.state.model))
    assert "may be older" in event(tmp_path, "remote_unreadable").why
    assert "no route to host" in event(tmp_path, "checkpoint_mirror_failed").why


def test_without_any_checkpoint_here_a_remote_store_that_is_away_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"does not begin anew: mend the store .*leave --remote out"):
        mirrored(toy_loop(tmp_path), Disk(), plan=broken).run()
    assert not (tmp_path / "checkpoints" / "position-000000000008").exists()


def test_an_empty_remote_store_is_the_start_of_a_run(tmp_path: Path, undisturbed: TrainLoop) -> None:
    loop = mirrored(toy_loop(tmp_path), Disk())
    loop.run()
    assert same(weights_of(loop.state.model), weights_of(undisturbed.state.model))


def test_a_newer_format_there_stops_the_run(tmp_path: Path) -> None:
    disk = Disk()
    mirrored(toy_loop(tmp_path / "old"), disk).run()
    for name in [name for name in disk.files if name.endswith("manifest.json")]:
        disk.files[name] = disk.files[name].replace(b'"format": 1', b'"format": 9')
    with pytest.raises(IncompatibleArtifactError, match="use the failsoft that wrote it"):
        mirrored(toy_loop(tmp_path / "new"), disk).run()


def test_what_was_taken_back_is_never_gone_on_from(tmp_path: Path) -> None:
    disk = Disk()
    loop = mirrored(toy_loop(tmp_path), disk)
    loop.run()
    assert loop.checkpoints.withdraw(after=8) == ["position-000000000016", "position-000000000024"]
    restored = mirrored(toy_loop(tmp_path), disk).checkpoints.restore(toy_loop(tmp_path / "x").state, seed=3)
    assert restored is not None
    assert restored.position == 8


def test_going_back_inside_a_run_asks_the_remote_store_only_when_nothing_is_here(tmp_path: Path) -> None:
    disk = Disk()
    loop = mirrored(toy_loop(tmp_path), disk, keep=9)
    loop.run()
    asked: list[str] = []
    loop.checkpoints.mirror = mirror_here(
        loop.checkpoints.store, disk.place(lambda _n, kind, _p: asked.append(kind)), clock=loop.desk.clock
    )
    loop.checkpoints = Checkpoints(**{name: getattr(loop.checkpoints, name) for name in _FIELDS})
    back = loop.checkpoints.restore(loop.state, seed=3, before_step=20, keep_counts=True)
    assert (back and back.position, asked) == (16, [])
    shutil.rmtree(loop.checkpoints.store.root / "position-000000000008")
    shutil.rmtree(loop.checkpoints.store.root / "position-000000000016")
    again = loop.checkpoints.restore(loop.state, seed=3, before_step=20, keep_counts=True)
    assert again is not None
    assert again.position == 16


_FIELDS = ("store", "identity", "ranks", "ledger", "mirror")


def test_what_killed_writers_of_shards_left_goes_when_the_run_begins_again_in_one_file(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path)
    place = ShardPlace(rank=1, world=2, attempt="killed")
    left = Staging(root=loop.checkpoints.store.root, name="position-000000000008", place=place)
    left.put(memoryview(b"half of a state"), Stamp(position=8, step=8), Around(clock=loop.desk.clock))
    loop.run()
    assert not left.folder.exists()
