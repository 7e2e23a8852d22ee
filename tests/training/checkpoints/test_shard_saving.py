"""Ranks hand their shards over together, or none of them does."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from failsoft.artifacts.manifest import Manifest
from failsoft.artifacts.store import ArtifactStore
from failsoft.errors import ArtifactError, ConfigError, DamagedArtifactError
from failsoft.health.clock import ManualClock, SystemClock
from failsoft.health.ledger import Ledger, Side, read_ledger
from failsoft.training.boxes import Box
from failsoft.training.checkpoints import shard_verifying
from failsoft.training.checkpoints.inspection import newest_healthy
from failsoft.training.checkpoints.restoring import Finder
from failsoft.training.checkpoints.shard_saving import ShardSaving
from failsoft.training.checkpoints.writer import CheckpointWriter
from failsoft.training.checkpoints.writer_link import Link
from failsoft.training.checkpoints.writer_news import NewsKind, Ticket
from failsoft.training.sharding import Shard
from failsoft.training.state import HELD, FlatState
from tests.training.diary_loop import ThreadRanks
from tests.training.fake_link import WRITTEN, FakeLink, refused

OWN = frozenset({"model/buffer"})


def flat_of(rank: int, position: int) -> FlatState:
    """Half of a matrix, a number that is alike, a buffer of this rank."""
    half = Shard(shape=(4, 2), box=Box(offset=(2 * rank, 0), size=(2, 2)), mesh=(2,), placements=("S(0)",), first=True)
    tensors = {
        "model/matrix": torch.full((2, 2), float(10 * position + rank)),
        "model/number": torch.tensor(float(position)),
        "model/buffer": torch.tensor([rank]),
    }
    return FlatState(
        tensors=tensors, scalars={"position": position, "step": position, HELD: {"model/matrix": half.to_plain()}}
    )


class Pair:
    """Two ranks as threads, each with a writer."""

    def __init__(self, roots: tuple[Path, Path], links: tuple[FakeLink | None, FakeLink | None] = (None, None)) -> None:
        self.meeting = threading.Barrier(2, timeout=30)
        self.table: list[Any] = [None, None]
        self.ledger = Ledger(roots[0].parent / "ledger.jsonl", ManualClock(), side=Side.TRAINING, subject="run")
        self.links = links
        self.savings = [self._saving(rank, root) for rank, root in enumerate(roots)]

    def _saving(self, rank: int, root: Path) -> ShardSaving:
        link = self.links[rank]
        starts: Callable[[], Link] | None = None if link is None else lambda: link
        writer = CheckpointWriter(ArtifactStore(root, SystemClock(), kind="checkpoint"), start=starts)
        ranks = ThreadRanks(rank, 2, self.table, self.meeting)
        return ShardSaving(writer=writer, ranks=ranks, identity={"task": "toy"}, ledger=self.ledger)

    def both(self, work: Callable[[int, ShardSaving], object]) -> list[object]:
        results: list[object] = [None, None]

        def one(rank: int) -> None:
            try:
                results[rank] = work(rank, self.savings[rank])
            except (ConfigError, ArtifactError) as error:
                results[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def submit(self, position: int, *, refusal: str | None = None) -> None:
        ticket = Ticket(
            name=f"position-{position:012d}",
            position=position,
            step=position,
            meta={"position": position, "step": position, "healthy": True},
        )
        self.both(
            lambda rank, one: one.submit(
                flat_of(rank, position), ticket, own=OWN, refused=refusal if rank == 0 else None
            )
        )

    def news(self, rank: int) -> list[tuple[NewsKind, int]]:
        writer = self.savings[rank].writer
        return [(news.kind, news.ticket.position) for _ in range(3) for news in writer.look()]


def shared(folder: Path) -> tuple[Path, Path]:
    return folder / "checkpoints", folder / "checkpoints"


def test_both_hand_over_and_one_checkpoint_is_published(tmp_path: Path) -> None:
    pair = Pair(shared(tmp_path))
    for position in (1, 2):
        pair.submit(position)
    assert pair.news(0) == [(NewsKind.PUBLISHED, 1), (NewsKind.PUBLISHED, 2)]
    newest = newest_healthy(pair.savings[0].writer.store)
    assert newest is not None
    assert newest.manifest.meta["shards"] == {"files": 2, "meshes": ["2"], "placements": ["S(0)"], "tensors": 1}


def test_while_one_waits_on_any_rank_the_next_is_left_out_on_all(tmp_path: Path) -> None:
    links = (FakeLink(ManualClock(), WRITTEN, WRITTEN, WRITTEN), FakeLink(ManualClock()))  # rank 1's is slow
    pair = Pair(shared(tmp_path), links)
    for position in (1, 2):
        pair.submit(position)
        pair.savings[0].writer.look()
    pair.submit(3)
    assert [one for one in pair.news(0) if one[1] == 3] == [(NewsKind.REPLACED, 3)]
    assert [one for one in pair.news(1) if one[1] == 3] == [(NewsKind.REPLACED, 3)]
    assert [order["name"][-1] for order in links[0].orders] == ["1", "2"]


def test_what_the_first_may_not_publish_no_rank_writes(tmp_path: Path) -> None:
    pair = Pair(shared(tmp_path))
    pair.submit(1, refusal="an undone stretch can't be removed first")
    assert [pair.news(rank) for rank in range(2)] == [[(NewsKind.FAILED, 1)]] * 2
    assert not (tmp_path / "checkpoints").exists()


def test_a_failure_that_only_one_rank_knows_is_told_to_the_writer_that_waits(tmp_path: Path) -> None:
    pair = Pair(shared(tmp_path), (FakeLink(ManualClock()), FakeLink(ManualClock(), refused("no room"))))
    pair.submit(1)
    place = pair.links[0].orders[0]["shard"]  # type: ignore[union-attr]
    staging = tmp_path / "checkpoints" / f".shards-{place['attempt']}-position-000000000001"
    staging.mkdir(parents=True)
    pair.savings[1].look()
    pair.submit(2)
    assert "no room" in (staging / "rank-00001.json").read_text("utf-8")
    [event] = [one for one in read_ledger(tmp_path / "ledger.jsonl").events if one.kind == "shard_failed"]
    assert (event.data["rank"], event.data["name"]) == (1, "position-000000000001")


def test_a_failure_elsewhere_that_the_first_can_t_note_on_a_stale_mount_does_not_part_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(shared(tmp_path), (FakeLink(ManualClock()), FakeLink(ManualClock(), refused("no room"))))
    is_dir = Path.is_dir
    pair.submit(1)
    pair.savings[1].look()

    def stale(path: Path) -> bool:
        if path.name.startswith(".shards-"):
            raise OSError(errno.ESTALE, "stale file handle")
        return is_dir(path)

    monkeypatch.setattr(Path, "is_dir", stale)
    pair.submit(2)
    assert [one.writer.full for one in pair.savings] == [True, False]  # rank 1's is already at the second one
    assert pair.savings[1].writer.busy


def found_by(pair: Pair) -> list[object]:
    """What each rank of a new attempt would go on from."""

    def find(_rank: int, one: ShardSaving) -> object:
        finder = Finder(store=one.writer.store, ranks=one.ranks, ledger=pair.ledger, clock=SystemClock())
        artifact = finder.newest(None)
        return None if artifact is None else artifact.name

    return pair.both(find)


@pytest.mark.parametrize("file", ["shard-00000-of-00002.safetensors", "shard-00001-of-00002.safetensors", "state.json"])
def test_damage_that_any_rank_finds_in_its_share_of_the_files_is_put_aside_for_all(tmp_path: Path, file: str) -> None:
    pair = Pair(shared(tmp_path))
    for position in (1, 2):
        pair.submit(position)
    assert found_by(pair) == ["position-000000000002"] * 2
    path = tmp_path / "checkpoints" / "position-000000000002" / file
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert found_by(pair) == ["position-000000000001"] * 2
    [event] = [one for one in read_ledger(tmp_path / "ledger.jsonl").events if one.kind == "checkpoint_quarantined"]
    assert file in event.why
    assert [one.name[:21] for one in (tmp_path / "checkpoints" / "quarantine").iterdir()] == ["position-000000000002"]


def test_damage_that_the_disk_does_not_let_be_put_aside_is_passed_over_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(shared(tmp_path))
    for position in (1, 2):
        pair.submit(position)
    (tmp_path / "checkpoints" / "position-000000000002" / "shard-00001-of-00002.safetensors").write_bytes(b"torn")

    def refuse(path: Path, _target: Path) -> Path:
        raise OSError(errno.EROFS, "read-only file system", str(path))

    monkeypatch.setattr(Path, "rename", refuse)
    assert found_by(pair) == ["position-000000000001"] * 2


def test_a_shard_that_is_gone_or_a_file_that_came_later_is_damage_too(tmp_path: Path) -> None:
    pair = Pair(shared(tmp_path))
    for position in (1, 2, 3):
        pair.submit(position)
    (tmp_path / "checkpoints" / "position-000000000003" / "shard-00001-of-00002.safetensors").unlink()
    (tmp_path / "checkpoints" / "position-000000000002" / "shard-00002-of-00002.safetensors").touch()
    assert found_by(pair) == ["position-000000000001"] * 2


def test_a_file_that_can_t_be_read_just_now_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(shared(tmp_path))
    pair.submit(1)

    def stale(folder: Path, _manifest: Manifest, name: str) -> None:
        if name.startswith("shard-00001"):
            raise DamagedArtifactError(f"{folder / name} can't be read") from OSError(errno.ESTALE, "stale handle")

    monkeypatch.setattr(shard_verifying, "verify_file", stale)
    told = pair.both(lambda _rank, one: damage_of(one))
    assert all("rank 1: " in str(error) and "mend its mount" in str(error) for error in told)
    monkeypatch.undo()
    assert found_by(pair) == ["position-000000000001"] * 2


def test_a_rank_whose_mount_is_stale_counts_as_one_that_does_not_see_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, is_dir, stale = Pair(shared(tmp_path)), Path.is_dir, threading.local()

    def seen(path: Path) -> bool:
        if path.name.startswith(".shards-") and getattr(stale, "here", False):
            raise OSError(errno.ESTALE, "stale file handle")
        return is_dir(path)

    def find(rank: int, one: ShardSaving) -> None:
        stale.here = rank == 1
        one.find_meeting()

    monkeypatch.setattr(Path, "is_dir", seen)
    assert all("rank 1 on" in str(error) for error in pair.both(find))


def damage_of(saving: ShardSaving) -> str:
    artifact = newest_healthy(saving.writer.store)
    assert artifact is not None
    return shard_verifying.damage_in_shards(artifact, saving.ranks)


def test_ranks_that_do_not_share_a_storage_are_told_so_before_the_first_step(tmp_path: Path) -> None:
    apart = Pair((tmp_path / "here", tmp_path / "there"))
    told = apart.both(lambda _rank, one: one.find_meeting())
    assert all("rank 1 on" in str(error) and "storage that all nodes share" in str(error) for error in told)
    assert Pair(shared(tmp_path)).both(lambda _rank, one: one.find_meeting()) == [None, None]
    assert list(tmp_path.glob("*/.shards-*")) == []
