from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.training.letters.deadletters import DeadLetters
from failsoft.training.letters.letter import DeadLetter
from failsoft.training.letters.requeue import REQUEUE_NAME, RequeueEntry, append_requeue, read_requeue


def bury(folder: Path, position: int, ids: tuple[int, ...], *, rank: int = 0, world: int = 1, count: int = 0) -> None:
    letter = DeadLetter(
        position=position,
        step=1,
        rank=rank,
        reason="loss is not finite",
        sample_ids=ids,
        world=world,
        sample_count=count or len(ids),
    )
    DeadLetters(folder / "dead_letters", rank=rank).write(letter)


def test_a_dead_batch_goes_on_the_list_as_it_was(tmp_path: Path) -> None:
    bury(tmp_path, 7, (5, 3, 8))
    entry = append_requeue(tmp_path, 7, at_s=2.0, why="labels mended")
    assert entry == RequeueEntry(position_of_letter=7, sample_indices=(5, 3, 8), why="labels mended", at_s=2.0)
    assert read_requeue(tmp_path) == (entry,)


def test_the_shares_of_all_ranks_become_the_global_batch_again(tmp_path: Path) -> None:
    bury(tmp_path, 7, (0, 3, 6), rank=0, world=3)
    bury(tmp_path, 7, (1, 4), rank=1, world=3)
    bury(tmp_path, 7, (2, 5), rank=2, world=3)
    assert append_requeue(tmp_path, 7, at_s=0.0).sample_indices == (0, 1, 2, 3, 4, 5, 6)


def test_samples_that_were_blamed_are_left_out_and_named(tmp_path: Path) -> None:
    bury(tmp_path, 7, (5, 3, 8))
    entry = append_requeue(tmp_path, 7, at_s=0.0, without=(3, 3))
    assert (entry.sample_indices, entry.without) == ((5, 8), (3,))


def test_a_batch_goes_on_the_list_once(tmp_path: Path) -> None:
    bury(tmp_path, 7, (5, 3))
    append_requeue(tmp_path, 7, at_s=0.0)
    with pytest.raises(ConfigError, match="on the list already, as entry 0"):
        append_requeue(tmp_path, 7, at_s=0.0)


def test_two_hands_that_requeue_at_once_do_it_once(tmp_path: Path) -> None:
    bury(tmp_path, 7, (5, 3))

    def hand(_number: int) -> bool:
        try:
            append_requeue(tmp_path, 7, at_s=0.0)
        except ConfigError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(hand, range(16))) == 1
    assert len(read_requeue(tmp_path)) == 1


@pytest.mark.parametrize(
    ("position", "without", "said"),
    [
        (8, (), "no dead letter is of position 8; there are: 7"),
        (7, (4,), "not in the batch"),
        (7, (5, 3), "nothing is"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_words(
    tmp_path: Path, position: int, without: tuple[int, ...], said: str
) -> None:
    bury(tmp_path, 7, (5, 3))
    with pytest.raises(ConfigError, match=said):
        append_requeue(tmp_path, position, at_s=0.0, without=without)
    assert read_requeue(tmp_path) == ()


def test_a_batch_that_was_trained_on_after_a_restart_is_not_requeued(tmp_path: Path) -> None:
    bury(tmp_path, 7, (5, 3))
    DeadLetters(tmp_path / "dead_letters", rank=0).resumed(4, at_s=1.0)
    with pytest.raises(ConfigError, match="met again after a restart"):
        append_requeue(tmp_path, 7, at_s=0.0)


@pytest.mark.parametrize(("count", "world", "said"), [(9, 1, "cut short: \\[0\\]"), (0, 2, "absent ranks: \\[1\\]")])
def test_letters_that_hold_a_part_of_the_batch_ask_for_the_whole(
    tmp_path: Path, count: int, world: int, said: str
) -> None:
    bury(tmp_path, 7, (5, 3), world=world, count=count)
    with pytest.raises(ConfigError, match=said):
        append_requeue(tmp_path, 7, at_s=0.0)
    assert append_requeue(tmp_path, 7, at_s=0.0, global_indices=(5, 3, 2)).sample_indices == (5, 3, 2)


def test_a_torn_line_is_no_entry_and_drowns_none(tmp_path: Path) -> None:
    for position in (7, 8):
        bury(tmp_path, position, (position,))
    append_requeue(tmp_path, 7, at_s=0.0)
    with (tmp_path / REQUEUE_NAME).open("ab") as out:
        out.write(b'{"position_of_letter": 8, "sam')
    append_requeue(tmp_path, 8, at_s=0.0)
    assert [entry.position_of_letter for entry in read_requeue(tmp_path)] == [7, 8]
