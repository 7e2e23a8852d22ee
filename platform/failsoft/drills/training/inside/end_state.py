"""What a script has learnt when its process ends: the weights of what it trained, wherever it keeps them."""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from failsoft.drills.training.inside.course import Course

END_PREFIX = "end-"
_MOST = 4
"""Modules and optimizers that are held: of a script that makes a new one each step only the last count."""
_SITE = re.compile(r"/(?:site|dist)-packages/|/failsoft/")
_save = torch.save
"""Before the disk's hooks come: what the drill writes itself is struck by nothing."""


class EndState:
    """Holds what trains, so that it can be written down when the script's own names are gone."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._modules: list[nn.Module] = []
        self._optimizers: list[Optimizer] = []

    def install(self) -> None:
        """Also an optimizer that never steps counts: a run that finds itself finished restores, and ends."""
        make = Optimizer.__init__

        @functools.wraps(make)
        def noticed(optimizer: Optimizer, *arguments: Any, **named: Any) -> None:
            make(optimizer, *arguments, **named)
            _hold(self._optimizers, optimizer)

        type.__setattr__(Optimizer, "__init__", noticed)

    def learns(self, module: nn.Module) -> None:
        """This module was called, and gradients came."""
        if not self._modules or self._modules[-1] is not module:
            _hold(self._modules, module)

    def write(self) -> None:
        """Leave it for the drill; nothing where nothing learns in this process."""
        tensors = self._tensors()
        if not tensors:
            return
        finite = all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values() if tensor.is_floating_point())
        name = f"{END_PREFIX}{os.getpid()}"
        path = self._course.marks.file(f"{name}.pt")
        _save(tensors, path)
        course = self._course
        course.marks.say(
            "end",
            attempt=course.attempt,
            file=path.name,
            finite=finite,
            backwards=course.backwards,
            looks=course.looks,
            modules=_loaded(),
        )

    def _tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for number, module in enumerate(self._modules):
            for name, tensor in module.state_dict().items():
                if isinstance(tensor, Tensor):
                    found[f"module {number}/{name}"] = _copy(tensor)
        for number, optimizer in enumerate(self._optimizers):
            parameters = [one for group in optimizer.param_groups for one in group["params"]]
            for index, parameter in enumerate(parameters):
                found[f"optimizer {number}/{index}"] = _copy(parameter)
        return found


def _loaded() -> list[str]:
    """Modules that were installed, in the order in which they came: what a warm process may load before a script.

    Not the drill's own, and none of the script's folder: those may differ from start to start.
    """
    return [
        name
        for name, module in list(sys.modules.items())
        if _SITE.search(getattr(module, "__file__", None) or "") and not name.startswith(("failsoft.drills", "__"))
    ]


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()


def _hold(held: list[Any], one: Any) -> None:
    """The last few, the newest at the end."""
    held[:] = [*(other for other in held if other is not one), one][-_MOST:]
