"""The ladder on a live run: snapshot, slower, disk, stop; and stretches that are skipped, or met again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import pytest
import torch
from torch.amp.grad_scaler import GradScaler

from failsoft.errors import NoProgressError
from failsoft.health.faults import FaultKind, FaultPlan, burst
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.course import Course
from failsoft.training.guard import StepOutcome
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.loop import LoopPlan, Poisoned, TrainLoop
from failsoft.training.summary import RunSummary, summarise
from tests.training.test_loop import Death, die_at, nan_at
from tests.training.toys import ToyTask, same, toy_loop, weights_of


def plan(poisoned: Poisoned = Poisoned.SKIP, *, total: int = 60) -> LoopPlan:
    return LoopPlan(total_batches=total, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8, poisoned=poisoned)


def nan(first: int, count: int) -> FaultPlan:
    return FaultPlan(faults=burst(FaultKind.NAN_BATCH, first=first, count=count))


def told(folder: Path, kind: str) -> list[Event]:
    return [event for event in read_ledger(folder / "ledger.jsonl").events if event.kind == kind]


def summed(folder: Path) -> RunSummary:
    return summarise(read_ledger(folder / "ledger.jsonl").events, run=folder.name)


def flaky(loop: TrainLoop, position: int, times: int) -> None:
    """Batches from ``position`` on are NaN the first ``times`` times that they are met, and good afterwards."""
    task = loop.task
    assert isinstance(task, ToyTask)
    loss, met = task.loss, list[int]()

    def at_first(indices: object) -> torch.Tensor:
        if loop.state.position >= position and len(met) < times:
            met.append(loop.state.position)
            return loss(indices) * torch.nan  # type: ignore[arg-type]
        return loss(indices)  # type: ignore[arg-type]

    task.loss = at_first  # type: ignore[method-assign]


def test_trouble_at_one_place_goes_to_the_snapshot_then_slower_then_to_the_checkpoint_before(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=plan(), faults=nan(18, 15))
    loop.run()
    back = told(tmp_path, "rolled_back")
    assert [event.data["remedy"] for event in back] == ["snapshot", "snapshot_slower", "disk"]
    assert [event.data["snapshot_position"] for event in back] == [16, 16, 8]  # 16 has a checkpoint, which didn't help
    assert loop.guard.relief.factor < 1.0
    assert (loop.state.position, loop.state.step) == (60, 8 + 60 - 33)
    moves = [(event.data["before"], event.data["after"]) for event in told(tmp_path, "run_moved")]
    assert moves[-3:] == [
        ("running", "going back to disk"),
        ("going back to disk", "running"),
        ("running", "finished"),
    ]


def test_when_nothing_helps_the_run_stops_and_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(
        NoProgressError, match=r"tried: the RAM snapshot .* lower learning rate .* the checkpoint before"
    ):
        toy_loop(tmp_path, plan=plan(), faults=nan(18, 42)).run()
    (stop,) = told(tmp_path, "run_stopped")
    assert stop.data["error"] == "NoProgressError"
    assert NoProgressError.exit_status == 4


def test_without_an_earlier_checkpoint_the_ladder_goes_straight_on(tmp_path: Path) -> None:
    with pytest.raises(NoProgressError, match="there is no checkpoint before step"):
        toy_loop(tmp_path, plan=plan(), faults=nan(2, 50)).run()


@pytest.mark.parametrize("poisoned", list(Poisoned))
@pytest.mark.parametrize("death", [20, 28, 36, 45])
def test_a_kill_around_the_way_to_disk_changes_no_bit_of_the_end(
    tmp_path: Path, poisoned: Poisoned, death: int
) -> None:
    count = 15 if poisoned is Poisoned.SKIP else 7
    undisturbed = toy_loop(tmp_path / "undisturbed", plan=plan(poisoned), faults=nan(18, count))
    undisturbed.run()
    if death < 18 + count and poisoned is Poisoned.REPLAY:
        death = 40
    die_at(toy_loop(tmp_path / "killed", plan=plan(poisoned), faults=nan(18, count)), death)
    last = toy_loop(tmp_path / "killed", plan=plan(poisoned), faults=nan(18, count))
    last.run()
    assert same(weights_of(last.state.model), weights_of(undisturbed.state.model))
    assert last.breaker.state_dict() == undisturbed.breaker.state_dict()
    before, after = summed(tmp_path / "undisturbed"), summed(tmp_path / "killed")
    assert (before.batches_refused, before.rollbacks) == (after.batches_refused, after.rollbacks)


def test_a_kill_after_the_way_to_disk_does_not_bring_back_what_letters_call_undone(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=plan())
    flaky(loop, 18, 15)
    die_at(loop, 36)
    last = toy_loop(tmp_path, plan=plan())
    last.run()
    letters = read_dead_letters(tmp_path / "dead_letters")
    assert [letter.position for letter in letters if not letter.refused] == list(range(8, 18))
    assert (last.state.step, last.breaker.refused, last.breaker.rollbacks) == (60 - len(letters), 15, 3)
    (withdrawn,) = told(tmp_path, "checkpoint_withdrawn")
    assert withdrawn.data["name"].endswith("16")


def test_a_kill_before_the_new_checkpoint_of_the_way_to_disk_leaves_no_newer_state_than_its_letters(
    tmp_path: Path,
) -> None:
    loop = toy_loop(tmp_path, plan=plan())
    flaky(loop, 18, 15)
    buried = loop._chronicle.buried

    def die_at_the_letters(positions: range, course: Course) -> None:
        if loop.state.step == 8:
            raise Death
        buried(positions, course)

    loop._chronicle.buried = die_at_the_letters  # type: ignore[method-assign, assignment]
    with pytest.raises(Death):
        loop.run()
    last = toy_loop(tmp_path, plan=plan())
    last.run()
    assert [event.data["checkpoint"][-2:] for event in told(tmp_path, "restored")] == ["08"]
    assert (last.state.step, read_dead_letters(tmp_path / "dead_letters")) == (60, [])


def test_a_stretch_that_is_met_again_loses_no_batch_to_a_passing_fault(tmp_path: Path) -> None:
    clean = toy_loop(tmp_path / "clean", plan=plan(Poisoned.REPLAY))
    clean.run()
    loop = toy_loop(tmp_path / "run", plan=plan(Poisoned.REPLAY))
    flaky(loop, 18, 5)
    loop.run()
    assert (loop.state.position, loop.state.step) == (60, 60)
    assert same(weights_of(loop.state.model), weights_of(clean.state.model))
    assert (loop.breaker.refused, loop.breaker.rollbacks, loop.breaker.drop_rate.bad) == (0, 1, 1)
    assert (summed(tmp_path / "run").batches_refused, summed(tmp_path / "run").rollbacks) == (0, 1)
    assert read_dead_letters(tmp_path / "run" / "dead_letters") == []


def test_data_that_is_ill_again_when_it_is_met_again_costs_one_way_back_and_no_learning_rate(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=plan(Poisoned.REPLAY), faults=nan(18, 5))
    loop.run()
    assert (loop.state.position, loop.state.step) == (60, 55)
    assert (summed(tmp_path).batches_refused, summed(tmp_path).rollbacks) == (5, 1)
    assert (loop.breaker.refused, loop.breaker.drop_rate.bad, loop.guard.relief.factor) == (5, 1, 1.0)
    assert [letter.position for letter in read_dead_letters(tmp_path / "dead_letters")] == [18, 19, 20, 21, 22]


@pytest.mark.parametrize(
    ("ill", "in_two_passes"),
    [
        (range(18, 33), range(18, 28)),
        ((*range(18, 23), *range(25, 30)), ()),  # a snapshot lies between the two
        ((*range(18, 23), *range(24, 29)), range(18, 23)),
    ],
)
def test_ill_stretches_that_are_long_or_close_together_do_not_stop_a_run_that_meets_them_again(
    tmp_path: Path, ill: Sequence[int], in_two_passes: Sequence[int]
) -> None:
    loop = toy_loop(tmp_path, plan=plan(Poisoned.REPLAY), faults=nan_at(*ill))
    loop.run()
    assert (loop.state.position, loop.state.step) == (60, 60 - len(ill))
    assert summed(tmp_path).batches_refused == loop.breaker.refused == len(ill)
    assert [letter.position for letter in read_dead_letters(tmp_path / "dead_letters")] == list(ill)
    passed = {event.data["position"] for event in told(tmp_path, "batch_refused") if "for good" in event.why}
    assert passed == set(in_two_passes)  # not met a third time


def test_a_state_that_falls_ill_without_a_refused_step_goes_back_at_once(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=plan())
    buffer = loop.state.model[1].running_var  # type: ignore[index]
    assert isinstance(buffer, torch.Tensor)

    def fall_ill(*_: object) -> None:
        if loop.state.position == 18:
            loop.state.model.train()
            next(loop.state.model.parameters()).data[0, 0] = torch.inf

    loop.guard.optimizer.register_step_post_hook(fall_ill)
    loop.run()
    (back,) = told(tmp_path, "rolled_back")
    assert back.data["position"] <= 24
    assert loop.breaker.drop_rate.bad == 1
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights_of(loop.state.model).values())


def test_poisoned_weights_are_never_published_and_the_way_back_is_older_and_finite(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=plan(total=24))
    weight = next(loop.state.model.parameters())

    def fall_ill(*_: object) -> None:
        if loop.state.position == 15:
            weight.data.fill_(torch.nan)

    loop.guard.optimizer.register_step_post_hook(fall_ill)
    loop.run()
    (back,) = told(tmp_path, "rolled_back")
    assert back.data["snapshot_position"] < 15
    for artifact in loop.checkpoints.store.listing():
        assert artifact.manifest.meta["healthy"] is True
    assert torch.isfinite(weight).all()


def test_a_loss_scale_that_backed_off_does_not_come_back_with_the_snapshot(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=plan(), faults=nan(18, 5))
    scaler = GradScaler("cpu", init_scale=1024.0)
    loop.state.scaler = loop.guard.scaler = scaler
    loop.guard.__post_init__()
    loop.run()
    assert told(tmp_path, "rolled_back")
    assert scaler.state_dict()["scale"] == 1024.0 / 2**5


def test_one_nan_in_a_hundred_steps_is_one_bad_step_and_the_mean_leaves_it_out(tmp_path: Path) -> None:
    loop = toy_loop(tmp_path, plan=plan(total=100), faults=nan(40, 1))
    losses, apply = list[float](), loop.guard.apply

    def noted(outcome: StepOutcome, *, portion: float = 1.0, moves_on: bool = True) -> None:
        losses.append(outcome.mean_loss)
        apply(outcome, portion=portion, moves_on=moves_on)

    loop.guard.apply = noted  # type: ignore[method-assign]
    loop.run()
    assert len(told(tmp_path, "batch_refused")) == loop.breaker.refused == 1
    assert loop.state.step == 99
    assert loop.state.scheduler is not None
    assert loop.state.scheduler.last_epoch == 99
    assert len(losses) == 99
    assert loop._chronicle.loss == pytest.approx(reduce(lambda mean, loss: 0.95 * mean + 0.05 * loss, losses))
