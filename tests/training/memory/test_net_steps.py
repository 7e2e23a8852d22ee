"""The net around single steps: smaller updates, capped input, pressure, and word to the next attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from failsoft.training.degradation import Degradations
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.memory.batch import Batch
from failsoft.training.memory.micro_batches import Distortion, Indices
from failsoft.training.memory.net import MemoryNet
from failsoft.training.memory.note import leave_note, take_note
from failsoft.training.memory.pressure import PressureGauge, Readings
from failsoft.training.memory.rungs import MemoryPolicy, Rung
from failsoft.training.memory.shadow import Shadow
from failsoft.training.ranks import SoloRank
from failsoft.training.verdict import Refusal
from tests.training.toys import same, weights_of


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


@pytest.mark.parametrize("ill", [0, 4])
def test_a_batch_of_which_a_part_is_refused_moves_no_schedule_whichever_part_it_is(ill: int) -> None:
    task = Plain()
    net = net_of(task, MemoryPolicy(rungs=(Rung.SMALLER_UPDATES,)))
    net.ladder.ran_out("no memory")
    outcome = net.step(
        Batch(position=1, whole=WHOLE, loss=lambda part: task.loss(part) * (float("nan") if ill in part else 1.0))
    )
    assert outcome.why == "1 of 2 parts of the batch were applied"
    assert net.guard.optimizer.param_groups[0]["lr"] == 0.1


def test_a_last_part_in_which_nothing_counts_keeps_no_schedule_back() -> None:
    class Weighing(Plain):
        def weight(self, indices: Indices) -> float:
            return float((indices < 4).sum())

    task = Weighing()
    net = net_of(task, MemoryPolicy(rungs=(Rung.SMALLER_UPDATES,)))
    net.ladder.ran_out("no memory")
    assert net.step(Batch(position=1, whole=WHOLE, loss=task.loss)).applied
    assert net.guard.optimizer.param_groups[0]["lr"] == 0.05


def test_an_update_that_breaks_off_goes_up_and_leaves_word_for_the_next_attempt(tmp_path: Path) -> None:
    task = Plain()
    net = net_of(task, MemoryPolicy(), run_folder=tmp_path)

    def no_room(*_given: object) -> None:
        raise torch.OutOfMemoryError("tried to allocate 1 GiB")

    net.guard.optimizer.register_step_pre_hook(no_room)
    with pytest.raises(torch.OutOfMemoryError):
        net.step(Batch(position=1, whole=WHOLE, loss=task.loss))
    assert "in the middle of an update" in take_note(tmp_path)


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
    assert word.startswith("rank 1 ran out of memory at test_net_steps.py:")
    assert "does not hold the model in its DDP wrapper" in word


def test_trouble_beside_the_passes_leaves_word_too_where_those_of_the_passes_are_shared(tmp_path: Path) -> None:
    """In the total norm, say: the others wait in the verdict by then, and end by their time-out."""
    task = Plain()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(task.model)
        guard = StepGuard(model=wrapped, optimizer=torch.optim.SGD(task.model.parameters(), lr=0.1), ranks=OneOfTwo())
        net = MemoryNet(guard=guard, policy=MemoryPolicy(), task=task, global_batch=8, run_folder=tmp_path)

        def no_room() -> Tensor:
            raise torch.OutOfMemoryError("tried to allocate 1 GiB")

        guard.gradients.total_norm = no_room  # type: ignore[method-assign]
        before = [parameter.detach().clone() for parameter in task.model.parameters()]
        with pytest.raises(torch.OutOfMemoryError):
            net.step(Batch(position=1, whole=WHOLE, loss=lambda _indices: wrapped(task.inputs).square().mean()))
    finally:
        dist.destroy_process_group()
    assert all(torch.equal(one, other) for one, other in zip(task.model.parameters(), before, strict=True))
    word = take_note(tmp_path)
    assert word.startswith("rank 1 ran out of memory at test_net_steps.py:")
    assert "beside the passes, where the other ranks can't be told" in word


def test_a_rank_whose_part_the_others_do_not_wait_for_leaves_word_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its very first update nobody knows how often a loss calls the model: it is taken to be once."""

    def nobody_there(_shadow: Shadow) -> None:
        raise RuntimeError("Timed out waiting 8000ms for send operation to complete")

    monkeypatch.setattr(Shadow, "make_up", nobody_there)
    task = Plain()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(task.model)
        guard = StepGuard(model=wrapped, optimizer=torch.optim.SGD(task.model.parameters(), lr=0.1), ranks=OneOfTwo())
        net = MemoryNet(guard=guard, policy=MemoryPolicy(), task=task, global_batch=8, run_folder=tmp_path)

        def loss(_indices: Indices) -> Tensor:
            raise torch.OutOfMemoryError("tried to allocate 1 GiB")

        with pytest.raises(RuntimeError, match="Timed out"):
            net.step(Batch(position=1, whole=WHOLE, loss=loss))
    finally:
        dist.destroy_process_group()
    assert take_note(tmp_path).startswith("rank 1 ran out of memory at test_net_steps.py:")


def test_a_hook_of_several_stages_is_not_shadowed(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(Plain().model)
        assert Shadow.possible(wrapped) is None
        wrapped.register_comm_hook(PowerSGDState(process_group=None, matrix_approximation_rank=1), powerSGD_hook)
        assert "PowerSGD" in str(Shadow.possible(wrapped))
    finally:
        dist.destroy_process_group()


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
    assert leave_note(tmp_path, "rank 1 ran out of memory (SyncBatchNorm)")
    gives_up = MemoryPolicy(rungs=(Rung.BATCH_GIVEN_UP,))  # what only a batch that failed is given up by
    assert net_of(Plain(), gives_up, run_folder=tmp_path).ladder.notch.rung is Rung.FULL_SIZE
    (tmp_path / "memory_note.json").write_text("torn")
    assert take_note(tmp_path) == "memory ran out in the attempt before"
