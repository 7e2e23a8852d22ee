"""The judging of recoveries is proven on written diaries; nothing here is killed or timed."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.benchmarks.bench_recovery import AGAIN, OURS, PATIENCE_S, RAY, TORCHRUN, Board, report
from tests.benchmarks.outcome import Outcome
from tests.benchmarks.process_tree import cpu_s, descendants, memory_mb
from tests.benchmarks.recovery_marks import Diary, Recovery, judged, newest, read_diary
from tests.benchmarks.recovery_toy import CHECKPOINT_EVERY, Marks, await_turn, turn_of


def diary(rank: int, pid: int, came_s: float, *steps: tuple[float, int]) -> Diary:
    return Diary(rank=rank, pid=pid, came_s=came_s, steps=steps)


def took(seconds: float) -> Recovery:
    return Recovery(took_s=seconds, began_s=0.0, repeated=0)


BEFORE = [diary(0, 10, 1.0, (2.0, 119), (3.0, 120)), diary(1, 11, 1.0, (2.0, 119))]


def test_a_recovery_lasts_until_the_slowest_rank_has_done_a_step() -> None:
    after = [*BEFORE, diary(0, 20, 5.0, (6.0, 101), (6.1, 102)), diary(1, 21, 5.5, (6.5, 101))]
    recovery = judged(BEFORE, after, killed_s=4.0)
    assert recovery == Recovery(took_s=2.5, began_s=1.5, repeated=20)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param([], id="nobody is back"),
        pytest.param([diary(0, 20, 5.0, (6.0, 101))], id="one rank is back"),
        pytest.param([diary(0, 20, 5.0, (6.0, 101)), diary(1, 21, 5.0)], id="one rank has done no step"),
        pytest.param([diary(0, 10, 1.0, (9.0, 121)), diary(1, 11, 1.0, (9.0, 121))], id="those of before go on"),
    ],
)
def test_it_is_none_before_every_rank_has_a_new_worker_with_a_step(after: list[Diary]) -> None:
    assert judged(BEFORE, after, killed_s=4.0) is None


@pytest.mark.parametrize(
    ("first", "said"),
    [
        pytest.param((1, 1), "began anew", id="from the beginning"),
        pytest.param((101, 102), "different steps", id="ranks differ"),
        pytest.param((120 - 2 * CHECKPOINT_EVERY, 120 - 2 * CHECKPOINT_EVERY), "done again", id="too far back"),
        pytest.param((122, 122), "began anew", id="steps left out"),
    ],
)
def test_a_run_that_does_not_go_on_from_its_checkpoint_is_no_recovery(first: tuple[int, int], said: str) -> None:
    after = [diary(0, 20, 5.0, (6.0, first[0])), diary(1, 21, 5.0, (6.0, first[1]))]
    with pytest.raises(AssertionError, match=said):
        judged(BEFORE, after, killed_s=4.0)


def test_a_worker_reads_as_it_wrote_and_a_half_written_line_is_left_out(tmp_path: Path) -> None:
    with closing(Marks(tmp_path, 1)) as marks:
        for step in (7, 8):
            marks.done(step)
    path = tmp_path / "marks" / f"1-{os.getpid()}"
    with path.open("a", encoding="utf-8") as file:
        file.write("123.4")
    read = read_diary(path)
    assert read is not None
    assert (read.rank, read.pid, [step for _, step in read.steps], read.last) == (1, os.getpid(), [7, 8], 8)


def test_a_diary_without_a_line_is_none(tmp_path: Path) -> None:
    (tmp_path / "0-5").write_text("", "utf-8")
    assert read_diary(tmp_path / "0-5") is None


def test_of_each_rank_the_worker_that_came_last_counts_and_a_missing_rank_is_no_group() -> None:
    old, new, other = diary(0, 1, 1.0), diary(0, 2, 2.0), diary(1, 3, 1.5)
    assert newest([new, old, other], 2) == [new, other]
    assert newest([new, old], 2) == []


def test_a_ratio_is_taken_over_rounds_in_which_both_came_back() -> None:
    board = Board()
    for ours, ray in ((1.0, 4.0), (None, 4.0), (2.0, 4.0)):
        board.add(OURS, None if ours is None else took(ours))
        board.add(RAY, took(ray))
        board.add(TORCHRUN, None)
        board.add(AGAIN, took(1.0))
    ratio = board.ratio(OURS, RAY)
    assert ratio is not None
    assert (ratio.low, ratio.high) == (0.25, 0.5)
    assert board.ratio(OURS, TORCHRUN) is None
    assert len(board.back(OURS)) == 2


def test_a_system_trains_while_its_turn_lasts(tmp_path: Path) -> None:
    turn_of(tmp_path).touch()
    await_turn(tmp_path)  # returns at once


def test_a_process_belongs_to_its_own_tree_and_takes_memory_and_time() -> None:
    here = os.getpid()
    assert here in descendants(here)
    assert here in descendants(os.getppid())
    assert memory_mb([here]) > 1.0
    assert cpu_s([here]) > 0.0


def test_a_system_that_never_came_back_is_named_and_given_no_time() -> None:
    board, outcome = Board(), Outcome(name="recovery")
    for recovery in (took(1.0), None):
        board.add(OURS, recovery)
        board.add(TORCHRUN, None)
    for name in (OURS, TORCHRUN):
        report(outcome, board, name, (3, 600.0))
    assert {row.contender for row in outcome.rows} == {OURS}
    assert outcome.rows[0].note.startswith("1 of 2 back")
    assert outcome.notes == [f"{TORCHRUN}: 0 of 2 back within {PATIENCE_S:g} s"]
