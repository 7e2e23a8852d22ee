"""The update itself: clip by a norm that is already known, and step."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from torch.optim import Optimizer

from failsoft.errors import ConfigError
from failsoft.training.gradients import Gradients


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
        self._divides = getattr(optimizer, "_step_supports_amp_scaling", False)

    def carry_out(self, norm_here: float, norm: Tensor) -> None:
        """Step on gradients whose total norm is ``norm`` (``norm_here`` on the host, so that nothing waits for it)."""
        if self._max_norm is None or norm_here <= self._max_norm:
            self._optimizer.step()
        elif self._divides:
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
            self._optimizer.grad_scale = None  # type: ignore[attr-defined]


def _refuse_closure(optimizer: Optimizer) -> None:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            f"{type(optimizer).__name__}.step needs a closure that evaluates the model several times in one update, so "
            "a step can't be judged before it; use an optimizer that steps on gradients, such as AdamW"
        )
