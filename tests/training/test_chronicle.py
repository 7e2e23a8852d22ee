from __future__ import annotations

from pathlib import Path

from failsoft.health.clock import ManualClock
from failsoft.training.progress import PROGRESS_NAME, Phase, PositionMark, Progress, ProgressFile, read_progress


def test_a_fast_loop_writes_progress_twice_a_second_and_no_more(tmp_path: Path) -> None:
    clock, made = ManualClock(), list[int]()

    def look() -> Progress:
        made.append(1)
        return Progress(position=len(made))

    file = ProgressFile(tmp_path, clock)
    for _ in range(100):
        file.offer(look)
        clock.advance(0.01)
    assert len(made) == 2


def test_progress_that_is_absent_or_torn_is_unknown(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    (tmp_path / PROGRESS_NAME).write_text('{"phase": "trai', "utf-8")
    assert read_progress(tmp_path) is None


def test_a_turn_of_phase_keeps_the_numbers(tmp_path: Path) -> None:
    file = ProgressFile(tmp_path, ManualClock())
    file.write(Progress(phase=Phase.TRAINING, position=9, total=10))
    file.turn(Phase.EVALUATING)
    progress = read_progress(tmp_path)
    assert progress is not None
    assert (progress.phase, progress.position, progress.total) == (Phase.EVALUATING, 9, 10)


def test_the_position_being_worked_on_is_known_exactly(tmp_path: Path) -> None:
    mark = PositionMark(tmp_path)
    assert mark.read() is None
    with mark.open() as put:
        put(41)
        put(42)
        assert PositionMark(tmp_path).read() == 42
