"""Carries planned faults out inside a training step. Nothing happens without a plan."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from failsoft.health.faults import FaultKind


class _InfGradient(torch.autograd.Function):
    """Adds nothing to the loss, and one Inf to the first entry of a parameter's gradient."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor) -> Tensor:
        """A zero that depends on the parameter."""
        ctx.save_for_backward(parameter)
        return parameter.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        """Inf in one entry."""
        (parameter,) = ctx.saved_tensors
        gradient = torch.zeros_like(parameter)
        gradient.view(-1)[0] = torch.inf
        return gradient


def strike_loss(loss: Tensor, kinds: Iterable[FaultKind], model: nn.Module) -> Tensor:
    """The loss after the planned faults of this batch."""
    for kind in kinds:
        if kind is FaultKind.NAN_BATCH:
            loss = loss * torch.nan
        elif kind is FaultKind.INF_GRADIENT:
            loss = loss + _InfGradient.apply(next(model.parameters()))  # type: ignore[no-untyped-call]
    return loss


def kill_self() -> None:
    """SIGKILL to this process: no clean-up, no last words, as the OOM killer does it."""
    os.kill(os.getpid(), signal.SIGKILL)
