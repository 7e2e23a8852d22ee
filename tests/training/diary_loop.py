"""A small run that keeps a diary of each batch, to be stopped and resumed at will; also with ranks as threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.health.clock import ManualClock
from failsoft.health.faults import FaultPlan
from failsoft.training.batches import GlobalBatches
from failsoft.training.breaker import Breaker, BreakerPolicy
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.loop import LoopPlan, Poisoned, TrainLoop
from failsoft.training.ranks import Ranks, SoloRank
from failsoft.training.snapshots.snapshot import SnapshotPolicy
from failsoft.training.snapshots.snapshot_place import SnapshotPlace
from failsoft.training.state import TrainingState
from tests.training.toys import toy_loop

Groups = list[dict[str, Any]]


class Death(BaseException):
    """Stands for a SIGKILL: nothing in the loop may catch it."""


@dataclass(frozen=True)
class Page:
    """What one rank saw of one batch."""

    position: int
    step: int
    ids: tuple[int, ...]
    loss: float
    groups: tuple[tuple[float, float], ...]
    """Learning rate and weight decay of each group of the optimizer, as the step met them."""


@dataclass
class Setting:
    """What a run is made of."""

    batches: GlobalBatches
    total: int
    every: int
    """Steps between checkpoints."""
    dropout: float = 0.3
    record: bool = False
    """Whether consumed samples are written down."""
    poisoned: Poisoned = Poisoned.SKIP
    place: SnapshotPlace = SnapshotPlace.EACH_RANK
    faults: FaultPlan | None = None


@dataclass
class DiaryTask:
    """A regression on made-up data; dies before the batch at ``deadly``."""

    model: nn.Module
    state: TrainingState
    deadly: int | None
    ranks: Ranks
    pages: list[Page] = field(default_factory=list)
    clock: ManualClock | None = None
    """Moved on by a second with each batch."""

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        if self.state.position == self.deadly:
            self.ranks.gather("all of them have come this far")
            raise Death
        if self.clock is not None:
            self.clock.advance(1.0)
        inputs = torch.stack(
            [torch.sin(torch.arange(1.0, 5.0, dtype=torch.float64) * (i + 1)) for i in indices.tolist()]
        )
        loss = nn.functional.mse_loss(self.model(inputs), inputs.sum(1, keepdim=True))
        groups = tuple((group["lr"], group["weight_decay"]) for group in self.state.optimizer.param_groups)
        ids = tuple(indices.tolist())
        self.pages.append(Page(self.state.position, self.state.step, ids, loss.item(), groups))
        return loss


def diary_loop(
    folder: Path,
    setting: Setting,
    *,
    deadly: int | None = None,
    ranks: Ranks | None = None,
    faults: FaultPlan | None = None,
) -> tuple[TrainLoop, DiaryTask]:
    """The loop and its diary."""
    plan = LoopPlan(
        total_batches=setting.total,
        seed=3,
        snapshot_every_steps=7,
        checkpoint_every_steps=setting.every,
        poisoned=setting.poisoned,
        snapshots=SnapshotPolicy(where=setting.place),
    )
    toy = toy_loop(folder, plan=plan, faults=faults or setting.faults)
    state = _state(setting.dropout)
    ranks = ranks or SoloRank()
    task = DiaryTask(state.model, state, deadly, ranks)
    if ranks.world > 1:
        _average_gradients(state.model, ranks)
    assert isinstance(state.breaker, Breaker)
    policy = GuardPolicy(max_grad_norm=None)  # clipping would hide gradients of another scale
    guard = StepGuard(
        model=state.model, optimizer=state.optimizer, scheduler=state.scheduler, policy=policy, ranks=ranks
    )
    checkpoints = replace(toy.checkpoints, ranks=ranks)
    loop = replace(
        toy,
        state=state,
        task=task,
        batches=setting.batches,
        guard=guard,
        breaker=state.breaker,
        checkpoints=checkpoints,
        desk=replace(toy.desk, record_consumed=setting.record),
    )
    return loop, task


def _state(dropout: float) -> TrainingState:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 1)).double()
    weights = {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.3, "lr": 0.02}
    biases = {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0, "lr": 0.01}
    optimizer = torch.optim.AdamW([weights, biases])
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=300)
    return TrainingState(model=model, optimizer=optimizer, scheduler=scheduler, breaker=Breaker(BreakerPolicy()))


def live(folder: Path, setting: Setting, *deaths: int) -> list[list[Page]]:
    """Die before each of these batches in turn, then run to the end; the diary of each life."""
    return [_one_life(folder, setting, deadly) for deadly in (*deaths, None)]


def _one_life(folder: Path, setting: Setting, deadly: int | None) -> list[Page]:
    loop, task = diary_loop(folder, setting, deadly=deadly)
    try:
        loop.run()
    except Death:
        assert deadly is not None
    else:
        assert deadly is None, "the run ended before its planned death"
    return task.pages


def joined(lives: Sequence[Sequence[Page]]) -> list[Page]:
    """What stands at the end: each life undoes what lies at or beyond its first batch."""
    standing: list[Page] = []
    for pages in lives:
        first = pages[0].position if pages else len(standing)
        standing = [page for page in standing if page.position < first] + list(pages)
    return standing


class ThreadRanks:
    """Ranks as threads of one process; sums are the same on all, in the order of ranks."""

    def __init__(self, rank: int, world: int, table: list[Any], meeting: threading.Barrier) -> None:
        self.rank = rank
        self.world = world
        self._table = table
        self._meeting = meeting

    def sum_(self, values: Tensor) -> Tensor:
        shares = self._exchange(values.clone())
        values.copy_(torch.stack(shares).sum(0))
        return values

    def broadcast_(self, values: Tensor, source: int) -> Tensor:
        values.copy_(self._exchange(values.clone())[source])
        return values

    def gather(self, text: str) -> list[str]:
        return [str(entry) for entry in self._exchange(text)]

    def _exchange(self, mine: Any) -> list[Any]:
        self._table[self.rank] = mine
        self._meeting.wait()
        everything = list(self._table)
        self._meeting.wait()
        return everything


def _average_gradients(model: nn.Module, ranks: Ranks) -> None:
    """What DDP does, without its process group; on the CPU backward runs in the calling thread, in the same order."""

    def average(parameter: Tensor) -> None:
        assert parameter.grad is not None
        ranks.sum_(parameter.grad).div_(ranks.world)

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(average)


def group_life(folder: Path, setting: Setting, world: int, deadly: int | None) -> list[tuple[TrainLoop, DiaryTask]]:
    """All ranks of one group of workers, as threads, until they die or finish."""
    table: list[Any] = [None] * world
    meeting = threading.Barrier(world, timeout=60)
    made = [
        diary_loop(folder, setting, deadly=deadly, ranks=ThreadRanks(rank, world, table, meeting))
        for rank in range(world)
    ]
    errors: list[BaseException] = []
    threads = [threading.Thread(target=_run, args=(loop.run, meeting, errors)) for loop, _ in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, Death | threading.BrokenBarrierError):
            raise error
    assert bool(errors) == (deadly is not None)
    return made


def _run(run: Callable[[], None], meeting: threading.Barrier, errors: list[BaseException]) -> None:
    try:
        run()
    except BaseException as error:  # noqa: BLE001 -- handed to the test's own thread, which judges it
        errors.append(error)
        meeting.abort()
