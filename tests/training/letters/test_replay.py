from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from failsoft.errors import ConfigError
from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.training.guard import GuardPolicy, Refusal
from failsoft.training.letters.diagnosis import Cause, Seen
from failsoft.training.letters.letterbook import LetterBook, read_letter_book
from failsoft.training.loop import LoopPlan
from failsoft.training.rng import capture_rng
from failsoft.training.spikes import SpikePolicy
from tests.training.replay_toys import SpoiltTask, SteepTask, ToyRun
from tests.training.test_loop import die_at, nan_at


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def first_refused(run: ToyRun) -> int:
    return next(letter.position for letter in read_letter_book(run.folder / "dead_letters").letters if letter.refused)


def test_a_poisoned_sample_is_the_datas_fault_and_is_named(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, task=partial(SpoiltTask, sample=17, feature=math.nan))
    run.build().run()
    found = run.replay(first_refused(run))
    assert found.diagnosis.cause is Cause.DATA, found.as_data()
    assert (found.evidence.state_met, found.evidence.fresh) == (True, (Seen.BAD, Seen.BAD))
    assert (found.blamed.samples, found.blamed.complete) == ((17,), True)


def test_an_absurd_value_that_no_weights_bear_in_float32_is_the_datas_fault(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, task=partial(SpoiltTask, sample=17, target=1e30))
    run.build().run()
    found = run.replay(first_refused(run))
    assert found.diagnosis.cause is Cause.DATA, found.as_data()
    assert "only float64 bears its values" in found.diagnosis.why


def test_an_overflow_of_half_precision_is_the_numerics_fault(tmp_path: Path) -> None:
    policy = GuardPolicy(autocast_dtype=torch.float16)
    run = ToyRun(folder=tmp_path, task=partial(SpoiltTask, sample=17, feature=1e6), policy=policy)
    run.build().run()
    found = run.replay(first_refused(run))
    assert found.diagnosis.cause is Cause.NUMERICS, found.as_data()
    assert (found.evidence.trained_low, found.evidence.single, found.evidence.double) == (True, Seen.FINE, Seen.FINE)
    assert found.blamed.samples == (17,)


def test_weights_that_grew_beyond_all_bounds_are_the_states_fault(tmp_path: Path) -> None:
    plan = LoopPlan(total_batches=12, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    run = ToyRun(folder=tmp_path, task=SteepTask, plan=plan)
    loop = run.build()

    def grow(*_: object) -> None:
        if loop.state.position == 7:  # the last step before the checkpoint, which is finite and published
            next(reversed(list(loop.state.model.parameters()))).data.fill_(1e20)

    loop.guard.optimizer.register_step_post_hook(grow)
    loop.run()
    found = run.replay(8)
    assert found.diagnosis.cause is Cause.STATE, found.as_data()
    assert (found.evidence.state_met, found.evidence.double) == (True, Seen.BAD)
    assert "4 of 4 other batches are bad on it, too" in found.diagnosis.why
    assert found.blamed.samples == ()


@pytest.mark.parametrize("position", [3, 12, 23])
def test_a_fault_that_does_not_come_again_is_the_hardwares(tmp_path: Path, position: int) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(3, 12, 23))
    run.build().run()
    found = run.replay(position)
    assert found.diagnosis.cause is Cause.HARDWARE, found.as_data()
    assert "bit for bit" in found.reached
    assert found.evidence.as_trained == (Seen.FINE,) * 3


def test_the_state_is_reached_through_rollbacks_and_restarts_bit_for_bit(tmp_path: Path) -> None:
    plan = LoopPlan(total_batches=40, seed=3, snapshot_every_steps=4, checkpoint_every_steps=9)
    faults = FaultPlan(faults=(*burst(FaultKind.NAN_BATCH, first=22, count=6), *nan_at(3, 36).faults))
    run = ToyRun(folder=tmp_path, faults=faults, plan=plan)
    die_at(run.build(), 30)
    run.build().run()
    for position in (3, 22, 24, 27, 36):
        found = run.replay(position)
        assert found.evidence.state_met, (position, found.reached, found.notes)


def test_a_batch_undone_with_others_is_accused_of_nothing(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=6, count=5)))
    run.build().run()
    found = run.replay(4)
    assert found.diagnosis.cause is Cause.UNDECIDED
    assert "nothing was said against it" in found.diagnosis.why


def test_a_state_that_is_gone_makes_a_fine_batch_undecided_and_not_innocent(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    replayer = run.replayer()
    letter = replace(replayer.book.letters[0], model_digest="blake3:of another model")
    found = replace(replayer, book=LetterBook(letters=(letter,))).replay(12)
    assert (found.diagnosis.cause, found.evidence.state_met) == (Cause.UNDECIDED, False)
    assert "not the state that it met" in found.reached


def test_an_old_letter_without_digest_and_generators_still_replays_and_says_what_is_not_known(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    replayer = run.replayer()
    letter = replace(replayer.book.letters[0], model_digest=None, generators=None)
    found = replace(replayer, book=LetterBook(letters=(letter,))).replay(12)
    assert (found.diagnosis.cause, found.evidence.state_met) == (Cause.UNDECIDED, None)


def test_a_walk_that_would_be_too_long_is_not_made_and_said(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    found = replace(run.replayer(), max_walk=3).replay(12)
    assert any("not walked" in note for note in found.notes)
    assert found.diagnosis.cause is Cause.UNDECIDED


def test_a_spike_is_bad_again_by_the_limit_that_its_letter_quotes(tmp_path: Path) -> None:
    policy = GuardPolicy(loss_spikes=SpikePolicy(window=8, warm_up=4, deviations=4.0))
    run = ToyRun(folder=tmp_path, task=partial(SpoiltTask, sample=17, target=300.0), policy=policy)
    run.build().run()
    letters = [one for one in read_letter_book(tmp_path / "dead_letters").letters if one.reason == Refusal.LOSS_SPIKE]
    spoilt = [letter for letter in letters if 17 in letter.sample_ids]
    assert spoilt, f"no spike of this sample was refused: {letters}"
    found = run.replay(spoilt[-1].position)
    assert spoilt[-1].spike_limit is not None
    assert found.evidence.as_trained == (Seen.BAD,) * 3, found.as_data()
    assert all("is above" in trial.why for trial in found.trials[:3])
    assert (found.diagnosis.cause, found.blamed.samples) == (Cause.DATA, (17,)), found.as_data()


def test_a_replay_changes_neither_the_runs_files_nor_the_generators(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    replayer = run.replayer()
    files, draws = files_of(tmp_path), capture_rng()
    replayer.replay(12)
    assert files_of(tmp_path) == files
    assert capture_rng() == draws


def test_a_position_without_a_letter_is_refused_by_name(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    with pytest.raises(ConfigError, match="no dead letter is of position 5; there are: 12"):
        run.replay(5)


def test_every_step_of_a_replay_is_said(tmp_path: Path) -> None:
    run = ToyRun(folder=tmp_path, faults=nan_at(12))
    run.build().run()
    said, walked = list[str](), list[tuple[int, int]]()
    replace(run.replayer(), say=said.append, watch=lambda done, total: walked.append((done, total))).replay(12)
    assert said[0] == "walking to the state that it met"
    assert walked == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
