"""The record of consumed samples against histories whose truth is known."""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from failsoft.errors import ArtifactMissingError, ConfigError
from failsoft.training.accounting.consumed import CONSUMED_FOLDER, ConsumedPolicy, ConsumedRecord
from failsoft.training.accounting.exactness import Fate, Verification, verify
from failsoft.training.batches import GlobalBatches
from failsoft.training.letters.requeue import REQUEUE_NAME

BATCHES = GlobalBatches(num_samples=22, global_batch=4, seed=5)
PER_EPOCH = 6


class Fellow:
    """A rank whose rank 0 has spoken before it."""

    def __init__(self, rank: int, world: int, said: list[str]) -> None:
        self.rank = rank
        self.world = world
        self._said = said

    def sum_(self, values: object) -> object:
        raise NotImplementedError

    def gather(self, text: str) -> list[str]:
        if self.rank == 0:
            self._said.append(text)
        return [self._said[-1]] * self.world


class Group:
    """All ranks of one generation, played one after the other, in step."""

    def __init__(
        self, folder: Path, position: int, world: int = 1, *, total: int = 18, policy: ConsumedPolicy | None = None
    ) -> None:
        said: list[str] = []
        self.position = position
        self.lost: list[str] = []
        self.ranks = [
            ConsumedRecord(folder, Fellow(rank, world, said), policy=policy, on_lost=self.lost.append)  # type: ignore[arg-type]
            for rank in range(world)
        ]
        for rank in self.ranks:
            rank.begin(position=position, batches=BATCHES, total_batches=total)

    def work(self, until: int, *, refuse: tuple[int, ...] = (), skip: tuple[int, ...] = ()) -> Group:
        for position in range(self.position, until):
            for number, rank in enumerate(self.ranks):
                ids = [] if position in skip else BATCHES.indices(position, number, len(self.ranks)).tolist()
                rank.batch(position, ids, applied=position not in refuse)
        self.position = until
        return self

    def save(self) -> Group:
        for rank in self.ranks:
            rank.saved(self.position)
        return self

    def roll_back(self, to: int, *, replay: bool = False) -> Group:
        for rank in self.ranks:
            rank.rolled_back(at=self.position, to=to)
        self.position = to if replay else self.position
        return self

    def end(self) -> None:
        for rank in self.ranks:
            rank.close()


def counts(found: Verification) -> list[dict[str, int]]:
    return [{str(fate): n for fate, n in epoch.counts.items() if n} for epoch in found.epochs]


ALL_ONCE = {"once": 22}


def test_an_undisturbed_run_saw_each_sample_once_in_each_epoch(tmp_path: Path) -> None:
    Group(tmp_path, 0, world=3).work(18).end()
    found = verify(tmp_path)
    assert counts(found) == [ALL_ONCE] * 3
    assert found.sound
    assert (found.reached, found.generations, found.worlds) == (18, 1, (3,))


def test_a_run_in_mid_epoch_says_what_it_has_not_come_to_yet(tmp_path: Path) -> None:
    Group(tmp_path, 0).work(8).end()
    assert counts(verify(tmp_path)) == [ALL_ONCE, {"once": 8, "not yet": 14}]


@pytest.mark.parametrize("worlds", [(1, 2, 1), (4, 3, 5), (3, 1, 2)])
def test_what_a_restart_undid_does_not_count_whatever_the_world_size(
    tmp_path: Path, worlds: tuple[int, int, int]
) -> None:
    Group(tmp_path, 0, worlds[0]).work(5).save().work(9).end()
    Group(tmp_path, 5, worlds[1]).work(7).save().work(7).end()
    Group(tmp_path, 7, worlds[2]).work(18).end()
    found = verify(tmp_path)
    assert counts(found) == [ALL_ONCE] * 3
    assert found.worlds == worlds
    assert found.repeated_batches == 4


def test_a_second_resume_in_the_same_epoch_and_one_from_an_older_checkpoint_are_understood(tmp_path: Path) -> None:
    Group(tmp_path, 0).work(4).save().work(8).save().work(10).end()
    Group(tmp_path, 8).work(9).end()
    Group(tmp_path, 4).work(5).end()  # the checkpoint at 8 was found damaged
    Group(tmp_path, 4).work(18).end()
    assert counts(verify(tmp_path)) == [ALL_ONCE] * 3


def test_a_batch_that_was_left_out_is_never_and_one_done_twice_is_twice(tmp_path: Path) -> None:
    Group(tmp_path, 0).work(7, skip=(1,)).end()
    assert counts(verify(tmp_path))[0] == {"once": 18, "never": 4}
    again = Group(tmp_path, 7).work(8)
    again.position = 7
    again.work(18).end()
    found = verify(tmp_path)
    assert not found.sound
    assert counts(found)[1] == {"twice": 4, "once": 18}
    assert found.epochs[0].odd_ids[Fate.NEVER] == tuple(sorted(BATCHES.global_indices(1).tolist()))
    assert found.epochs[1].odd_ids[Fate.TWICE] == tuple(sorted(BATCHES.global_indices(7).tolist()))


def test_an_offset_lost_on_resume_is_found_out(tmp_path: Path) -> None:
    Group(tmp_path, 0).work(4).save().end()
    late = Group(tmp_path, 4)
    late.position = 5
    late.work(6).end()
    assert counts(verify(tmp_path)) == [{"once": 18, "never": 4}]


def test_refused_batches_are_dead_and_undone_ones_are_undone(tmp_path: Path) -> None:
    Group(tmp_path, 0, 2).work(11, refuse=(1, 8, 9, 10)).roll_back(6).work(18).end()
    assert counts(verify(tmp_path)) == [{"once": 18, "dead": 4}, {"once": 2, "undone": 8, "dead": 12}, ALL_ONCE]
    assert verify(tmp_path).sound


def test_a_rollback_that_replays_leaves_no_sample_out(tmp_path: Path) -> None:
    Group(tmp_path, 0, 2).work(11, refuse=(8, 9, 10)).roll_back(4, replay=True).work(8).save().work(9).end()
    Group(tmp_path, 8, 3).work(18).end()
    assert counts(verify(tmp_path)) == [ALL_ONCE] * 3


def test_a_restart_from_before_a_rollback_undoes_the_rollback_too(tmp_path: Path) -> None:
    Group(tmp_path, 0).work(8).save().work(11, refuse=(9, 10)).roll_back(2).end()  # back to an older one on disk
    Group(tmp_path, 8).work(18).end()
    assert counts(verify(tmp_path)) == [ALL_ONCE] * 3


def test_a_rollback_to_disk_undoes_the_work_of_earlier_groups_of_workers_too(tmp_path: Path) -> None:
    Group(tmp_path, 0, 2).work(4).save().work(8).save().end()
    Group(tmp_path, 8, 1).work(10, refuse=(9,)).roll_back(4).work(18).end()
    assert counts(verify(tmp_path))[:2] == [{"once": 16, "undone": 6}, {"once": 6, "undone": 12, "dead": 4}]


def test_a_requeued_batch_counts_for_the_epoch_in_which_it_died(tmp_path: Path) -> None:
    ids = BATCHES.global_indices(8).tolist()
    entry = f'{{"position_of_letter":8,"sample_indices":{ids},"without":[],"why":"","at_s":0}}\n'
    (tmp_path / REQUEUE_NAME).write_text(entry, "utf-8")
    group = Group(tmp_path, 0).work(18, refuse=(8,))
    assert counts(verify(tmp_path))[1] == {"once": 18, "dead": 4}
    group.ranks[0].batch(18, ids, applied=True)
    group.end()
    assert counts(verify(tmp_path)) == [ALL_ONCE] * 3


def test_a_torn_tail_is_passed_over_and_told(tmp_path: Path) -> None:
    Group(tmp_path, 0).work(6).save().work(7).end()
    (file,) = (tmp_path / CONSUMED_FOLDER).glob("*/rank-*.bin")
    file.write_bytes(file.read_bytes()[:-3])
    found = verify(tmp_path)
    assert (found.torn_files, found.reached) == (1, 6)
    Group(tmp_path, 6).work(18).end()
    assert counts(verify(tmp_path)) == [ALL_ONCE] * 3


def test_a_rank_whose_record_is_gone_makes_its_samples_never_seen(tmp_path: Path) -> None:
    Group(tmp_path, 0, 2).work(6).end()
    next((tmp_path / CONSUMED_FOLDER).glob("*/rank-0001-*.bin")).unlink()
    assert counts(verify(tmp_path)) == [{"once": 11, "never": 11}]


def test_a_rank_that_was_killed_one_record_behind_has_lost_nothing(tmp_path: Path) -> None:
    group = Group(tmp_path, 0, 2).work(5)
    group.ranks[0].batch(5, BATCHES.indices(5, 0, 2).tolist(), applied=True)
    group.end()
    found = verify(tmp_path)
    assert (found.reached, found.sound) == (5, True)


def test_the_record_is_bounded_and_what_it_forgot_is_not_judged(tmp_path: Path) -> None:
    policy = ConsumedPolicy(block_positions=2, max_bytes=1024)
    Group(tmp_path, 0, total=120, policy=policy).work(120).end()
    sizes = [file.stat().st_size for file in (tmp_path / CONSUMED_FOLDER).glob("*/rank-*.bin")]
    assert sum(sizes) <= 1024 + max(sizes)
    found = verify(tmp_path)
    assert found.sound
    judged = [epoch.judged for epoch in found.epochs]
    assert not judged[0]
    assert judged[-1]
    assert counts(found)[-1] == ALL_ONCE


def test_a_disk_that_refuses_is_told_once_and_nothing_is_raised(tmp_path: Path) -> None:
    (tmp_path / CONSUMED_FOLDER).write_text("in the way", "utf-8")
    group = Group(tmp_path, 0).work(4).save()
    group.end()
    assert len(group.lost) == 1
    assert "training goes on" in group.lost[0]


def test_epochs_whose_record_the_disk_refused_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(tmp_path, 0).work(8)
    real, calls = os.write, list[int]()

    def full(handle: int, record: bytes) -> int:
        calls.append(len(record))
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "no space left")
        return real(handle, record)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        group.work(9)
    group.work(10).save().work(13).end()
    Group(tmp_path, 10).work(18).end()
    found = verify(tmp_path)
    assert [epoch.judged for epoch in found.epochs] == [True, False, True]
    assert found.sound
    assert len(group.lost) == 1


def test_what_the_disk_refused_with_every_word_of_it_is_not_judged(tmp_path: Path) -> None:
    group = Group(tmp_path, 0).work(8).save()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "write", lambda *_given: os.read(-1, 1))  # refuses
        group.work(14).save().end()  # neither records, nor the mark, nor the note that they are missing
    Group(tmp_path, 14).work(18).end()
    found = verify(tmp_path)
    assert [epoch.judged for epoch in found.epochs] == [True, False, False]
    assert found.sound


def test_a_run_without_a_record_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError, match="record_consumed"):
        verify(tmp_path)


def test_a_policy_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_bytes is 10"):
        ConsumedPolicy(max_bytes=10)


@settings(max_examples=40, deadline=None)
@given(
    lives=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 5)), max_size=6),
    refuse=st.sets(st.integers(0, 23), max_size=5),
)
def test_any_number_of_kills_and_resizes_loses_nothing_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[int, int, int]], refuse: set[int]
) -> None:
    folder, position = tmp_path_factory.mktemp("run"), 0
    dead = tuple(refuse)
    for before, after, world in lives:
        group = Group(folder, position, world, total=24).work(min(24, position + before), refuse=dead).save()
        position = group.position
        group.work(min(24, position + after), refuse=dead).end()
    Group(folder, position, 2, total=24).work(24, refuse=dead).end()
    found = verify(folder)
    assert found.sound
    per_epoch = Counter(place // PER_EPOCH for place in refuse for _ in BATCHES.global_indices(place))
    assert [epoch.counts[Fate.DEAD] for epoch in found.epochs] == [per_epoch[epoch] for epoch in range(4)]
    assert all(epoch.counts[Fate.ONCE] + epoch.counts[Fate.DEAD] == 22 for epoch in found.epochs)


def test_when_a_checkpoint_is_written_the_record_of_all_batches_before_it_is_durable_in_each_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: dict[str, int] = {}

    def sync(handle: int) -> None:
        durable[Path(os.readlink(f"/proc/self/fd/{handle}")).name] = os.fstat(handle).st_size

    monkeypatch.setattr(os, "fsync", sync)
    group = Group(tmp_path, 0, policy=ConsumedPolicy(block_positions=3)).work(8)
    group.ranks[0].saved(8)
    files = {path.name: path.stat().st_size for path in tmp_path.rglob("rank-*.bin")}
    assert len(files) == 3
    assert {name: size for name, size in durable.items() if name in files} == files
