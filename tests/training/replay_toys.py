"""Toy runs to replay: the same loop as other toys, with data, precision or weights that go wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.health.faults import FaultPlan
from failsoft.health.ledger import read_ledger
from failsoft.training.guard import GuardPolicy, StepGuard
from failsoft.training.letters.letterbook import read_letter_book
from failsoft.training.letters.rebuild import LoopRebuild
from failsoft.training.letters.replay import Replay, Replayer
from failsoft.training.loop import LoopPlan, Task, TrainLoop
from tests.training.toys import ToyTask, toy_loop, toy_model


class SpoiltTask(ToyTask):
    """One sample has a feature, or a target, that is not a sane number."""

    def __init__(self, model: nn.Module, *, sample: int, feature: float = 0.0, target: float = 0.0) -> None:
        super().__init__(model)
        self.inputs[sample, 0] += feature
        self.targets[sample, 0] += target


class SteepTask(ToyTask):
    """A loss that bears ordinary weights, and no huge ones in any precision."""

    def loss(self, indices: NDArray[np.int64]) -> Tensor:
        return (super().loss(indices) + 1.0) ** 9


@dataclass(kw_only=True)
class ToyRun:
    """One run and its folder, built the same way each time."""

    folder: Path
    faults: FaultPlan = field(default_factory=FaultPlan)
    task: Callable[[nn.Module], Task] = ToyTask
    policy: GuardPolicy = field(default_factory=GuardPolicy)
    plan: LoopPlan = field(
        default_factory=lambda: LoopPlan(total_batches=24, seed=3, snapshot_every_steps=4, checkpoint_every_steps=8)
    )

    def build(self, seed: int | None = None) -> TrainLoop:
        loop = toy_loop(self.folder, faults=self.faults, plan=self.plan)
        state = loop.state
        if seed is not None:
            state.model.load_state_dict(toy_model(seed).state_dict())
        guard = StepGuard(model=state.model, optimizer=state.optimizer, scheduler=state.scheduler, policy=self.policy)
        return replace(loop, task=self.task(state.model), guard=guard)

    def replayer(self) -> Replayer:
        return Replayer(
            rebuild=LoopRebuild(build=self.build, task=self.task),
            book=read_letter_book(self.folder / "dead_letters"),
            events=read_ledger(self.folder / "ledger.jsonl").events,
        )

    def replay(self, position: int) -> Replay:
        return self.replayer().replay(position)
