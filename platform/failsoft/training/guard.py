"""The guarded step: an update, or no trace at all.

Three lines in any PyTorch loop::

    guard = StepGuard(model=model, optimizer=optimizer, scheduler=scheduler)
    for position, batch in enumerate(batches):
        outcome = guard.step(lambda: loss_of(model, batch), sample_ids=batch.ids, position=position)

The order: remember buffers and generators, forward and backward (always to the end, also after a NaN: under DDP the
backward pass is a collective), unscale, total norm *before* clipping (clipping by one Inf turns every other gradient
into NaN, pytorch#46849), one reading on the host, one verdict that all ranks share, then the update or the way back.

A refused step leaves weights, buffers, EMA, optimizer, scheduler and torch's generators as they were; only the scale
of a GradScaler backs off, and only for gradients that are not finite, down to a floor (a scale that reaches 0 writes
NaN into the weights at the next good step), and what DDP's PowerSGD held back is dropped. Generators of ``random`` and
``numpy`` are not rewound: draw augmentations before the step, or from a generator keyed by position.

Over several ranks losses and norms are averaged in one tiny reduction, the only collective beside DDP's own. On CUDA a
step waits for the device once; :mod:`failsoft.training.late_guard` does not wait at all. Trainers that own the passes
or the optimizer's step use the phases: :meth:`StepGuard.begin`, ``examine``, then ``apply`` or ``refuse``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel

from failsoft.training.backward import Backward, Compute, Passes
from failsoft.training.gradients import Gradients
from failsoft.training.guard_policy import GuardPolicy
from failsoft.training.ranks import Ranks, ranks_here
from failsoft.training.relief import Relief, at_share_of_rate
from failsoft.training.spikes import SpikeWatch
from failsoft.training.state import first_unhealthy, model_tensors
from failsoft.training.traces import Traces
from failsoft.training.update import Update, close_round, refuse_metric
from failsoft.training.verdict import SPIKES, Limits, Reading, Refusal, StepOutcome, judge, plain_ids

__all__ = ["Compute", "GuardPolicy", "Refusal", "StepGuard", "StepOutcome"]

_NO_LIMITS = Limits()


@dataclass(kw_only=True)
class StepGuard:
    """Carries out steps on one model and optimizer.

    Its parts stay the caller's: a checkpoint of them, with :meth:`state_dict` for the recent levels and the learning
    rate's relief, is a checkpoint of the run.
    """

    model: nn.Module
    """Bare, or in its DDP wrapper (needed for accumulation over several ranks)."""
    optimizer: Optimizer
    scheduler: LRScheduler | None = None
    """Moves on applied steps only."""
    scaler: GradScaler | None = None
    ema: AveragedModel | None = None
    """Moves on applied steps only."""
    policy: GuardPolicy = field(default_factory=GuardPolicy)
    ranks: Ranks = field(default_factory=ranks_here)
    """By default those of torch's process group, if there is one: a verdict of its own would part a rank's weights from
    the others' without a word."""
    on_refused: Callable[[StepOutcome], object] = lambda _outcome: None
    """Told of each refused step after the way back."""

    def __post_init__(self) -> None:
        """Look once at what never changes."""
        refuse_metric(self.scheduler)
        bare = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        self._bare: nn.Module = bare
        device = next((p.device for p in bare.parameters()), torch.device("cpu"))
        self._on_host = device.type == "cpu"
        self._scaler = self.scaler if self.scaler is not None and self.scaler.is_enabled() else None
        self.traces = Traces(bare)
        self.gradients = Gradients(bare, self.optimizer)
        self.update = Update(self.optimizer, self.gradients, self.policy.max_grad_norm)
        dtype = self.policy.autocast_dtype
        self.backward = Backward(model=self.model, device=device, scaler=self._scaler, autocast_dtype=dtype)
        self.run_passes: Passes = self.backward.run  # the memory ladder puts its own around it
        self.relief = Relief(self.policy.relief)
        self.loss_watch = None if self.policy.loss_spikes is None else SpikeWatch(self.policy.loss_spikes)
        self.norm_watch = None if self.policy.norm_spikes is None else SpikeWatch(self.policy.norm_spikes)
        self._watching = self.loss_watch is not None or self.norm_watch is not None
        self._norm = torch.tensor(math.nan)
        self.mean_norm = math.nan
        """Over the ranks, of the step that was examined last."""

    def step(
        self,
        compute: Compute | Sequence[Compute],
        *,
        shares: Sequence[float] | None = None,
        sample_ids: Sequence[int] = (),
        position: int = 0,
    ) -> StepOutcome:
        """Do one step: the whole of it, or nothing. :meth:`attempt`, then :meth:`apply` or :meth:`refuse`.

        Args:
            compute: forward pass of the batch, or of each of its micro-batches (their gradients add up); called once.
            shares: each micro-batch's share of the batch's samples, adding up to 1; None: equal shares.
            sample_ids: ids of this rank's samples, for the dead letter.
            position: global batches consumed before this one.

        Raises:
            Exception: whatever ``compute`` raises (out of memory, say), after everything is back as it was: the caller
                may call again for the same batch, in smaller micro-batches. Under DDP all ranks must do so together, if
                no backward pass had begun: DDP can't take up a reduction that broke off. (The memory ladder,
                :mod:`failsoft.training.memory.net`, does both.)
        """
        outcome = self.attempt(compute, shares, sample_ids=sample_ids, position=position)
        if outcome.refusal is None:
            self.apply(outcome)
        else:
            self.refuse(outcome)
        return outcome

    def attempt(
        self,
        compute: Compute | Sequence[Compute],
        shares: Sequence[float] | None = None,
        *,
        sample_ids: Sequence[int] = (),
        position: int = 0,
    ) -> StepOutcome:
        """The passes and the verdict of :meth:`step`; the update, or the way back, is the caller's."""
        self.traces.remember()
        self.optimizer.zero_grad(set_to_none=True)
        try:
            loss = self.run_passes(compute, shares)
            if self._scaler is not None:
                self._reopen(self._scaler)
                self._scaler.unscale_(self.optimizer)
            outcome = self.examine(loss, sample_ids=sample_ids, position=position)
        except BaseException:  # also KeyboardInterrupt: no trace of half a step may stay; re-raised
            self.go_back()
            raise
        return outcome

    def begin(self) -> None:
        """Remember what the forward pass changes by itself; before the first forward pass of an update."""
        self.traces.remember()
        if self._scaler is not None:
            self._reopen(self._scaler)

    def examine(self, loss: Tensor, *, sample_ids: Sequence[int] = (), position: int = 0) -> StepOutcome:
        """The verdict on loss and gradients, the same on all ranks; changes nothing.

        After the backward pass (and after ``unscale_`` where there is a GradScaler), before any clipping.

        Args:
            loss: this rank's loss, one element.
            sample_ids: as in :meth:`step`.
            position: as in :meth:`step`.
        """
        self._norm = norm = self.gradients.total_norm()
        reading = self._read(loss, norm)
        self.mean_norm = reading.mean_norm
        refusal = judge(reading, self.limits if self._watching else _NO_LIMITS)
        ids = plain_ids(sample_ids)
        if refusal is None:
            return StepOutcome(position, ids, self.ranks.rank, None, reading.loss, reading.mean_loss, reading.norm)
        return self._explained(refusal, reading, ids, position)

    def apply(self, outcome: StepOutcome, *, portion: float = 1.0, moves_on: bool = True) -> None:
        """Carry an examined step out: clip, update, and move scaler, scheduler and EMA on.

        Args:
            outcome: of the step.
            portion: share of a whole batch that this update is of; the learning rate is lowered to it.
            moves_on: False where more updates of the same batch follow: scheduler and EMA move once a batch.
        """
        if (factor := self.relief.factor * portion) < 1.0:
            with at_share_of_rate(self.optimizer, factor):
                self.update.carry_out(outcome.grad_norm, self._norm)
        else:
            self.update.carry_out(outcome.grad_norm, self._norm)
        if self._scaler is not None:
            close_round(self._scaler)  # `unscale_` recorded its finding, so growth goes on as torch does it
        if moves_on:
            self.moved_on(outcome.mean_loss, self.mean_norm)

    def moved_on(self, mean_loss: float, mean_norm: float) -> None:
        """What follows an update that happened, whoever carried it out: scheduler, EMA, relief, usual levels.

        Both numbers are means over the ranks: levels that differed between ranks would end in verdicts that do.
        """
        if self.scheduler is not None:
            self.scheduler.step()
        if self.ema is not None:
            self.ema.update_parameters(self._bare)
        if self.relief.factor < 1.0:
            self.relief.applied()
        if self.loss_watch is not None:
            self.loss_watch.record(mean_loss)
        if self.norm_watch is not None:
            self.norm_watch.record(mean_norm)

    def refuse(self, outcome: StepOutcome) -> None:
        """Leave no trace of an examined step, but for the loss scale, the relief, and whoever is told."""
        self.go_back()
        self.backward.forget()
        if self._scaler is not None:
            self._back_off(self._scaler, blameless=outcome.refusal in SPIKES)
        self.relief.refused()
        self.on_refused(outcome)

    def first_unhealthy(self) -> str | None:
        """Name of the first parameter or buffer (EMA included) that is not finite; None when all are. One host sync."""
        tensors = model_tensors(self._bare)
        if self.ema is not None:
            tensors |= {f"ema/{name}": tensor for name, tensor in model_tensors(self.ema).items()}
        return first_unhealthy(tensors)

    @property
    def limits(self) -> Limits:
        """What counts as a spike now."""
        watches = (self.loss_watch, self.norm_watch)
        loss, norm = (math.inf if watch is None else watch.limit for watch in watches)
        return Limits(min(loss, _NO_LIMITS.loss), min(norm, _NO_LIMITS.norm))

    def why(self, refusal: Refusal | None, reading: Reading) -> str:
        """What a spike was measured against, in words; nothing for other verdicts."""
        if refusal is Refusal.LOSS_SPIKE and self.loss_watch is not None:
            return f"loss {self.loss_watch.in_words(reading.mean_loss)}"
        if refusal is Refusal.GRADIENT_SPIKE and self.norm_watch is not None:
            return f"gradient norm {self.norm_watch.in_words(reading.mean_norm)}"
        return ""

    def state_dict(self) -> dict[str, Any]:
        """Usual levels and relief, as small JSON."""
        watches = {"loss": self.loss_watch, "norm": self.norm_watch}
        levels = {name: watch.state_dict() for name, watch in watches.items() if watch is not None}
        return {"levels": levels, "relief": self.relief.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of a checkpoint on; a level that it does not know stays as it is."""
        for name, watch in (("loss", self.loss_watch), ("norm", self.norm_watch)):
            if watch is not None and name in state_dict["levels"]:
                watch.load_state_dict(state_dict["levels"][name])
        self.relief.load_state_dict(state_dict["relief"])

    def _read(self, loss: Tensor, norm: Tensor) -> Reading:
        """Bring everything over in one host sync, after at most one tiny reduction. In float64."""
        if self._on_host and self.ranks.world == 1:
            return Reading(own_loss := loss.item(), own_norm := norm.item(), own_loss, own_norm)
        own = torch.stack([loss.detach().double(), norm.to(loss.device).double()])
        own_loss, own_norm, losses, norms = torch.cat([own, self.ranks.sum_(own.clone())]).tolist()
        return Reading(own_loss, own_norm, losses / self.ranks.world, norms / self.ranks.world)

    def _explained(self, refusal: Refusal, reading: Reading, ids: tuple[int, ...], position: int) -> StepOutcome:
        """Look closer at a refused step: which tensor, and whether only the norm overflows."""
        name = None if refusal in SPIKES else self.gradients.first_bad()
        if refusal is Refusal.GRADIENT and name is None:
            refusal = Refusal.OVERFLOW
        if refusal in {Refusal.OVERFLOW, Refusal.GRADIENT_SPIKE}:
            name = self.gradients.largest()
        rank, loss, mean, norm = self.ranks.rank, reading.loss, reading.mean_loss, reading.norm
        why = self.why(refusal, reading)
        return StepOutcome(position, ids, rank, refusal, loss, mean, norm, name, why)

    def go_back(self) -> None:
        """Undo what forward and backward did. :meth:`refuse` does it; so does an error on the way."""
        self.traces.undo()
        self.optimizer.zero_grad(set_to_none=True)
        if self._scaler is not None:
            self._reopen(self._scaler)

    def _reopen(self, scaler: GradScaler) -> None:
        """Else an interrupt after `unscale_`, or an optimizer out of memory, made the next step raise."""
        scaler._per_optimizer_states.pop(id(self.optimizer), None)

    def _back_off(self, scaler: GradScaler, *, blameless: bool) -> None:
        scale, tracker = scaler.get_scale(), scaler.state_dict()["_growth_tracker"]
        lower = scale if blameless else max(scale * scaler.get_backoff_factor(), self.policy.min_loss_scale)
        scaler.update(lower)  # also closes the round that `unscale_` opened
        scaler.load_state_dict(scaler.state_dict() | {"_growth_tracker": tracker if blameless else 0})
