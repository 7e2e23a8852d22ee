"""Carries planned faults out inside a training step. Nothing happens without a plan."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from failsoft.health.clock import Clock
from failsoft.health.faults import Fault, FaultKind, FaultMoment


class InfGradient(torch.autograd.Function):
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
            loss = loss + InfGradient.apply(next(model.parameters()))  # type: ignore[no-untyped-call]
    return loss


def strike(loss_of: Callable[[], Tensor], samples: int, faults: Sequence[Fault], model: nn.Module) -> Tensor:
    """The loss of one pass over so many samples, under the planned faults of their batch.

    Raises:
        torch.OutOfMemoryError: memory runs out before the forward pass; or it will in the middle of the backward pass.
    """
    if not faults:
        return loss_of()
    short = {fault.when for fault in faults if fault.kind is FaultKind.OUT_OF_MEMORY and samples > fault.above_samples}
    if FaultMoment.FORWARD in short:
        raise _planned(samples)
    loss = strike_loss(loss_of(), (fault.kind for fault in faults), model)
    if FaultMoment.BACKWARD in short:
        _fail_midway(model, samples)
    return loss


def _fail_midway(model: nn.Module, samples: int) -> None:
    """The gradient of a parameter in the middle of the model never comes."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def fail(_gradient: Tensor) -> None:
        handle.remove()
        raise _planned(samples)

    handle = learning[len(learning) // 2].register_hook(fail)  # type: ignore[no-untyped-call]


def _planned(samples: int) -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError(f"planned fault: tried to allocate {samples}.00 GiB for {samples} samples")


def strike_pace(samples: int, faults: Iterable[Fault], clock: Clock) -> None:
    """Take as much longer over a pass as a planned slow rank does."""
    for fault in faults:
        if fault.kind is FaultKind.SLOW_RANK:
            clock.sleep_s(fault.sample_s * samples)


def kill_self() -> None:
    """SIGKILL to this process: no clean-up, no last words, as the OOM killer does it."""
    os.kill(os.getpid(), signal.SIGKILL)
