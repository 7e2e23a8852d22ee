"""The step guard in Lightning's Trainer, as a callback.

One line::

    trainer = lightning.pytorch.Trainer(callbacks=[GuardCallback()], gradient_clip_val=1.0)

What holds as in :class:`failsoft.training.guard.StepGuard`: the verdict falls before clipping and before the optimizer
moves, the same on all ranks; a refused update leaves weights, buffers, optimizer (its step count too), torch's
generators and every scheduler of interval "step" as they were; accumulation counts as one update; the loss scale of
``16-mixed`` backs off once, down to a floor; five refusals in a row go back to a RAM snapshot; too many stop the run
with :class:`failsoft.errors.DropRateError` out of ``trainer.fit``. A checkpoint that falls due on ill weights is
written from the last healthy snapshot. Checkpoints carry the counts on.

Where Lightning's hooks do not reach:

* ``trainer.global_step`` and ``max_steps`` count refused updates too (as they count those that a GradScaler skips);
  ``GuardCallback.companion.step`` counts what is in the weights.
* Values that ``training_step`` logged, and torchmetrics that it fed, keep what the refused batch said: an epoch's mean
  of a logged loss is NaN after one NaN. Log from ``on_train_batch_end`` where :attr:`GuardCallback.last` is applied.
* A scheduler of interval "step" and frequency k moves at every k-th *batch*; a move that falls on a refused update is
  not made up. Schedulers of interval "epoch" move at each epoch's end, as they should.
* ``WeightAveraging`` (EMA) also averages after a refused update, and a rollback does not reach its weights: let its
  ``should_update`` look at :attr:`GuardCallback.last`.
* The escalation's rung "the checkpoint before it" is left out: no hook loads a checkpoint during a run. After the RAM
  snapshot, and the snapshot with a lower learning rate, the run stops; resume it from the checkpoint of your choice.
* ``StochasticWeightAveraging`` ends with a pass over the data that has no updates, and so no verdicts: a NaN in it gets
  into the batch statistics.
* A batch that does not fit into memory is left out with a dead letter where one process trains alone (Lightning warns
  once that ``training_step`` gave nothing); of several ranks the error goes up, and the run goes on from its last
  checkpoint. The memory ladder, which loses no batch, is the failsoft loop's alone.
* Generators of ``random`` and ``numpy`` are not rewound. Sharded strategies, several optimizers, manual optimization
  and LBFGS are turned away with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from failsoft.health.ledger import Ledger
from failsoft.training.breaker import BreakerPolicy
from failsoft.training.companion import Companion, GuardOptions, SampleIds, ids_in
from failsoft.training.guard import GuardPolicy, StepOutcome

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError(
        f"failsoft.training.for_lightning needs Lightning 2.6 or newer ({error}); pip install 'failsoft[lightning]'"
    ) from error

from failsoft.training.lightning_fit import LightningFit, refuse_unguardable


class GuardCallback(Callback):
    """Guards each update of ``trainer.fit``. One callback serves one run at a time.

    Args:
        policy: limits of a step; clipping stays ``Trainer(gradient_clip_val=...)``, and ``max_grad_norm`` is not read.
        breaker: when to roll back and when to stop.
        snapshot_every_steps: applied updates between RAM snapshots.
        folder: for dead letters and the ledger; None: ``failsoft`` below the trainer's ``default_root_dir``.
        ledger: None: ``ledger.jsonl`` in the folder.
        sample_ids: reads the ids of a batch, for dead letters; by default its ``sample_ids`` entry.

    Raises:
        ConfigError: impossible options; from ``trainer.fit``, a set-up that can't be guarded.
        DropRateError: from ``trainer.fit``, too many batches were refused.
        TrainingError: from ``trainer.fit``, rolling back does not help, or the weights are ill before the first step.
    """

    def __init__(
        self,
        *,
        policy: GuardPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        snapshot_every_steps: int = 100,
        folder: Path | None = None,
        ledger: Ledger | None = None,
        sample_ids: Callable[[Any], SampleIds] = ids_in,
    ) -> None:
        self._options = GuardOptions(
            policy=policy or GuardPolicy(),
            breaker=breaker or BreakerPolicy(),
            snapshot_every_steps=snapshot_every_steps,
            folder=folder,
            ledger=ledger,
        )
        self._sample_ids = sample_ids
        self.companion = Companion(self._options)
        """Counts and verdicts of the run."""
        self._fit: LightningFit | None = None

    @property
    def last(self) -> StepOutcome | None:
        """What was said of the update under way, or of the last one; None while its gradients still add up."""
        return None if self._fit is None else self._fit.outcome

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """A new run; a checkpoint's counts are loaded after this."""
        if stage == "fit":
            self.companion, self._fit = Companion(self._options), None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Everything is made and restored: look at it, and take the first snapshot."""
        refuse_unguardable(trainer, pl_module)
        self._fit = LightningFit(trainer, pl_module, self.companion)
        self._fit.take_over()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Before the forward pass of a batch, or of the next part of one.

        Raises:
            TrainingError: the run was stopped, and ``min_epochs`` or ``min_steps`` would have it go on.
        """
        if self.companion.stop is not None:
            raise self.companion.stop
        if self._fit is not None:
            self._fit.batch(self._sample_ids(batch))

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Lightning gives the loss divided by ``accumulate_grad_batches``, so the parts add up to the mean."""
        if self._fit is not None:
            self._fit.add(loss.detach())

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        """Gradients are whole and unscaled: the verdict."""
        if self._fit is not None:
            self._fit.examine()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """The update, if there was one, is over, schedulers included."""
        if self._fit is not None:
            self._fit.settle()
        trainer.should_stop |= self.companion.stop is not None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """An ill state is not written; the last healthy one is."""
        if self._fit is not None and self.companion.heal_before_publishing():
            self._fit.rewrite(checkpoint, self)

    def state_dict(self) -> dict[str, Any]:
        """Counts and recent levels, for Lightning's checkpoint."""
        return {} if self._fit is None else self.companion.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the counts of a checkpoint on."""
        self.companion.load_state_dict(state_dict)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give Lightning its methods back, and say how it ended.

        Raises:
            TrainingError: the run was stopped.
        """
        if self._fit is not None:
            self._fit.let_go()
            self.companion.finish()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Give Lightning its methods back."""
        if self._fit is not None:
            self._fit.let_go()
