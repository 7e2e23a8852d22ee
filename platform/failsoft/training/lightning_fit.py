"""One run of Lightning's Trainer under the guard: the guard's phases, called from the callback's hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any, cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor
from torch.amp.grad_scaler import GradScaler, OptState
from torch.optim import Optimizer

from failsoft.errors import ConfigError
from failsoft.training import foreign_memory
from failsoft.training.companion import Companion, SampleIds, ids_of
from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.memory.oom import CAN_BE, Trouble
from failsoft.training.ranks import ranks_here
from failsoft.training.state import TrainingState


class LightningFit:
    """Stands between Lightning and its optimizer and schedulers from :meth:`take_over` to :meth:`let_go`.

    Args:
        trainer: everything in it is made and restored.
        module: what it trains.
        companion: counts and judges.
    """

    def __init__(self, trainer: Trainer, module: LightningModule, companion: Companion) -> None:
        self._trainer, self._module, self._companion = trainer, module, companion
        self._optimizer: Optimizer = trainer.optimizers[0]
        self._scaler: GradScaler | None = getattr(trainer.precision_plugin, "scaler", None)
        self._guard = StepGuard(
            model=module,
            optimizer=self._optimizer,
            scaler=self._scaler,
            policy=replace(companion.options.policy, max_grad_norm=None),
            ranks=ranks_here(),
        )
        self._scale_before: dict[str, Any] = {}
        self._loss: Tensor | None = None
        self._ids: list[SampleIds] = []
        self._open = False
        self._trouble: Trouble | None = None
        self._give_back: list[Callable[[], None]] = []
        self.outcome: StepOutcome | None = None

    def take_over(self) -> None:
        """Stand between Lightning and its optimizer and schedulers, and begin the run."""
        state = TrainingState(
            model=self._module,
            optimizer=self._optimizer,
            scheduler=cast(Any, _Schedulers(self._trainer)),  # its state is all that is asked for
            scaler=self._scaler,
        )
        batches = self._trainer.estimated_stepping_batches
        self._companion.begin_run(
            state,
            self._guard,
            folder=Path(self._trainer.default_root_dir) / "failsoft",
            total_batches=int(batches) if batches != float("inf") else -1,
        )
        self._stand_before_the_optimizer()
        self._stand_before_the_schedulers()
        for name in ("training_step", "backward"):
            self._stand_around(name)

    def let_go(self) -> None:
        """Undo :meth:`take_over`."""
        while self._give_back:
            self._give_back.pop()()

    def batch(self, ids: SampleIds) -> None:
        """A batch, or a part of one, is about to be worked on."""
        if not self._open:
            self._open = True
            self.outcome, self._loss, self._ids, self._trouble = None, None, [], None
            self._guard.begin()
        self._ids.append(ids)

    def add(self, loss: Tensor) -> None:
        """One part's loss, times the loss scale where there is one (Lightning scales before it tells)."""
        if self._scaler is not None:
            loss = loss / self._scaler.scale(torch.ones_like(loss))
        self._loss = loss if self._loss is None else self._loss + loss

    def examine(self) -> None:
        """Judge, and undo what can be undone at once, so that nobody meets the traces."""
        if self._trouble is not None:
            self.outcome = foreign_memory.left_out(self._trouble, ids_of(self._ids), position=self._companion.position)
            self._undo()
            return
        if self._loss is None:
            return  # ``training_step`` gave None: there is no step to judge
        scaler = self._scaler
        if scaler is not None and scaler._per_optimizer_states[id(self._optimizer)]["stage"] is OptState.READY:
            scaler.unscale_(self._optimizer)  # Lightning leaves this to fused optimizers
        self.outcome = self._guard.examine(self._loss, position=self._companion.position)
        if not self.outcome.applied:
            self.outcome = self.outcome._replace(sample_ids=ids_of(self._ids))
            self._undo()

    def _undo(self) -> None:
        self._scale_before = {} if self._scaler is None else self._scaler.state_dict()
        self._guard.traces.undo()
        self._optimizer.zero_grad(set_to_none=False)
        self._fill()

    def _fill(self) -> None:
        """Zeros for gradients that are not there: neither clipping by value nor a loss scaler bears to find none."""
        for parameter in (parameter for group in self._optimizer.param_groups for parameter in group["params"]):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def settle(self) -> None:
        """The end of a batch: whatever Lightning did to the loss scale of a refused update is done our way instead."""
        outcome = self.outcome
        if not self._open or outcome is None:
            return
        self._open = False
        if not outcome.applied:
            if self._scaler is not None:
                self._scaler.load_state_dict(self._scale_before)
            foreign_memory.refuse(outcome, self._guard)
        self._companion.settle(outcome, self._ids)

    def rewrite(self, checkpoint: dict[str, Any], callback: Callback) -> None:
        """Put the state after a way back in a checkpoint that was gathered before it."""
        trainer = self._trainer
        checkpoint["state_dict"] = trainer.strategy.lightning_module_state_dict()
        if "optimizer_states" not in checkpoint:
            return  # weights only
        checkpoint["optimizer_states"] = [trainer.strategy.optimizer_state(self._optimizer)]
        checkpoint["lr_schedulers"] = [entry.scheduler.state_dict() for entry in trainer.lr_scheduler_configs]
        checkpoint["callbacks"][callback.state_key] = callback.state_dict()
        precision = trainer.precision_plugin
        if precision.state_dict():
            checkpoint[type(precision).__qualname__] = precision.state_dict()

    def _stand_around(self, name: str) -> None:
        """A pass that runs out of memory ends as if there had been nothing to do, and the update is refused."""
        module, original = self._module, getattr(self._module, name)

        @functools.wraps(original)
        def passed(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except CAN_BE as error:
                self._trouble = foreign_memory.to_leave_out(error, self._guard)
                if self._trouble is None:
                    raise
                held = error
            foreign_memory.give_back(held, self._guard)
            self._fill()
            return None

        setattr(module, name, passed)
        self._give_back.append(lambda: delattr(module, name))

    def _stand_before_the_optimizer(self) -> None:
        """Lightning's hooks can't keep an optimizer from stepping, so its ``step`` asks first.

        Dropping the gradients would stop torch's own optimizers, but not those that count steps by group.
        """
        optimizer, original = self._optimizer, self._optimizer.step

        @functools.wraps(original)  # with torch's mark that a scheduler watches it
        def step(_optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            loss = None if closure is None else closure()
            self._carry_out(original)
            return loss

        def give_back() -> None:
            optimizer.step = original  # type: ignore[method-assign]

        optimizer.step = MethodType(step, optimizer)  # type: ignore[method-assign]
        self._give_back.append(give_back)

    def _carry_out(self, step: Callable[[], Any]) -> None:
        outcome = self.outcome
        if outcome is None:
            step()
        elif outcome.applied:
            with self._guard.relief.lowered(self._optimizer):
                step()
            self._guard.moved_on(outcome.mean_loss, outcome.grad_norm)

    def _stand_before_the_schedulers(self) -> None:
        module, original = self._module, self._module.lr_scheduler_step

        def lr_scheduler_step(scheduler: Any, metric: Any) -> None:
            if not self._held_back(scheduler):
                original(scheduler, metric)

        module.lr_scheduler_step = lr_scheduler_step  # type: ignore[method-assign]
        self._give_back.append(lambda: delattr(module, "lr_scheduler_step"))

    def _held_back(self, scheduler: object) -> bool:
        if self.outcome is None or self.outcome.applied:
            return False
        intervals = [entry.interval for entry in self._trainer.lr_scheduler_configs if entry.scheduler is scheduler]
        return "step" in intervals


class _Schedulers:
    """All of a trainer's schedulers as one part of the training state."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Each scheduler's state by its number."""
        return {str(n): entry.scheduler.state_dict() for n, entry in enumerate(self._trainer.lr_scheduler_configs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Give each scheduler its state again."""
        for number, entry in enumerate(self._trainer.lr_scheduler_configs):
            entry.scheduler.load_state_dict(dict(state_dict[str(number)]))


def refuse_unguardable(trainer: Trainer, module: LightningModule) -> None:
    """Turn away what the callback can't guard.

    Raises:
        ConfigError: names it, and what would do.
    """
    if not module.automatic_optimization:
        raise ConfigError(
            f"{type(module).__name__} optimizes by hand (automatic_optimization is False), where Lightning calls no "
            "hook between backward and step; use failsoft.training.guard.StepGuard in its training_step instead"
        )
    if len(trainer.optimizers) != 1:
        raise ConfigError(
            f"{type(module).__name__} has {len(trainer.optimizers)} optimizers, a guard judges the updates of one; "
            "put all parameters in groups of one optimizer"
        )
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        raise ConfigError(
            f"{type(trainer.strategy).__name__} shards the model or steps by itself; use a single device or "
            'Trainer(strategy="ddp"), where each rank holds whole gradients'
        )
