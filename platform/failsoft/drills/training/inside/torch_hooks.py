"""Hooks on torch by its own global registries: where the script stands, and the faults of its numbers.

They see eager code. What ``torch.compile`` has compiled is struck at its outermost call, too, for that is a module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.inside.course import Course
from failsoft.drills.training.inside.end_state import EndState
from failsoft.drills.training.inside.leaving_out import LeavingOut
from failsoft.drills.training.inside.numbers import (
    BoundFaults,
    out_of_memory,
    outputs_of,
    rows_to_nan,
    with_inf_gradient,
)
from failsoft.drills.training.inside.orders import Strike

_NUMBERS = frozenset(
    {
        DrillFault.NAN,
        DrillFault.INF,
        DrillFault.SPIKE,
        DrillFault.POISONED_SAMPLE,
        DrillFault.OUT_OF_MEMORY,
    }
)


class TorchHooks:
    """Those of one process. Called in whatever thread calls a module; each has a depth of its own."""

    def __init__(self, course: Course, end: EndState, strike: Callable[[Strike], None]) -> None:
        self._course = course
        self._strike = strike
        self._end = end
        self._leaving_out = LeavingOut(course)
        self._bound = BoundFaults(course.marks, course.strikes)
        self._depth = threading.local()
        self._outputs: list[Strike] = []
        self._rows: Tensor | None = None
        self._inf_due = False
        self._module: nn.Module | None = None
        self._backward = torch.autograd.backward

    def install(self) -> None:
        """From here on the script is watched."""
        register_module_forward_pre_hook(self._before)
        register_module_forward_hook(self._after, always_call=True)
        register_optimizer_step_pre_hook(self._before_step)
        torch.autograd.backward = self._run_backward
        self._end.install()

    def _before(self, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        depth = self._depth.value = getattr(self._depth, "value", 0) + 1
        if depth > 1:
            return None
        learning = torch.is_grad_enabled()
        for strike in list(self._course.met_forward() if learning else self._course.met_look()):
            self._struck(strike, inputs)
        if not learning:
            return None
        self._module = module
        self._leaving_out.before_forward(module)
        changed, self._rows = self._bound.meet(inputs)
        return None if changed is inputs else changed

    def _struck(self, strike: Strike, inputs: tuple[Any, ...]) -> None:
        kind = strike.fault.kind
        if kind not in _NUMBERS:
            self._strike(strike)
        elif kind in {DrillFault.NAN, DrillFault.SPIKE}:
            self._outputs.append(strike)
        elif kind is DrillFault.INF:
            self._inf_due = True
        elif kind is DrillFault.POISONED_SAMPLE and not self._bound.begin(strike, inputs):
            self._outputs.append(strike)
        elif kind is DrillFault.OUT_OF_MEMORY and (
            not torch.is_grad_enabled() or not self._bound.begin(strike, inputs)
        ):
            raise out_of_memory(len(inputs))

    def _after(self, _module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> Any:
        self._depth.value -= 1
        if self._depth.value > 0 or output is None:
            return None
        rows, self._rows = self._rows, None
        if rows is not None:
            output = rows_to_nan(output, rows)
        change = outputs_of(self._outputs)
        self._outputs = []
        if change is None:
            return output if rows is not None else None
        return change(output)

    def _run_backward(self, tensors: Any, *arguments: Any, **named: Any) -> None:
        if self._inf_due:
            self._inf_due = False
            tensors = with_inf_gradient(tensors, self._module)
        self._backward(tensors, *arguments, **named)
        if self._module is not None:
            self._end.learns(self._module)
        self._course.met_backward()

    def _before_step(self, optimizer: Optimizer, _arguments: Any, _named: Any) -> None:
        self._leaving_out.before_step(optimizer)
