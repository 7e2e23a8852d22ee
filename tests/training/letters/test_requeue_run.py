"""Dead batches that people put back on the list are really trained on, once, also across restarts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from failsoft.health.faults import Fault, FaultKind, FaultPlan
from failsoft.training.letters.diagnosis import Cause
from failsoft.training.letters.letterbook import read_letter_book
from failsoft.training.letters.requeue import append_requeue
from failsoft.training.loop import TrainLoop
from tests.training.replay_toys import SpoiltTask, ToyRun
from tests.training.test_loop import die_at, nan_at
from tests.training.toys import ToyTask, same, weights_of


def seen_by(loop: TrainLoop) -> list[int]:
    assert isinstance(loop.task, ToyTask)
    return loop.task.seen


def finished(folder: Path, *positions: int) -> ToyRun:
    """A finished run whose batches at these positions are dead, and on the list."""
    run = ToyRun(folder=folder, faults=nan_at(*positions))
    run.build().run()
    for position in positions:
        append_requeue(folder, position, at_s=0.0)
    return run


def test_a_finished_run_that_is_started_again_trains_on_what_was_requeued_and_on_nothing_else(tmp_path: Path) -> None:
    run = finished(tmp_path, 12, 5)
    again = run.build()
    again.run()
    assert (again.state.position, again.state.step) == (26, 24)
    wanted = [*again.batches.global_indices(12).tolist(), *again.batches.global_indices(5).tolist()]
    assert seen_by(again) == wanted
    third = run.build()
    third.run()
    assert seen_by(third) == []


@pytest.mark.parametrize("death", [3, 24, 25])
def test_a_kill_anywhere_changes_no_bit_and_trains_each_requeued_batch_once(tmp_path: Path, death: int) -> None:
    undisturbed = finished(tmp_path / "undisturbed", 12, 5).build()
    undisturbed.run()
    run = ToyRun(folder=tmp_path / "killed", faults=nan_at(12, 5))
    if death < 24:
        die_at(run.build(), death)
    run.build().run()
    for position in (12, 5):
        append_requeue(run.folder, position, at_s=0.0)
    if death >= 24:
        die_at(run.build(), death)
    last = run.build()
    last.run()
    assert (last.state.position, last.state.step) == (26, 24)
    assert same(weights_of(last.state.model), weights_of(undisturbed.state.model))


def test_a_sample_that_was_left_out_is_not_trained_on_again(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    whole = run.build().batches.global_indices(12).tolist()
    append_requeue(tmp_path, 12, at_s=0.0, without=whole[:2])
    again = run.build()
    again.run()
    assert seen_by(again) == whole[2:]


def test_a_batch_requeued_while_the_run_goes_on_is_trained_on_after_a_restart(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(5))
    die_at(run.build(), 18)
    append_requeue(tmp_path, 5, at_s=0.0)
    last = run.build()
    last.run()
    assert (last.state.position, last.state.step) == (25, 24)


def test_a_requeued_batch_that_is_refused_again_leaves_a_letter_and_can_be_replayed(tmp_path: Path) -> None:
    second = Fault(kind=FaultKind.NAN_BATCH, position=24)
    run = ToyRun(folder=tmp_path, faults=FaultPlan(faults=(*nan_at(12).faults, second)))
    run.build().run()
    append_requeue(tmp_path, 12, at_s=0.0)
    run.build().run()
    (letter,) = read_letter_book(tmp_path / "dead_letters").at(24)
    found = run.replay(24)
    assert list(letter.sample_ids) == run.build().batches.global_indices(12).tolist()
    assert (found.diagnosis.cause, found.evidence.state_met) == (Cause.HARDWARE, True), found.as_data()


def test_a_poisoned_batch_goes_again_without_the_sample_that_a_replay_blamed(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, task=partial(SpoiltTask, sample=17, feature=float("nan")))
    run.build().run()
    dead = [letter.position for letter in read_letter_book(tmp_path / "dead_letters").letters if letter.refused]
    assert len(dead) == 3  # the sample comes once in each epoch
    for position in dead:
        append_requeue(tmp_path, position, at_s=0.0, without=run.replay(position).blamed.samples)
    last = run.build()
    last.run()
    assert (last.state.position, last.state.step) == (27, 24)
