"""The guarded step: an update, or no trace at all.

Three lines in any PyTorch loop::

    guard = StepGuard(model=model, optimizer=optimizer, scheduler=scheduler)
    for position, batch in enumerate(batches):
        outcome = guard.step(lambda: loss_of(model, batch), sample_ids=batch.ids, position=position)

The order: remember buffers and generators, forward, backward (always, also after a NaN loss: under DDP the backward
pass is a collective, and a rank that left it would hang the others), unscale, total norm *before* clipping (clipping by
one Inf turns every other gradient into NaN, pytorch#46849), one reading on the host, one verdict that all ranks share,
then the update or the way back.

A refused step leaves weights, buffers, optimizer, scheduler and torch's generators as they were; only the loss scale
backs off, down to a floor (a scale that reaches 0 writes NaN into the weights at the next good step). Generators of
``random`` and ``numpy`` are not rewound: draw augmentations before the step, or from a generator keyed by position.
Gradients are expected whole on each rank (one process, or DDP); sharded gradients need a reduced norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from failsoft.errors import ConfigError
from failsoft.training.ranks import Ranks, SoloRank

Compute = Callable[[], Tensor]
"""Forward pass of one batch; returns a scalar loss that depends on the model."""


class Refusal(StrEnum):
    """Why a step was refused."""

    LOSS = "loss is not finite"
    GRADIENT = "gradient is not finite"
    OVERFLOW = "gradient is finite, but its norm overflows"
    ELSEWHERE = "another rank refused"


@dataclass(frozen=True, kw_only=True)
class GuardPolicy:
    """What a step must satisfy."""

    max_grad_norm: float | None = 1.0
    """Clip the total gradient norm to this; None does not clip."""
    min_loss_scale: float = 1.0
    """The loss scale of a GradScaler never backs off below this."""
    autocast_dtype: torch.dtype | None = None
    """Run the forward pass under autocast to this type; None leaves that to the caller."""

    def __post_init__(self) -> None:
        """Refuse limits that no step could meet."""
        if self.max_grad_norm is not None and not 0.0 < self.max_grad_norm < math.inf:
            raise ConfigError(
                f"max_grad_norm is {self.max_grad_norm}; use a positive number, or None to leave norms as they are"
            )
        if not 0.0 < self.min_loss_scale < math.inf:
            raise ConfigError(
                f"min_loss_scale is {self.min_loss_scale}; a scale of 0 writes NaN into the weights, use 1.0 or so"
            )


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """How one step ended."""

    position: int
    sample_ids: tuple[int, ...]
    rank: int
    refusal: Refusal | None
    loss: float
    """This rank's own loss."""
    mean_loss: float
    """Mean over the ranks; not finite when any of them is not."""
    grad_norm: float
    """Total norm before clipping, unscaled."""
    bad_tensor: str | None = None
    """First parameter whose gradient is not finite (the largest gradient when only the norm overflows)."""

    @property
    def applied(self) -> bool:
        """Whether the update happened."""
        return self.refusal is None


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """The numbers that one step needs on the host."""

    loss: float
    mean_loss: float
    norm: float
    refused_anywhere: bool


@dataclass(frozen=True, kw_only=True)
class _Before:
    """What a forward pass changes by itself, as it was."""

    buffers: list[tuple[dict[str, Tensor | None], str, Tensor | None, Tensor | None]]
    """Where each buffer lives (module and name), the tensor there, and a copy of its values."""
    generators: list[Tensor]


@dataclass(kw_only=True)
class StepGuard:
    """Carries out steps on one model and optimizer. Owns nothing; a checkpoint of its parts is a checkpoint of it."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None = None
    """Moves on applied steps only."""
    scaler: GradScaler | None = None
    policy: GuardPolicy = field(default_factory=GuardPolicy)
    ranks: Ranks = field(default_factory=SoloRank)
    on_refused: Callable[[StepOutcome], object] = lambda _outcome: None
    """Told of each refused step after the way back, for instance ``DeadLetters.write``."""

    def __post_init__(self) -> None:
        """Look once at what never changes."""
        self._shelves = [module._buffers for module in self.model.modules() if module._buffers]
        self._spare: dict[tuple[int, str], Tensor] = {}
        self._device = next((p.device for p in self.model.parameters()), torch.device("cpu"))

    def step(self, compute: Compute, *, sample_ids: Sequence[int] = (), position: int = 0) -> StepOutcome:
        """Do one step: the whole of it, or nothing.

        Args:
            compute: forward pass of the batch; called once.
            sample_ids: ids of this rank's samples, for the dead letter.
            position: global batches consumed before this one.
        """
        before = self._remember()
        loss = self._backward(compute)
        norm = get_total_norm(self._gradients(), error_if_nonfinite=False)
        reading = self._read(loss, norm)
        refusal, bad_tensor = self._judge(reading)
        if refusal is None:
            self._apply(reading.norm, norm)
        else:
            self._go_back(before)
        outcome = StepOutcome(
            position=position,
            sample_ids=tuple(int(sample) for sample in sample_ids),
            rank=self.ranks.rank,
            refusal=refusal,
            loss=reading.loss,
            mean_loss=reading.mean_loss,
            grad_norm=reading.norm,
            bad_tensor=bad_tensor,
        )
        if refusal is not None:
            self.on_refused(outcome)
        return outcome

    def _remember(self) -> _Before:
        """Copies of all buffers, and where they were: a model may also put a new tensor in a buffer's place."""
        buffers = []
        for number, shelf in enumerate(self._shelves):
            for name, buffer in shelf.items():
                kept = None if buffer is None else self._kept((number, name), buffer)
                buffers.append((shelf, name, buffer, kept))
        generators = [torch.get_rng_state()]
        if self._device.type == "cuda":
            generators.append(torch.cuda.get_rng_state(self._device))
        return _Before(buffers=buffers, generators=generators)

    def _kept(self, place: tuple[int, str], buffer: Tensor) -> Tensor:
        kept = self._spare.get(place)
        if kept is None or kept.shape != buffer.shape or kept.dtype != buffer.dtype or kept.device != buffer.device:
            kept = self._spare[place] = torch.empty_like(buffer)
        return kept.copy_(buffer.detach())

    def _backward(self, compute: Compute) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        dtype = self.policy.autocast_dtype
        with nullcontext() if dtype is None else torch.autocast(self._device.type, dtype=dtype):
            loss = compute()
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]  # torch leaves this one untyped
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        return loss.detach()

    def _gradients(self) -> list[Tensor]:
        return [p.grad for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]

    def _read(self, loss: Tensor, norm: Tensor) -> _Reading:
        """Bring everything over in one host sync, after at most one tiny reduction."""
        loss = loss.float()
        if self.ranks.world == 1:
            loss_here, norm_here = torch.stack([loss, norm.to(loss)]).tolist()
            return _Reading(loss=loss_here, mean_loss=loss_here, norm=norm_here, refused_anywhere=False)
        bad = ~(torch.isfinite(loss) & torch.isfinite(norm))
        shared = self.ranks.sum_(torch.stack([bad.to(loss), loss]))
        loss_here, norm_here, bad_ranks, loss_sum = torch.cat([torch.stack([loss, norm.to(loss)]), shared]).tolist()
        mean_loss = loss_sum / self.ranks.world
        return _Reading(loss=loss_here, mean_loss=mean_loss, norm=norm_here, refused_anywhere=bad_ranks != 0.0)

    def _judge(self, reading: _Reading) -> tuple[Refusal | None, str | None]:
        if not math.isfinite(reading.loss):
            return Refusal.LOSS, self._first_bad()
        if not math.isfinite(reading.norm):
            name = self._first_bad()
            return (Refusal.GRADIENT, name) if name is not None else (Refusal.OVERFLOW, self._largest())
        return (Refusal.ELSEWHERE, None) if reading.refused_anywhere else (None, None)

    def _apply(self, norm_here: float, norm: Tensor) -> None:
        max_norm = self.policy.max_grad_norm
        if max_norm is None or norm_here <= max_norm:
            self.optimizer.step()
        elif getattr(self.optimizer, "_step_supports_amp_scaling", False):
            self._fused_step((norm.float() + 1e-6) / max_norm)  # the kernels read a float32 in any precision
        else:
            clip_grads_with_norm_((p for group in self.optimizer.param_groups for p in group["params"]), max_norm, norm)
            self.optimizer.step()
        if self.scaler is not None:
            self.scaler.update()  # `unscale_` recorded its finding, so growth goes on as torch does it
        if self.scheduler is not None:
            self.scheduler.step()

    def _fused_step(self, divisor: Tensor) -> None:
        """A fused optimizer divides the gradients while it reads them anyway, which saves a pass over them."""
        self.optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        try:
            self.optimizer.step()
        finally:
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]

    @torch.no_grad()
    def _go_back(self, before: _Before) -> None:
        for shelf, name, buffer, kept in before.buffers:
            shelf[name] = buffer
            if buffer is not None and kept is not None:
                buffer.copy_(kept)
        torch.set_rng_state(before.generators[0])
        if len(before.generators) > 1:
            torch.cuda.set_rng_state(before.generators[1], self._device)
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler is not None:
            self._back_off(self.scaler)

    def _back_off(self, scaler: GradScaler) -> None:
        lower = max(scaler.get_scale() * scaler.get_backoff_factor(), self.policy.min_loss_scale)
        scaler.update(lower)  # also closes the round that `unscale_` opened
        scaler.load_state_dict(scaler.state_dict() | {"_growth_tracker": 0})

    def _first_bad(self) -> str | None:
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                return name
        return None

    def _largest(self) -> str | None:
        sizes = {name: float(p.grad.abs().max()) for name, p in self.model.named_parameters() if p.grad is not None}
        return max(sizes, key=sizes.__getitem__, default=None)
