"""The update itself: clip by a norm that is already known, and step."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from failsoft.errors import ConfigError
from failsoft.training.gradients import Gradients

_FLOAT32_MAX = torch.finfo(torch.float32).max


class Update:
    """Clips and steps one optimizer.

    Raises:
        ConfigError: the optimizer evaluates the model during its step (LBFGS), so no step can be judged before it.
    """

    def __init__(self, optimizer: Optimizer, gradients: Gradients, max_norm: float | None) -> None:
        _refuse_closure(optimizer)
        self._optimizer = optimizer
        self._gradients = gradients
        self._max_norm = max_norm

    def carry_out(self, norm_here: float, norm: Tensor) -> None:
        """Step on gradients whose total norm is ``norm`` (``norm_here`` on the host, so that nothing waits for it)."""
        if self._max_norm is None or norm_here <= self._max_norm:
            self._optimizer.step()
        elif decides_on_device(self._optimizer) and norm_here / self._max_norm <= _FLOAT32_MAX:
            self._divided((norm.float() + 1e-6) / self._max_norm)  # the kernels read a float32 in any precision
        else:
            self._gradients.clip(self._max_norm, norm)
            self._optimizer.step()

    def divisor(self, norm: Tensor) -> Tensor | None:
        """What a fused optimizer divides by to clip, worked out on the device; None clips nothing."""
        return None if self._max_norm is None else torch.clamp((norm.float() + 1e-6) / self._max_norm, min=1.0)

    def _divided(self, divisor: Tensor) -> None:
        """A fused optimizer divides the gradients while it reads them anyway, which saves a pass over them."""
        self._optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        try:
            self._optimizer.step()
        finally:
            del self._optimizer.grad_scale  # type: ignore[attr-defined]  # a GradScaler can't multiply by a None


def decides_on_device(optimizer: Optimizer) -> bool:
    """Whether its kernels take ``grad_scale`` and ``found_inf``, as torch's own fused ones do.

    Those of others may say that they support a scaler and never look at the two: they would not clip, without a word.
    Asked anew each time: a state that a run without fused kernels wrote turns them off when it is loaded.
    """
    supported = getattr(optimizer, "_step_supports_amp_scaling", False)
    return supported and all(group.get("fused") for group in optimizer.param_groups)


def close_round(scaler: GradScaler) -> None:
    """Move the loss scale on; a batch that gave the optimizer no gradient says nothing of it, and torch would raise."""
    if any(state["found_inf_per_device"] for state in scaler._per_optimizer_states.values()):
        scaler.update()
    else:
        scaler._per_optimizer_states.clear()


def refuse_metric(scheduler: LRScheduler | None) -> None:
    """Only a scheduler that counts steps can move with them.

    Raises:
        ConfigError: it wants a metric each time (ReduceLROnPlateau).
    """
    if scheduler is not None and (wanted := _wanted(scheduler)):
        raise ConfigError(
            f"{type(scheduler).__name__}.step needs {wanted[0]}, which a single step does not have; leave scheduler "
            f"out here and call its step({wanted[0]}) yourself, after each evaluation"
        )


def _refuse_closure(optimizer: Optimizer) -> None:
    if "closure" in _wanted(optimizer):
        raise ConfigError(
            f"{type(optimizer).__name__}.step needs a closure that evaluates the model several times in one update, so "
            "a step can't be judged before it; use an optimizer that steps on gradients, such as AdamW"
        )


def _wanted(stepping: Optimizer | LRScheduler) -> list[str]:
    """Arguments without which its ``step`` can't be called."""
    empty, named = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
    _self, *rest = inspect.signature(type(stepping).step).parameters.values()
    return [one.name for one in rest if one.default is empty and one.kind is named]
