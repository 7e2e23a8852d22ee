"""Where a run goes on from when there are two places, several ranks, and any of them may be missing or ill."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError, IncompatibleArtifactError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.checkpoints.checkpoint import Checkpoints
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.restoring import Finder
from failsoft.training.checkpoints.writer_news import Ticket
from failsoft.training.loop import TrainLoop
from failsoft.training.ranks import Ranks, SoloRank
from failsoft.training.summary import summarise
from tests.artifacts.odd_files import Disk, Plan, as_planned
from tests.training.diary_loop import ThreadRanks
from tests.training.here_link import mirror_here
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


class Group:
    """Ranks as threads, each with a folder of its own, or one that all share."""

    def __init__(self, root: Path, *, world: int = 2, shared: bool = False) -> None:
        self.clock = ManualClock()
        self.root = root
        self.world = world
        self.stores = [
            ArtifactStore(root / ("host" if shared else f"host-{rank}"), self.clock, kind="checkpoint")
            for rank in range(world)
        ]
        self.ledger = Ledger(root / "ledger.jsonl", self.clock, side=Side.TRAINING, subject="run")

    def publish(self, rank: int, position: int) -> Artifact:
        meta = {"position": position, "step": position, "healthy": True}
        self.clock.advance(1.0)
        store = self.stores[rank]
        return store.publish(f"at-{position}", _fill, meta=meta)

    def find(self, mirror: Callable[[ArtifactStore], Mirror] | None = None) -> list[Any]:
        """What each rank got, or the error that it raised."""
        table: list[Any] = [None] * self.world
        results: list[Any] = [None] * self.world
        meeting = threading.Barrier(self.world, timeout=30)

        def one(rank: int) -> None:
            ranks: Ranks = ThreadRanks(rank, self.world, table, meeting)
            store = self.stores[rank]
            finder = Finder(
                store=store,
                ranks=ranks,
                ledger=self.ledger,
                clock=self.clock,
                mirror=None if mirror is None else mirror(store),
            )
            try:
                results[rank] = finder.newest(None)
            except (ArtifactError, OSError) as error:
                results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


def _fill(folder: Path) -> None:
    (folder / "state").write_text("x", "utf-8")


def names(results: list[Any]) -> list[str]:
    return [result.name if isinstance(result, Artifact) else repr(result) for result in results]


def test_on_shared_storage_all_ranks_get_the_same(tmp_path: Path) -> None:
    group = Group(tmp_path, shared=True)
    group.publish(0, 1)
    assert names(group.find()) == ["at-1", "at-1"]


def test_a_rank_that_cannot_see_it_makes_all_ranks_say_which_host_path_and_mend(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.publish(0, 1)
    first, second = group.find()
    assert str(first) == str(second)
    assert isinstance(first, ArtifactMissingError)
    said = str(first)
    assert all(words in said for words in ("rank 1 on ", str(tmp_path / "host-1"), "--home", "--remote s3://"))


def test_with_a_remote_store_each_node_fetches_a_copy_of_its_own(tmp_path: Path) -> None:
    group, disk = Group(tmp_path), Disk()
    group.publish(0, 1)
    mirror_here(group.stores[0], disk.place(), clock=group.clock).offer(_ticket(1))
    assert names(group.find(lambda store: mirror_here(store, disk.place(), clock=group.clock))) == ["at-1", "at-1"]
    assert group.stores[0].open("at-1").manifest == group.stores[1].open("at-1").manifest


def test_one_that_was_not_copied_yet_is_copied_now_so_that_nothing_is_lost(tmp_path: Path) -> None:
    group, disk = Group(tmp_path), Disk()
    group.publish(0, 1)
    mirror_here(group.stores[0], disk.place(), clock=group.clock).offer(_ticket(1))
    group.publish(0, 2)
    assert names(group.find(lambda store: mirror_here(store, disk.place(), clock=group.clock))) == ["at-2", "at-2"]


def test_another_checkpoint_of_the_same_name_is_not_taken_for_it(tmp_path: Path) -> None:
    group, disk = Group(tmp_path), Disk()
    group.publish(1, 1)  # of an undone stretch, on the other node
    mine = group.publish(0, 1)
    first, second = group.find(lambda store: mirror_here(store, disk.place(), clock=group.clock))
    assert first.manifest == second.manifest == mine.manifest
    assert any(one.kind == "checkpoint_quarantined" for one in read_ledger(tmp_path / "ledger.jsonl").events)


def test_when_the_copy_cannot_be_had_either_all_ranks_raise_and_none_hangs(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.publish(0, 1)
    first, second = group.find(lambda store: mirror_here(store, Disk().place(broken), clock=group.clock))
    assert isinstance(first, ArtifactMissingError)
    assert str(first) == str(second)
    assert "mend the remote store odd://root/run" in str(first)


def test_storage_that_rank_zero_cannot_read_is_an_error_on_all_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path)

    def stale(**_: object) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(group.stores[0], "newest", stale)
    first, second = group.find()
    assert isinstance(first, OSError)
    assert str(first) == str(second)
    assert "Stale file handle" in str(first)


def test_three_ranks_of_which_one_shares_with_the_first(tmp_path: Path) -> None:
    group, disk = Group(tmp_path, world=3), Disk()
    group.stores[1] = group.stores[0]
    group.publish(0, 5)
    found = group.find(lambda store: mirror_here(store, disk.place(), clock=group.clock))
    assert names(found) == ["at-5"] * 3
    assert len({one.path for one in found}) == 2


def test_a_solo_rank_needs_nobody(tmp_path: Path) -> None:
    group = Group(tmp_path, world=1)
    finder = Finder(store=group.stores[0], ranks=SoloRank(), ledger=group.ledger, clock=group.clock)
    assert finder.newest(None) is None


def _ticket(position: int) -> Ticket:
    return Ticket(name=f"at-{position}", position=position, step=position, meta={})
