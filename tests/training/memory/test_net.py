"""The net in a whole run, of one process: the loop, its ledger, its checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from failsoft.health.faults import Fault, FaultKind, FaultMoment, FaultPlan, burst
from failsoft.health.ledger import Event, read_ledger
from failsoft.training.degradation import BEGAN, CHANGED, ENDED, Degradations
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.letters.deadletters import read_dead_letters
from failsoft.training.loop import LoopPlan, TrainLoop
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import Distortion, Indices
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.note import leave_note, take_note
from failsoft.training.memory.pressure import PressureGauge, Readings
from failsoft.training.memory.rungs import MemoryPolicy, Rung
from failsoft.training.ranks import SoloRank
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


class Plain:
    """Four inputs, no batch norm, no dropout: updates can be worked out by hand."""

    shrink_levels = 2

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        self.inputs = torch.randn(8, 4)
        self.level = 0
        self.seen: Counter[int] = Counter()

    def loss(self, indices: Indices) -> Tensor:
        self.seen.update(indices.tolist())
        return torch.as_tensor(self.model(self.inputs[torch.from_numpy(indices)])).square().mean()

    def shrink(self, level: int) -> Distortion:
        self.level = level
        return Distortion(said=f"inputs are cut to 1/{2**level}", fraction=0.5)


def net_of(
    task: Plain, policy: MemoryPolicy, tell: Callable[..., object] = lambda *_a, **_k: None, **more: Any
) -> MemoryNet:
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    guard = StepGuard(
        model=task.model, optimizer=optimizer, scheduler=scheduler, policy=GuardPolicy(max_grad_norm=None)
    )
    net = MemoryNet(guard=guard, policy=policy, task=task, global_batch=8, degradations=Degradations(tell), **more)
    net.begin()
    return net


WHOLE = np.arange(8, dtype=np.int64)


def test_smaller_updates_use_each_sample_once_at_their_share_of_the_rate(tmp_path: Path) -> None:
    task, oracle = Plain(), Plain()
    net = net_of(task, MemoryPolicy(rungs=(Rung.SMALLER_UPDATES,)))
    net.ladder.ran_out("no memory")
    net.ladder.ran_out("no memory")
    assert net.ladder.setting.updates == 4
    outcome = net.step(Batch(position=1, whole=WHOLE, loss=task.loss))
    optimizer = torch.optim.SGD(oracle.model.parameters(), lr=0.1 / 4)
    for part in np.split(WHOLE, 4):
        optimizer.zero_grad()
        oracle.loss(part).backward()
        optimizer.step()
    assert same(weights_of(task.model), weights_of(oracle.model))
    assert task.seen == Counter(range(8))
    assert outcome.applied
    assert outcome.sample_ids == tuple(range(8))
    assert net.guard.optimizer.param_groups[0]["lr"] == 0.05  # the schedule moved once


def test_memory_that_runs_out_between_two_updates_of_a_batch_repeats_none_of_them() -> None:
    task = Plain()
    net = net_of(task, MemoryPolicy(rungs=(Rung.SMALLER_UPDATES, Rung.BATCH_GIVEN_UP)))
    net.ladder.ran_out("no memory")
    failed: list[int] = []

    def loss(indices: Indices) -> Tensor:
        if 4 in indices and len(indices) > 2:
            failed.append(len(indices))
            raise torch.OutOfMemoryError("tried to allocate 1 GiB")
        return task.loss(indices)

    outcome = net.step(Batch(position=1, whole=WHOLE, loss=loss))
    assert failed == [4]
    assert outcome.applied
    assert task.seen == Counter(range(8))
    assert net.ladder.setting.updates == 4


def test_a_part_that_never_fits_is_given_up_and_the_letter_says_what_was_applied() -> None:
    task = Plain()
    net = net_of(task, MemoryPolicy(rungs=(Rung.SMALLER_UPDATES, Rung.BATCH_GIVEN_UP)))
    net.ladder.ran_out("no memory")

    def loss(indices: Indices) -> Tensor:
        if 4 in indices:
            raise torch.OutOfMemoryError("tried to allocate 1 GiB")
        return task.loss(indices)

    outcome = net.step(Batch(position=1, whole=WHOLE, loss=loss))
    assert outcome.refusal is Refusal.OUT_OF_MEMORY
    assert outcome.why.startswith("1 of 2 parts of the batch were applied; rank 0 ran out")
    assert task.seen == Counter(range(4))


def test_a_task_that_shrinks_is_told_how_far_and_what_it_distorts_is_recorded() -> None:
    events: list[dict[str, Any]] = []
    task = Plain()
    net = net_of(task, MemoryPolicy(rungs=(Rung.INPUT_CAP,)), lambda kind, why, **data: events.append(data))
    net.ladder.ran_out("no memory")
    net.ladder.ran_out("no memory")
    assert task.level == 2
    assert events[-1]["distortions"] == ["inputs are cut to 1/4"]
    for _ in range(400):
        net.ladder.applied()
    assert task.level == 0


class Gauge(PressureGauge):
    """Says what it is told to."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.says = Readings()

    def read(self) -> Readings:
        return self.says


def test_memory_that_grows_short_moves_a_notch_before_anything_failed() -> None:
    gauge, events = Gauge(), list[str]()
    policy = MemoryPolicy(look_every_batches=2, look_every_s=0.0, max_host_used_fraction=0.9)
    task = Plain()
    net = net_of(task, policy, lambda _kind, why, **_data: events.append(why), gauge=gauge)
    for position, used in enumerate([0.5, 0.99, 0.95, 0.99, 0.95, 0.5, 0.5]):
        gauge.says = Readings(host_used_fraction=used)
        assert net.step(Batch(position=position, whole=WHOLE, loss=task.loss)).applied
    assert events == ["rank 0: 95.0% of the host RAM are used, at most 90.0%"] * 2
    assert net.ladder.notch.in_words() == "micro-batches, 2 a batch"


class OneOfTwo(SoloRank):
    """A rank whose fellow is not there; nothing that it does may need one."""

    rank, world = 1, 2


def test_trouble_that_can_not_be_shared_goes_up_and_leaves_word_for_the_next_attempt(tmp_path: Path) -> None:
    """No DDP wrapper, or collectives inside the passes: the others end by their time-out."""
    task = Plain()
    guard = StepGuard(model=task.model, optimizer=torch.optim.SGD(task.model.parameters(), lr=0.1), ranks=OneOfTwo())
    net = MemoryNet(guard=guard, policy=MemoryPolicy(), task=task, global_batch=8, run_folder=tmp_path)

    def loss(_indices: Indices) -> Tensor:
        raise torch.OutOfMemoryError("tried to allocate 1 GiB")

    with pytest.raises(torch.OutOfMemoryError):
        net.step(Batch(position=1, whole=WHOLE, loss=loss))
    word = take_note(tmp_path)
    assert word.startswith("rank 1 ran out of memory at test_net.py:")
    assert "does not hold the model in its DDP wrapper" in word


def test_pressure_alone_does_not_change_the_statistics_of_batch_norm() -> None:
    gauge, policy = Gauge(), MemoryPolicy(look_every_batches=1, look_every_s=0.0, max_host_used_fraction=0.9)
    gauge.says = Readings(host_used_fraction=0.95)
    task = Plain()
    task.model = nn.Linear(4, 1)
    task.model.add_module("norm", nn.BatchNorm1d(4))
    net = net_of(task, policy, gauge=gauge)
    for position in range(5):
        net.step(Batch(position=position, whole=WHOLE, loss=task.loss))
    assert net.ladder.notch.rung is Rung.CACHES


def test_the_word_of_the_attempt_before_is_taken_once_and_begins_a_notch_lower(tmp_path: Path) -> None:
    assert leave_note(tmp_path, "rank 1 ran out of memory (SyncBatchNorm)")
    net = net_of(Plain(), MemoryPolicy(), run_folder=tmp_path)
    assert net.ladder.notch.rung is Rung.CACHES
    assert net_of(Plain(), MemoryPolicy(), run_folder=tmp_path).ladder.notch.rung is Rung.FULL_SIZE
    (tmp_path / "memory_note.json").write_text("torn")
    assert take_note(tmp_path) == "memory ran out in the attempt before"
