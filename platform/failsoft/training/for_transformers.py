"""The step guard in the Trainer of Hugging Face transformers.

One line changes::

    trainer = GuardedTrainer(model=model, args=args, train_dataset=dataset)

or, for a trainer that is derived already, ``class MyGuarded(GuardMixin, MyTrainer): ...``. There is no plain
``TrainerCallback``: none of its hooks can keep an optimizer from stepping or see a norm before the clip.

What holds as in :class:`failsoft.training.guard.StepGuard`: the verdict falls before clipping and before the optimizer
moves, the same on all ranks; a refused update leaves weights, buffers, optimizer (its step count too), scheduler and
torch's generators as they were; accumulation counts as one update; a GradScaler backs off once, down to a floor; five
refusals in a row go back to a RAM snapshot; too many stop the run with :class:`failsoft.errors.DropRateError` out of
``train``. A checkpoint that falls due on ill weights is written from the last healthy snapshot; the counts are in its
``trainer_state.json``, so a resumed run goes on with them. The logged loss is the mean over applied updates: neither
NaN nor, as ``logging_nan_inf_filter`` (on by default) makes it, a smooth curve over a run that is ill (trl#6702);
``refused_batches`` beside it counts.

Where the Trainer does not let in:

* ``state.global_step`` and ``max_steps`` count refused updates too: the data position of a resume follows from them.
  ``trainer.companion.step`` counts what is in the weights.
* Clipping happens where the Trainer clips, with ``args.max_grad_norm``, by the norm that the verdict was made on; that
  is added up in the optimizer's order, so a clipped run may differ from an unguarded one in the last bit.
* Sample ids are known when the dataset has a column ``sample_ids`` (kept from ``remove_unused_columns``, and taken out
  before the forward pass), or the collator adds it.
* Weights that a user's callback averages (EMA) move after refused updates too: look at ``trainer.last``.
* The escalation's rung "the checkpoint before it" is left out: no hook loads a checkpoint during a run. After the RAM
  snapshot, and the snapshot with a lower learning rate, the run stops; resume it from the checkpoint of your choice.
* Generators of ``random`` and ``numpy`` are not rewound. FSDP, DeepSpeed, SageMaker's model parallelism, DataParallel
  over several devices and LOMO are turned away with a sentence.

A batch that does not fit into memory is left out with a dead letter where one process trains alone (with
``auto_find_batch_size`` the Trainer itself begins again with smaller ones); of several ranks the error goes up, and the
run goes on from its last checkpoint. The memory ladder, which loses no batch, is the failsoft loop's alone.

fp16 asks for an accelerator: accelerate refuses it on a CPU.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from failsoft.errors import ConfigError
from failsoft.training import foreign_memory
from failsoft.training.companion import ID_COLUMN, Companion, GuardOptions, SampleIds, ids_of
from failsoft.training.guard import StepGuard, StepOutcome
from failsoft.training.memory.oom import CAN_BE, Trouble
from failsoft.training.ranks import ranks_here
from failsoft.training.state import TrainingState

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ImportError(
        f"failsoft.training.for_transformers needs transformers and accelerate ({error}); "
        "pip install 'failsoft[transformers]'"
    ) from error

if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object  # so that it can be put before any kind of Trainer

_STATE_KEY = "failsoft_guard"
_NEEDED = ("training_step", "_clip_grad_norm", "_get_grad_norm", "create_scheduler", "_save_checkpoint")


class GuardMixin(_Base):
    """Guards each update of the Trainer that it is put before.

    Args:
        guard_options: limits of a step, breaker, snapshots, and where to write (None: ``failsoft`` in ``output_dir``).

    Raises:
        ConfigError: a set-up that can't be guarded, here or from ``train``.
        DropRateError: from ``train``, too many batches were refused.
        TrainingError: from ``train``, rolling back does not help, or the weights are ill before the first step.
    """

    def __init__(self, *args: Any, guard_options: GuardOptions | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _refuse_unguardable(self)
        self._guard_options = guard_options or GuardOptions()
        self.companion = Companion(self._guard_options)
        """Counts and verdicts of the run."""
        self.last: StepOutcome | None = None
        """What was said of the update under way, or of the last one; None while its gradients still add up."""
        self._guard: StepGuard | None = None
        self._open = False
        self._loss: Tensor | None = None
        self._ids: list[SampleIds] = []
        self._trouble: Trouble | None = None
        self._logged_before: Tensor | None = None
        self.add_callback(_Steps(self))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's, but for the errors of the class."""
        output = super().train(*args, **kwargs)
        self.companion.finish()
        return output

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """Stand before the optimizer, before a scheduler counts its steps."""
        self._stand_before_the_optimizer()
        return super().create_scheduler(num_training_steps, optimizer)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Forward and backward of a batch, or of a part of one; the parts' losses add up to the update's."""
        guard = self._guard
        if guard is None:
            return super().training_step(model, inputs, num_items_in_batch)
        if not self._open:
            self._open, self.last, self._loss, self._ids, self._trouble = True, None, None, [], None
            self._logged_before = self._tr_loss.clone()
            guard.begin()
        self._ids.append(inputs.pop(ID_COLUMN, ()))
        try:
            loss = super().training_step(model, inputs, num_items_in_batch)
            self._loss = loss if self._loss is None else self._loss + loss
            return loss
        except CAN_BE as error:
            trouble = None if self.args.auto_find_batch_size else foreign_memory.to_leave_out(error, guard)
            if trouble is None:
                raise
            self._trouble, held = trouble, error
        foreign_memory.give_back(held, guard)
        return torch.zeros((), device=self.args.device)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the count of refused updates to each line about training."""
        if self._guard is not None and ("loss" in logs or "train_loss" in logs):
            logs["refused_batches"] = self.companion.refused
        super().log(logs, *args, **kwargs)

    def begin_guarding(self) -> None:
        """Everything is made and restored: take the first snapshot. Called once, as training begins."""
        companion, optimizer = Companion(self._guard_options), _bare(self.optimizer)
        model: Any = self.model
        scaler = getattr(self.accelerator, "scaler", None)
        saved: Any = self.state.stateful_callbacks  # a dict, once the state is made
        if _STATE_KEY in saved:
            companion.load_state_dict(saved[_STATE_KEY])
        self.companion, self._open = companion, False
        self._guard = StepGuard(
            model=model,
            optimizer=optimizer,
            scaler=scaler,
            policy=replace(self._guard_options.policy, max_grad_norm=None),
            ranks=ranks_here(),
        )
        companion.begin_run(
            TrainingState(model=model, optimizer=optimizer, scheduler=self.lr_scheduler, scaler=scaler),
            self._guard,
            folder=Path(self.args.output_dir or ".") / "failsoft",
            total_batches=self.state.max_steps,
        )

    def settle(self) -> None:
        """The update is over, the scheduler's move included."""
        outcome = self.last
        if not self._open or outcome is None:
            return
        self._open = False
        if not outcome.applied:
            self._forget_loss()
        self.companion.settle(outcome, self._ids)
        if self.companion.stop is not None:
            self.control.should_training_stop = True

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        if self._guard is None:
            return super()._clip_grad_norm(model)  # type: ignore[no-untyped-call]  # its types end at private methods
        norm = self._examine(self._guard)
        limit = self.args.max_grad_norm
        if self.last is not None and self.last.applied and self.last.grad_norm + 1e-6 > limit:
            self._guard.gradients.clip(limit, norm)
        return norm

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        if self._guard is not None and grad_norm is None:
            grad_norm = self._examine(self._guard)
        return super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[no-untyped-call]  # likewise

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        if self._guard is not None:
            self.companion.heal_before_publishing()
            saved: Any = self.state.stateful_callbacks
            saved[_STATE_KEY] = self.companion.state_dict()
        super()._save_checkpoint(model, trial)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: Any = self._signature_columns
        if ID_COLUMN not in columns:
            columns.append(ID_COLUMN)

    def _examine(self, guard: StepGuard) -> Tensor:
        """The verdict; returns the total norm, unscaled, before clipping."""
        if self._trouble is not None:
            self.last = foreign_memory.left_out(self._trouble, ids_of(self._ids), position=self.companion.position)
            return torch.tensor(self.last.grad_norm, device=self.args.device)
        if guard.scaler is not None and guard.scaler.is_enabled():
            guard.scaler.unscale_(guard.optimizer)
        loss = torch.zeros(()) if self._loss is None else self._loss
        self.last = guard.examine(loss, position=self.companion.position)
        if not self.last.applied:
            self.last = self.last._replace(sample_ids=ids_of(self._ids))
        return torch.tensor(self.last.grad_norm, device=self.args.device)

    def _stand_before_the_optimizer(self) -> None:
        """No hook can keep the optimizer from stepping, so its ``step`` asks first, and the guard carries it out."""
        optimizer: Any = self.optimizer

        def step(_optimizer: Optimizer, closure: Any = None) -> None:
            self._carry_out()

        optimizer.step = MethodType(step, optimizer)

    def _carry_out(self) -> None:
        guard, outcome, accelerated = self._guard, self.last, cast(Any, self.optimizer)
        if guard is None or outcome is None:
            return
        if outcome.applied:
            guard.apply(outcome)
        else:
            foreign_memory.refuse(outcome, guard)
        accelerated._is_overflow = not outcome.applied  # holds the scheduler back

    def _forget_loss(self) -> None:
        """Means of the loss, in the log and at the end, are over the updates that count."""
        if self._logged_before is not None:
            self._tr_loss.copy_(self._logged_before)
        self._globalstep_last_logged += 1
        self._initial_global_step += 1


class GuardedTrainer(GuardMixin, Trainer):
    """The Trainer with a guard; takes ``guard_options`` beside the Trainer's own arguments."""


class _Steps(TrainerCallback):
    """Tells the trainer when training begins and when an update is over."""

    def __init__(self, trainer: GuardMixin) -> None:
        self._trainer = trainer

    def on_train_begin(self, *_args: Any, **_kwargs: Any) -> None:
        """Model, optimizer and scheduler are made, and restored when the run is resumed."""
        self._trainer.begin_guarding()

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """After the scheduler, before logging, evaluation and checkpoints."""
        self._trainer.settle()


def _bare(optimizer: Any) -> Optimizer:
    while hasattr(optimizer, "optimizer"):  # accelerate's wrapper
        optimizer = optimizer.optimizer
    found: Optimizer = optimizer
    return found


def _refuse_unguardable(trainer: Trainer) -> None:
    absent = [name for name in _NEEDED if not hasattr(Trainer, name)]
    if absent:
        raise ConfigError(f"this transformers has no Trainer.{absent[0]}; the guard was made for 5.24; install that")
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled or trainer.args.n_gpu > 1:
        raise ConfigError(
            "FSDP and DeepSpeed shard the gradients or step by themselves, and DataParallel splits a process over "
            "devices; start one process per device with torchrun instead, so that each rank holds whole gradients"
        )
    if "lomo" in str(trainer.args.optim).lower():
        raise ConfigError(f"optim is {trainer.args.optim}, which steps inside the backward pass; use adamw_torch_fused")
