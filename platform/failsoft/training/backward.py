"""Forward and backward of one update: one batch, or several micro-batches whose gradients add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.parallel import DistributedDataParallel

from failsoft.errors import ConfigError

Compute = Callable[[], Tensor]
"""Forward pass of one (micro-)batch; returns a scalar mean loss that depends on the model."""
Passes = Callable[[Compute | Sequence[Compute], Sequence[float] | None], Tensor]
"""All passes of one update, with the shares of its micro-batches; returns the loss."""


@dataclass(frozen=True, kw_only=True)
class Backward:
    """Runs the passes of one update.

    Every micro-batch is run to its end, also after a NaN: under DDP the last backward pass is a collective, and a rank
    that left it would hang the others.
    """

    model: nn.Module
    """The model as the loss sees it, DDP wrapper included: all but the last micro-batch then run in its ``no_sync``."""
    device: torch.device
    scaler: GradScaler | None
    autocast_dtype: torch.dtype | None

    def run(self, compute: Compute | Sequence[Compute], shares: Sequence[float] | None) -> Tensor:
        """Add up the gradients; returns the whole batch's loss, unscaled, its graph used up.

        Raises:
            ConfigError: a loss that is no scalar or depends on nothing, shares that do not add up to 1, no function to
                call, or DDP's ``join``.
        """
        self._refuse_join()
        if callable(compute):
            if shares is not None:
                _weights(1, shares)
            return self._one(compute, None)
        weights = _weights(_count(compute), shares)
        losses = []
        for part, weight in zip(compute[:-1], weights, strict=False):
            with self._alone():
                losses.append(self._one(part, weight))
        losses.append(self._one(compute[-1], weights[-1]))
        return torch.stack([loss.detach() for loss in losses]).sum()

    def _one(self, compute: Compute, weight: float | None) -> Tensor:
        if self.autocast_dtype is None:
            loss = _fit(compute())
        else:
            with torch.autocast(self.device.type, dtype=self.autocast_dtype):
                loss = _fit(compute())
        if weight is not None:
            loss = loss * weight
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]  # torch leaves this one untyped
        return loss

    def forget(self) -> None:
        """Drop what a compressing communication hook of DDP (PowerSGD) holds back of a refused batch for later ones.

        It would add the NaN to the gradients of every later batch. All ranks do this for the same batch.
        """
        if isinstance(self.model, DistributedDataParallel):
            for _hook, state in self.model._comm_hooks:
                for memory in ("error_dict", "p_memory_dict", "q_memory_dict"):
                    getattr(state, memory, {}).clear()

    def _refuse_join(self) -> None:
        if isinstance(self.model, DistributedDataParallel) and self.model._join_config.enable:
            raise ConfigError(
                "the model went into DDP's join(), which answers DDP's own collectives for a rank without data, but "
                "not the one that shares the verdict; wrap it anew and give every rank the same number of batches"
            )

    def _alone(self) -> AbstractContextManager[object]:
        no_sync = getattr(self.model, "no_sync", None)
        return nullcontext() if no_sync is None else no_sync()


def _count(computes: object) -> int:
    if isinstance(computes, Tensor) or not isinstance(computes, Sequence):
        raise ConfigError(
            f"compute is a {type(computes).__name__}; give the function that computes the loss, or a list of such "
            "functions: what a forward pass changed before the step began could not be put back"
        )
    return len(computes)


def _fit(loss: object) -> Tensor:
    if not isinstance(loss, Tensor):
        raise ConfigError(
            f"compute returned a {type(loss).__name__}; return the loss as a tensor, which knows how it came about"
        )
    if loss.ndim:
        raise ConfigError(f"the loss has shape {tuple(loss.shape)}; return one number, such as its mean over the batch")
    if not loss.requires_grad:
        raise ConfigError(
            "the loss depends on no parameter that learns; compute it without detach(), .item() and torch.no_grad(), "
            "from a model whose parameters have requires_grad"
        )
    return loss


def _weights(count: int, shares: Sequence[float] | None) -> list[float]:
    if count == 0:
        raise ConfigError("compute is an empty list; an update needs at least one micro-batch")
    if shares is None:
        return [1.0 / count] * count
    total = math.fsum(shares)
    if len(shares) != count or not abs(total - 1.0) <= 1e-6 or not min(shares) >= 0.0:
        raise ConfigError(
            f"{len(shares)} shares, the least {min(shares, default=0.0):.6g}, that add up to {total:.6g} for {count} "
            "micro-batches; give each micro-batch its share of the batch's samples, 0 or more, so that they add up to "
            "1 (the last one may be smaller)"
        )
    return [float(share) for share in shares]
