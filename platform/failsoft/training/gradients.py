"""The gradients that an optimizer is about to use: their norm, and the one to blame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer


class Gradients:
    """Looks at the gradients of the optimizer's parameters, and at nothing else.

    Args:
        model: gives the parameters their names.
        optimizer: says which parameters count.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._model = model
        self._optimizer = optimizer
        self._sparse = False

    def tensors(self) -> list[Tensor]:
        """All gradients, in the optimizer's order; after the first norm, of a sparse one its (coalesced) values."""
        if self._sparse:
            return [_dense_values(parameter) for parameter in self.owners()]
        groups = self._optimizer.param_groups  # `grad` is asked for once: at each step, that is half the time of this
        return [grad for group in groups for parameter in group["params"] if (grad := parameter.grad) is not None]

    def total_norm(self) -> Tensor:
        """The 2-norm over all gradients, unclipped, one element; not finite when any entry is not.

        Of sharded gradients (DTensor) it is the norm over all shards; every rank takes part.
        """
        try:
            norm = get_total_norm(self.tensors())
        except NotImplementedError:  # torch has none for sparse gradients; asking each one at each step would cost more
            if self._sparse:
                raise
            self._sparse = True
            return self.total_norm()
        return whole(norm)

    def clip(self, max_norm: float, norm: Tensor) -> None:
        """Scale all gradients down by one factor; ``norm`` is what :meth:`total_norm` gave."""
        if self._sparse:
            torch._foreach_mul_(self.tensors(), torch.clamp(max_norm / (norm + 1e-6), max=1.0))
            return
        clip_grads_with_norm_(self._parameters(), max_norm, norm)

    def first_bad(self) -> str | None:
        """Name of the first parameter, in the model's order, whose gradient is not finite; asks each one."""
        for name, gradient in self._named():
            if not bool(torch.isfinite(gradient).all()):
                return name
        return None

    def largest(self) -> str | None:
        """Name of the parameter with the largest gradient entry; None without gradients."""
        sizes = {name: float(gradient.abs().max()) for name, gradient in self._named() if gradient.numel()}
        return max(sizes, key=sizes.__getitem__, default=None)

    def owners(self) -> list[nn.Parameter]:
        """The parameters that have a gradient now, in the order of :meth:`tensors`."""
        return [parameter for parameter in self._parameters() if parameter.grad is not None]

    def names(self, owners: Sequence[nn.Parameter]) -> list[str]:
        """What the model calls these parameters."""
        known = {id(parameter): name for name, parameter in self._model.named_parameters()}
        return [known.get(id(owner), f"number {number} of the optimizer") for number, owner in enumerate(owners)]

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for group in self._optimizer.param_groups for parameter in group["params"])

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        mine = dict(zip(self.names(self.owners()), self.tensors(), strict=True))
        in_order = [name for name, _parameter in self._model.named_parameters() if name in mine]
        return ((name, whole(mine[name])) for name in [*in_order, *(name for name in mine if name not in in_order)])


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor whose shards lie on several ranks (a DTensor, under FSDP2), which all ask for it; else itself.

    A rank may hold nothing of a small one, and of nothing there is no maximum.
    """
    if type(tensor) is not Tensor and hasattr(tensor, "full_tensor"):
        return torch.as_tensor(tensor.full_tensor())
    return tensor


def _dense_values(parameter: nn.Parameter) -> Tensor:
    gradient = parameter.grad
    if gradient is None or not gradient.is_sparse:
        return torch.as_tensor(gradient)
    if not gradient.is_coalesced():
        gradient = parameter.grad = gradient.coalesce()
    return gradient._values()
