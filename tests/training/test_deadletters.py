from __future__ import annotations

import math
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.training.deadletters import DeadLetter, DeadLetters, letter_of, read_dead_letters
from failsoft.training.guard import Refusal, StepOutcome


def letter(position: int, *, rank: int = 0, loss: float | None = None) -> DeadLetter:
    return DeadLetter(position=position, step=1, rank=rank, reason="loss is not finite", sample_ids=(4, 5), loss=loss)


def test_letters_of_all_ranks_come_back_in_order(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=1).write(letter(9, rank=1))
    DeadLetters(tmp_path, rank=0).write(letter(9))
    DeadLetters(tmp_path, rank=0).write(letter(2, loss=0.5))
    assert read_dead_letters(tmp_path) == [letter(2, loss=0.5), letter(9), letter(9, rank=1)]


def test_a_nan_loss_is_written_as_json_that_others_can_read(tmp_path: Path) -> None:
    outcome = StepOutcome(
        position=1,
        sample_ids=(4, 5),
        rank=0,
        refusal=Refusal.LOSS,
        loss=math.nan,
        mean_loss=math.nan,
        grad_norm=math.inf,
    )
    DeadLetters(tmp_path, rank=0).write(letter_of(outcome, step=1, at_s=0.0))
    assert "NaN" not in (tmp_path / "rank-0000.jsonl").read_text("utf-8")
    assert read_dead_letters(tmp_path) == [letter(1)]


def test_a_batch_met_again_keeps_its_last_letter(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, rank=0)
    letters.write(letter(3, loss=1.0))
    letters.write(letter(3, loss=2.0))
    assert [found.loss for found in read_dead_letters(tmp_path)] == [2.0]


def test_letters_stay_bounded_and_the_newest_survive(tmp_path: Path) -> None:
    letters = DeadLetters(tmp_path, rank=0, max_file_bytes=2048)
    for position in range(200):
        letters.write(letter(position))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * 2048
    found = read_dead_letters(tmp_path)
    assert found[-1].position == 199
    assert [one.position for one in found] == list(range(found[0].position, 200))


def test_a_torn_line_hides_no_other_letter(tmp_path: Path) -> None:
    DeadLetters(tmp_path, rank=0).write(letter(1))
    with (tmp_path / "rank-0000.jsonl").open("ab") as out:
        out.write(b'{"position": 2, "st')
    assert read_dead_letters(tmp_path) == [letter(1)]


def test_an_applied_step_leaves_no_letter() -> None:
    outcome = StepOutcome(position=1, sample_ids=(), rank=0, refusal=None, loss=1.0, mean_loss=1.0, grad_norm=1.0)
    with pytest.raises(ConfigError, match="was applied"):
        letter_of(outcome, step=1, at_s=0.0)
