"""What one worker of a loader finds ill rests for all of them, and one of them tries it again."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from failsoft.errors import SampleError, SourceError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.training.batches import GlobalBatches
from failsoft.training.loading.board import Board, Word
from failsoft.training.loading.checked import Checked
from failsoft.training.loading.lane import LoaderPolicy
from failsoft.training.loading.loader import GuardedLoader
from failsoft.training.loading.order import RankOrder
from failsoft.training.loading.quarantine import QuarantinePolicy
from failsoft.training.loading.sample import BadKind
from failsoft.training.loading.tiered_dataset import TieredDataset
from failsoft.training.loading.tiers import TieredSource

POLICY = QuarantinePolicy(rest=BackoffPolicy(first_s=10.0, factor=2.0, cap_s=60.0, jitter_fraction=0.0))


class Store:
    """A remote that many workers ask."""

    name = "remote"

    def __init__(self) -> None:
        self.up = False
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None
        """Happens while it is being asked."""

    def shard_of(self, _index: int) -> str:
        return ""

    def fetch(self, index: int) -> bytes:
        self.asked += 1
        self.meanwhile()
        if not self.up:
            raise SourceError("connection refused")
        return str(index).encode()


class Zeros:
    def make(self, _index: int) -> bytes:
        return b"0"


def crew(store: Store, clock: ManualClock, *, size: int = 4) -> list[TieredSource]:
    board = Board(sources=8)
    made = [TieredSource(tiers=(store,), synthesis=Zeros(), tier_policy=POLICY, clock=clock) for _ in range(size)]
    for worker in made:
        worker.share(board)
    return made


def test_failures_in_a_row_count_together_and_nobody_asks_any_more() -> None:
    store = Store()
    workers = crew(store, ManualClock())
    for _round in range(5):
        assert all(worker.fetch(0).synthetic for worker in workers)
    assert store.asked == 3  # each for itself: 12
    notes = [worker.take_notes() for worker in workers]
    assert [[note.resting for note in told] for told in notes] == [[True]] * 4
    assert {told[0].cause for told in notes} == {
        "3 bad outcomes in a row, of all workers together; last: connection refused"
    }


def test_a_shard_whose_name_is_no_text_rests_like_any_other() -> None:
    class Foreign(Store):
        """On a disk whose names were written in Latin-1."""

        def shard_of(self, _index: int) -> str:
            return os.fsdecode(b"caf\xe9.tar")

        def fetch(self, index: int) -> bytes:
            self.asked += 1
            raise SourceError(f"{self.shard_of(index)} is torn")

    store = Foreign()
    workers = crew(store, ManualClock())
    for _round in range(5):
        assert all(worker.fetch(0).synthetic for worker in workers)
    assert store.asked == 3


def test_one_answer_between_failures_of_others_shows_that_it_is_well() -> None:
    store = Store()
    one, two, three, _ = crew(store, ManualClock())
    for _round in range(5):
        store.up = False
        one.fetch(0)
        two.fetch(0)
        store.up = True
        assert not two.fetch(0).synthetic
    assert not three.fetch(0).synthetic
    assert all(not worker.take_notes() for worker in (one, two, three))


def test_one_worker_tries_it_again_and_the_others_await_its_word() -> None:
    store, clock = Store(), ManualClock()
    one, two, three, four = workers = crew(store, clock)
    for worker in workers:
        worker.fetch(0)
    asked = store.asked
    clock.advance(10.0)
    tiers: list[str] = []
    store.meanwhile = lambda: tiers.extend(worker.fetch(1).tier for worker in (two, three))
    assert one.fetch(1).synthetic  # and it was not well: the next rest is longer
    assert (store.asked, tiers) == (asked + 1, ["synthetic", "synthetic"])
    store.meanwhile, store.up = lambda: None, True
    clock.advance(19.0)
    assert four.fetch(2).synthetic
    clock.advance(1.0)
    assert [worker.fetch(2).tier for worker in (four, one, two, three)] == ["remote"] * 4
    assert [worker.take_notes()[-1].resting for worker in workers] == [False] * 4
    store.up = False
    assert one.fetch(3).synthetic
    clock.advance(1.0)
    store.up = True
    assert one.fetch(3).tier == "remote"  # a single failure after that is one failure


def test_a_worker_that_dies_while_it_tries_leaves_the_next_try_to_another() -> None:
    class Died(BaseException):
        pass

    store, clock = Store(), ManualClock()
    one, two, three, _ = workers = crew(store, clock)
    for worker in workers:
        worker.fetch(0)

    def dies() -> None:
        raise Died

    clock.advance(10.0)
    store.meanwhile, store.up = dies, True
    with pytest.raises(Died):
        one.fetch(1)
    store.meanwhile = lambda: None
    assert two.fetch(1).synthetic
    clock.advance(10.0)
    assert two.fetch(1).tier == three.fetch(1).tier == "remote"


def test_a_worker_that_comes_later_knows_what_rests_already() -> None:
    store, clock, board = Store(), ManualClock(), Board(sources=4)
    early, late = (TieredSource(tiers=(store,), synthesis=Zeros(), tier_policy=POLICY, clock=clock) for _ in "12")
    early.share(board)
    for _ in range(3):
        early.fetch(0)
    late.share(board)
    assert late.fetch(0).why == "remote rests: 3 bad outcomes in a row; last: connection refused"
    assert store.asked == 3


def test_a_shard_that_one_worker_finds_torn_rests_for_all_and_no_other_shard_does() -> None:
    class Torn(Store):
        def shard_of(self, index: int) -> str:
            return f"shard-{index // 10}"

        def fetch(self, index: int) -> bytes:
            self.asked += 1
            if index < 10:
                raise SampleError("bytes are changed")
            return str(index).encode()

    store = Torn()
    one, two, *_ = workers = crew(store, ManualClock())
    for worker in workers:
        assert worker.fetch(15).tier == "remote"
    for index in range(3):
        with pytest.raises(SampleError):
            one.fetch(index)
    assert two.fetch(4).why == "remote rests: 3 bad outcomes in a row; last: bytes are changed"
    assert [worker.fetch(16).tier for worker in workers] == ["remote"] * 4
    assert [note.name for note in two.take_notes()] == ["remote: shard-0"]


def test_a_board_without_room_leaves_each_worker_to_itself() -> None:
    board = Board(sources=2)
    one, two, three = (Word(board, name) for name in ("one", "two", "three"))
    for word in (one, two, three):
        word.rest(rests=1, rest_s=5.0, until_s=5.0, cause="torn " * 100)
    assert [word.is_there for word in (one, two, three)] == [True, True, False]
    assert (one.until_s, two.rests, three.until_s, three.rests, three.cause) == (5.0, 1, 0.0, 0, "")
    assert one.cause.startswith("torn torn")
    assert len(one.cause) == 160
    store = Store()
    worker = TieredSource(tiers=(store,), synthesis=Zeros(), tier_policy=POLICY, clock=ManualClock())
    worker.share(board)
    assert [worker.fetch(0).synthetic for _ in range(9)] == [True] * 9
    assert store.asked == 3


def test_a_copy_that_is_no_worker_of_the_loader_has_a_board_of_its_own() -> None:
    board = Board(sources=2)
    Word(board, "one").strike()
    copy = pickle.loads(pickle.dumps(board))  # noqa: S301 -- made in this very test
    assert (Word(board, "one").strikes, Word(copy, "one").strikes) == (1, 0)


class Down:
    """A remote that refuses, and writes down that it was asked, by whom."""

    name = "remote"

    def __init__(self, diary: Path) -> None:
        self._diary = diary

    def shard_of(self, _index: int) -> str:
        return ""

    def fetch(self, _index: int) -> bytes:
        handle = os.open(self._diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{os.getpid()}\n".encode())
        os.close(handle)
        raise SourceError("connection refused")


def test_real_workers_learn_together(tmp_path: Path) -> None:
    """Each for itself, three workers would ask nine times."""
    rest = QuarantinePolicy(rest=BackoffPolicy(first_s=600.0, cap_s=600.0, jitter_fraction=0.0))
    source = TieredSource(tiers=(Down(tmp_path / "diary"),), tier_policy=rest)
    order = RankOrder(batches=GlobalBatches(num_samples=64, global_batch=4, seed=1), rank=0, world=1, total=12)
    checked = Checked(TieredDataset(source, float, size=64), reserve=order.reserve)
    with GuardedLoader(checked, order, policy=LoaderPolicy(workers=3)) as loader:
        batches = [loader.fetch(position) for position in range(12)]
    assert {bad.kind for batch in batches for bad in batch.bad} == {BadKind.OUT_OF_REACH}
    asked = (tmp_path / "diary").read_text("ascii").split()
    assert 3 <= len(asked) <= 6  # with what was on its way when the third one failed, and a strike that was lost
    told = [note for batch in batches for note in batch.notes]
    assert [(note.name, note.resting) for note in told] == [("remote", True)] * 3
    assert all(note.cause.endswith("last: connection refused") for note in told)
