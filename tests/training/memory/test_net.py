"""The net in a whole run, of one process: the loop, its ledger, its checkpoints."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from failsoft.health.faults import Fault, FaultKind, FaultMoment, FaultPlan, burst
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.degradation import BEGAN, CHANGED, ENDED
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.memory.micro_batches import Indices
from failsoft.training.memory.rungs import MemoryPolicy, Rung
from failsoft.training.survival.watchdog import NoWatch
from failsoft.training.verdict import Refusal
from tests.training.toys import ToyTask, same, toy_loop, weights_of

PLAN = LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
PATIENT = MemoryPolicy(climb_after_steps=6)


def short(position: int, *, above: int = 4, when: FaultMoment = FaultMoment.FORWARD) -> Fault:
    return Fault(kind=FaultKind.OUT_OF_MEMORY, position=position, when=when, above_samples=above)


def run(folder: Path, *faults: Fault, policy: MemoryPolicy = PATIENT) -> TrainLoop:
    loop = toy_loop(folder, faults=FaultPlan(faults=faults), plan=replace(PLAN, memory=policy))
    loop.run()
    return loop


def told(folder: Path) -> list[Event]:
    events = read_ledger(folder / "ledger.jsonl").events
    return [one for one in events if one.kind in {BEGAN, CHANGED, ENDED} and one.data["degradation"] == "memory_rung"]


def levels(folder: Path) -> list[str]:
    return [str(event.data.get("level", "over")) for event in told(folder)]


@pytest.mark.parametrize("when", list(FaultMoment))
def test_a_batch_that_did_not_fit_is_applied_in_pieces_and_nothing_is_lost(tmp_path: Path, when: FaultMoment) -> None:
    loop = run(tmp_path, short(5, when=when), policy=MemoryPolicy())
    assert (loop.state.position, loop.state.step, loop.breaker.refused) == (24, 24, 0)
    assert levels(tmp_path) == ["caches freed", "micro-batches, 2 a batch"]
    assert isinstance(loop.task, ToyTask)
    assert not read_dead_letters(tmp_path / "dead_letters")


def test_samples_of_each_update_are_those_of_the_run_without_trouble(tmp_path: Path) -> None:
    """A retry neither starts the run anew nor leaves part of a batch out."""
    loop, clean = run(tmp_path / "short", short(5), policy=MemoryPolicy()), run(tmp_path / "clean")
    assert isinstance(loop.task, ToyTask)
    assert isinstance(clean.task, ToyTask)
    assert loop.task.seen == clean.task.seen  # the planned fault strikes before the task is asked


def test_a_move_tells_cause_rung_cost_and_way_back(tmp_path: Path) -> None:
    run(tmp_path, short(5), policy=MemoryPolicy())
    event = told(tmp_path)[1]
    assert event.why.startswith("rank 0 ran out of memory at faulty.py:")
    assert event.data["requested_bytes"] == 8 * 2**30
    assert event.data["cost"] == "2 small passes for each large one; the gradient is the same"
    assert event.data["way_back"] == "one notch up after 200 updates without trouble"
    assert len(event.data["distortions"]) == 2  # batch norm and dropout
    assert event.data["left_out"].keys() == {Rung.INPUT_CAP, Rung.OFFLOAD}


def test_after_a_quiet_time_the_run_is_at_full_size_again_and_says_so(tmp_path: Path) -> None:
    loop = run(tmp_path, short(2))
    assert loop.net.ladder.notch.rung is Rung.FULL_SIZE
    assert levels(tmp_path) == ["caches freed", "micro-batches, 2 a batch", "caches freed", "over"]
    assert [event.data["position"] for event in told(tmp_path)] == [2, 2, 7, 13]


def test_a_batch_that_never_fits_is_given_up_with_a_letter_and_counts_as_refused(tmp_path: Path) -> None:
    loop = run(tmp_path, short(5, above=0), policy=MemoryPolicy())
    assert levels(tmp_path)[-2:] == ["batch given up", "smaller updates, 4 a batch"]
    (letter,) = read_dead_letters(tmp_path / "dead_letters")
    assert (letter.position, letter.reason) == (5, Refusal.OUT_OF_MEMORY)
    assert sorted(letter.sample_ids) == sorted(loop.batches.global_indices(5).tolist())
    assert "ran out of memory" in letter.why
    assert (loop.state.position, loop.state.step, loop.breaker.refused) == (24, 23, 1)


def test_pieces_are_never_smaller_than_batch_norm_can_take(tmp_path: Path) -> None:
    loop = run(tmp_path, short(5, above=2), policy=MemoryPolicy())
    assert loop.net.ladder.setting.micro_batches == 4
    assert (loop.state.step, loop.breaker.refused) == (24, 0)


def test_each_retry_is_a_beginning_to_the_watchdog(tmp_path: Path) -> None:
    """A batch that is tried again and again takes longer than a step may, and hangs nowhere."""
    begun: list[int] = []

    class Listening(NoWatch):
        def begins(self, position: int) -> None:
            begun.append(position)

    loop = toy_loop(tmp_path, faults=FaultPlan(faults=(short(5),)), plan=replace(PLAN, memory=MemoryPolicy()))
    loop.watch = Listening()
    loop.run()
    assert Counter(begun)[5] == 3


def test_the_rung_survives_a_restart_with_its_patience(tmp_path: Path) -> None:
    first = toy_loop(tmp_path, faults=FaultPlan(faults=(short(3),)), plan=replace(PLAN, memory=MemoryPolicy()))
    _stop_at(first, 10)
    again = toy_loop(tmp_path, plan=replace(PLAN, memory=MemoryPolicy()))
    again.run()
    assert again.net.ladder.setting.micro_batches == 2
    assert told(tmp_path)[-1].kind == BEGAN
    assert told(tmp_path)[-1].why == "so the run was left"
    assert again.net.ladder.state_dict()["quiet"] == 24 - 3


def _stop_at(loop: TrainLoop, position: int) -> None:
    task, loss = loop.task, loop.task.loss

    def deadly(indices: Indices) -> Tensor:
        if loop.state.position == position:
            raise KeyboardInterrupt
        return loss(indices)

    task.loss = deadly  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        loop.run()


def test_a_rollback_keeps_the_rung(tmp_path: Path) -> None:
    faults = burst(FaultKind.NAN_BATCH, first=10, count=5)
    loop = run(tmp_path, short(9), *faults, policy=MemoryPolicy())
    assert loop.breaker.rollbacks == 1
    assert loop.net.ladder.setting.micro_batches == 2


def test_a_run_without_trouble_is_the_same_to_the_bit_with_any_ladder(tmp_path: Path) -> None:
    with_net, without = run(tmp_path / "a"), run(tmp_path / "b", policy=MemoryPolicy(rungs=()))
    assert same(weights_of(with_net.state.model), weights_of(without.state.model))


def test_without_rungs_running_out_ends_the_worker_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="use a smaller global batch"):
        run(tmp_path, short(5), policy=MemoryPolicy(rungs=()))
