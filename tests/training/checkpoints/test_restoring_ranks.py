"""All ranks go on from the same checkpoint, each from bytes it can read itself, or none of them does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failsoft.artifacts.store import Artifact, ArtifactStore
from failsoft.errors import ArtifactError, ArtifactMissingError
from failsoft.health.clock import ManualClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.checkpoints.mirror import Mirror
from failsoft.training.checkpoints.restoring import Finder
from failsoft.training.checkpoints.writer_news import Ticket
from failsoft.training.ranks import Ranks, SoloRank
from tests.artifacts.odd_files import Disk
from tests.training.diary_loop import ThreadRanks
from tests.training.here_link import mirror_here


def broken(_number: int, kind: str, path: str) -> None:
    raise OSError(f"no route to host: {kind} {path}")


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
