"""A quiet run leaves one update out: what the end state is compared with where a batch was refused."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from failsoft.drills.training.inside.course import Course


class LeavingOut:
    """Of one process. An optimizer passes over parameters without a gradient, in PyTorch's and in most others' code."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._at = course.orders.leave_out
        self._module: nn.Module | None = None
        self._buffers: dict[str, Tensor] = {}
        self._generator: Tensor | None = None

    def before_forward(self, module: nn.Module) -> None:
        """The struck batch is about to come; what it moves by itself is remembered."""
        if self._at is None or self._generator is not None or self._course.backwards != self._at:
            return
        self._module = module
        self._buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        self._generator = torch.get_rng_state()

    def before_step(self, optimizer: Optimizer) -> None:
        """Leave the struck update out."""
        if self._at is None or self._course.backwards != self._at + 1:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        if self._course.orders.rewinds and self._module is not None and self._generator is not None:
            torch.set_rng_state(self._generator)
            with torch.no_grad():
                for name, buffer in self._module.named_buffers():
                    buffer.copy_(self._buffers[name])
