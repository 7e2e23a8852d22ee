"""Optimizer state that lies in host RAM while activations lie on the device, and comes back for the update.

At the peak of a step, in the passes, the moments are not needed; at the update the activations are gone. So the two
take turns on the device, at the price of carrying the state there and back at each update. The update itself is done
where it always was, by the same kernels: it is equal to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

_HOST = torch.device("cpu")


class StateOffload:
    """Carries one optimizer's state between its parameters' devices and host RAM.

    A state that is loaded in between (a rollback, a checkpoint) lies on the device until the next update is done.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._handles: list[RemovableHandle] = []

    @staticmethod
    def useful(optimizer: Optimizer) -> bool:
        """Whether parameters lie elsewhere than in host RAM."""
        return any(owner.device != _HOST for group in optimizer.param_groups for owner in group["params"])

    @property
    def active(self) -> bool:
        """Whether the state goes to host RAM after each update."""
        return bool(self._handles)

    @property
    def state_bytes(self) -> int:
        """How much there is to carry."""
        return sum(tensor.nbytes for _owner, _slot, _name, tensor in self._tensors())

    def on(self) -> None:
        """From now on; the state leaves the device at once."""
        if not self._handles:
            before = self._optimizer.register_step_pre_hook(lambda *_: self.bring_back())
            after = self._optimizer.register_step_post_hook(lambda *_: self.put_away())
            self._handles = [before, after]
            self.put_away()

    def off(self) -> None:
        """The state stays on the device again."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.bring_back()

    @torch.no_grad()
    def put_away(self) -> None:
        """To host RAM, pinned where the device is CUDA's; the device is free of it when this returns."""
        for owner, slot, name, tensor in list(self._tensors()):
            if tensor.device == owner.device:
                kept = torch.empty_like(tensor, device=_HOST, pin_memory=owner.is_cuda)
                slot[name] = kept.copy_(tensor)

    @torch.no_grad()
    def bring_back(self) -> None:
        """To each parameter's device."""
        for owner, slot, name, tensor in list(self._tensors()):
            slot[name] = tensor.to(owner.device, non_blocking=True)

    def _tensors(self) -> Iterator[tuple[Tensor, dict[str, Any], str, Tensor]]:
        """All but single numbers (the count of steps): torch keeps those on the host where it wants them there."""
        for owner, slot in self._optimizer.state.items():
            for name, value in slot.items():
                if isinstance(value, Tensor) and value.numel() > 1:
                    yield owner, slot, name, value
