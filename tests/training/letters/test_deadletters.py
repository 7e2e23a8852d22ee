from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.training.guard import Refusal, StepOutcome
from failsoft.training.letters.deadletters import DeadLetters, LetterPolicy
from failsoft.training.letters.letter import UNDONE, Circumstances, DeadLetter, letter_of, undone_letter
from failsoft.training.letters.letterbook import bursts, read_dead_letters, read_letter_book


def letter(
    position: int, *, rank: int = 0, loss: float | None = None, reason: str = "loss is not finite", at_s: float = 0.0
) -> DeadLetter:
    return DeadLetter(
        position=position, step=1, rank=rank, reason=reason, sample_ids=(4, 5), loss=loss, at_s=at_s, sample_count=2
    )


def refused(*, position: int = 1, ids: tuple[int, ...] = (4, 5), refusal: Refusal | None = Refusal.LOSS) -> StepOutcome:
    return StepOutcome(position, ids, 0, refusal, math.nan, math.nan, math.inf)


def test_letters_of_all_ranks_come_back_in_order(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=1).write(letter(9, rank=1))
    DeadLetters(tmp_path, rank=0).write(letter(9))
    DeadLetters(tmp_path, rank=0).write(letter(2, loss=0.5))
    assert read_dead_letters(tmp_path) == [letter(2, loss=0.5), letter(9), letter(9, rank=1)]


def test_a_nan_loss_is_written_as_json_that_others_can_read(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=0).write(letter_of(refused(), step=1, at_s=0.0))
    assert "NaN" not in (tmp_path / "rank-0000.jsonl").read_text("utf-8")
    assert read_dead_letters(tmp_path) == [letter(1)]


def test_a_letter_says_what_the_batch_met(tmp_path: Path) -> None:
    met = Circumstances(
        world=3, sources={"b": 1, "a": 2}, spike_limit=4.0, model_digest="m", generators={"cpu": "x"}, payload="p"
    )
    spike = StepOutcome(7, (1, 2, 3), 2, Refusal.LOSS_SPIKE, 9.0, 8.0, 1.5, "head.weight", "loss 8 is above 4")
    DeadLetters(tmp_path, rank=2).write(letter_of(spike, step=6, at_s=1.0, circumstances=met))
    (found,) = read_dead_letters(tmp_path)
    assert (found.world, dict(found.sources), found.spike_limit, found.model_digest) == (3, {"a": 2, "b": 1}, 4.0, "m")
    assert (found.mean_loss, found.why, found.bad_tensor, found.payload) == (
        8.0,
        "loss 8 is above 4",
        "head.weight",
        "p",
    )
    assert (found.generators, found.refused) == ({"cpu": "x"}, True)


def test_a_letter_names_at_most_4096_samples_and_says_how_many_there_were(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=0).write(letter_of(refused(ids=tuple(range(5000))), step=1, at_s=0.0))
    (found,) = read_dead_letters(tmp_path)
    assert (len(found.sample_ids), found.sample_count) == (4096, 5000)


def test_a_batch_that_a_rollback_took_back_is_not_called_refused() -> None:
    undone = undone_letter(5, [1, 2], step=3, at_s=0.0, undone_at=9, circumstances=Circumstances(rank=1, world=2))
    assert (undone.reason, undone.refused, undone.undone_at, undone.rank, undone.world) == (UNDONE, False, 9, 1, 2)


def test_a_batch_met_again_keeps_its_last_letter(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, rank=0)
    letters.write(letter(3, loss=1.0))
    letters.write(letter(3, loss=2.0))
    assert [found.loss for found in read_dead_letters(tmp_path)] == [2.0]


def test_a_second_rollback_over_a_refused_batch_does_not_hide_why_it_was_refused(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, rank=0)
    letters.write(letter(3, loss=1.0))
    letters.write(undone_letter(3, [4, 5], step=1, at_s=0.0, undone_at=9))
    assert read_dead_letters(tmp_path) == [letter(3, loss=1.0)]


def test_a_batch_that_was_fine_after_a_restart_is_dead_no_more(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, rank=0)
    for position in (3, 9, 12):
        letters.write(letter(position))
    letters.resumed(8, at_s=5.0)
    letters.write(letter(12, loss=2.0))
    book = read_letter_book(tmp_path)
    assert [(one.position, one.loss) for one in book.letters] == [(3, None), (12, 2.0)]
    assert [one.position for one in book.overtaken] == [9]
    assert book.of_batch(9)[0].position == 9


def test_a_restart_in_a_smaller_world_overtakes_the_letters_of_ranks_that_are_gone(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=1).write(letter(9, rank=1, at_s=1.0))
    DeadLetters(tmp_path, rank=1).write(letter(2, rank=1, at_s=1.0))
    DeadLetters(tmp_path, rank=0).resumed(8, at_s=2.0)
    book = read_letter_book(tmp_path)
    assert ([one.position for one in book.letters], [one.position for one in book.overtaken]) == ([2], [9])


def test_a_rank_that_left_its_own_mark_is_not_judged_by_the_clock_of_another(tmp_path: Path) -> None:
    for rank in range(2):
        DeadLetters(tmp_path, rank=rank).write(letter(3, rank=rank, at_s=1.0))
    DeadLetters(tmp_path, rank=1).resumed(8, at_s=2.0)
    DeadLetters(tmp_path, rank=1).write(letter(9, rank=1, at_s=2.5))
    DeadLetters(tmp_path, rank=0).resumed(8, at_s=4.0)  # its clock is ahead
    assert [(one.position, one.rank) for one in read_dead_letters(tmp_path)] == [(3, 0), (3, 1), (9, 1)]


def test_a_run_without_letters_gets_no_file_for_a_restart(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=0).resumed(8, at_s=2.0)
    assert list(tmp_path.iterdir()) == []


def test_letters_stay_bounded_and_the_newest_survive(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, rank=0, policy=LetterPolicy(max_file_bytes=4096))
    for position in range(200):
        letters.write(letter(position))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * 4096
    found = read_dead_letters(tmp_path)
    assert found[-1].position == 199
    assert [one.position for one in found] == list(range(found[0].position, 200))


def test_a_torn_line_hides_no_other_letter_and_is_counted(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=0).write(letter(1))
    with (tmp_path / "rank-0000.jsonl").open("ab") as out:
        out.write(b'{"position": 2, "st')
    DeadLetters(tmp_path, rank=0).write(letter(3))
    book = read_letter_book(tmp_path)
    assert (book.letters, book.torn_lines) == ((letter(1), letter(3)), 1)


def test_letters_of_older_and_newer_versions_still_read(tmp_path: Path) -> None:
    old = {"position": 3, "step": 1, "rank": 0, "reason": "loss is not finite", "sample_ids": [4, 5], "loss": None}
    old |= {"grad_norm": None, "bad_tensor": None, "at_s": 0.0}
    newer = old | {"position": 4, "colour": "red"}
    (tmp_path / "rank-0000.jsonl").write_text("\n".join(map(json.dumps, (old, newer))) + "\n", "utf-8")
    assert [(one.position, one.world, one.sample_count) for one in read_dead_letters(tmp_path)] == [
        (3, 1, None),
        (4, 1, None),
    ]


def test_an_applied_step_leaves_no_letter() -> None:
    with pytest.raises(ConfigError, match="was applied"):
        letter_of(refused(refusal=None), step=1, at_s=0.0)


def test_a_disk_that_refuses_is_counted_said_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()  # a file where the folder should be
    said: list[str] = []
    letters = DeadLetters(tmp_path / "letters", rank=0, on_lost=said.append)
    assert [letters.write(letter(1)), letters.write(letter(2))] == [False, False]
    assert (letters.lost, len(said)) == (2, 1)
    assert "training goes on" in said[0]


@pytest.mark.parametrize("setting", [{"max_file_bytes": 10}, {"max_payloads": -1}, {"max_digest_bytes": -1}])
def test_an_impossible_policy_is_refused_by_name(setting: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        LetterPolicy(**setting)  # type: ignore[arg-type]


def test_bursts_are_batches_in_a_row_of_one_kind() -> None:
    letters = [letter(2, reason=UNDONE), letter(3), letter(3, rank=1), letter(4), letter(9)]
    assert [(burst.first, burst.last, burst.batches) for burst in bursts(letters)] == [(2, 2, 1), (3, 4, 2), (9, 9, 1)]


def test_a_position_without_a_letter_is_refused_with_those_there_are(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=0).write(letter(3))
    with pytest.raises(ConfigError, match="no dead letter is of position 4; there are: 3"):
        read_letter_book(tmp_path).of_batch(4)
