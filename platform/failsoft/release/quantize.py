"""Smaller weights, and how far the answers move with them.

Weight-only: tensors with two or more dimensions are stored narrower and widened again before use; biases and norms stay
as they are. int8 is symmetric with one scale for each output channel (row), the scheme of Jacob et al. 2018 (arXiv
1712.05877) for weights. ``torch.ao`` is deprecated and not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from failsoft.errors import ConfigError

_INT8_MAX = 127.0


class Width(StrEnum):
    """How weights are stored."""

    BF16 = "bf16"
    FP16 = "fp16"
    INT8 = "int8"


@dataclass(frozen=True, kw_only=True)
class Int8Tensor:
    """A weight in eight bits: ``values * scales``, one scale for each row of the first dimension."""

    values: Tensor
    """int8, shape of the weight."""
    scales: Tensor
    """float32, shape (rows, 1, …)."""

    def widened(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight that these bits stand for."""
        return (self.values.to(torch.float32) * self.scales).to(dtype)


def to_int8(weight: Tensor) -> Int8Tensor:
    """Round a floating weight of two or more dimensions to eight bits for each row.

    Raises:
        ConfigError: the weight is a vector, or not floating.
    """
    if weight.dim() < 2 or not weight.is_floating_point():
        raise ConfigError(
            f"a {weight.dim()}-d {weight.dtype} tensor stays as it is; int8 is for floating weights of 2-d or more"
        )
    wide = weight.detach().to(torch.float32)
    peaks = wide.abs().amax(dim=tuple(range(1, wide.dim())), keepdim=True)
    scales = torch.where(peaks > 0, peaks / _INT8_MAX, torch.ones_like(peaks))
    values = torch.clamp(torch.round(wide / scales), -_INT8_MAX, _INT8_MAX).to(torch.int8)
    return Int8Tensor(values=values, scales=scales)


def narrowed(state: Mapping[str, Tensor], width: Width) -> dict[str, Tensor]:
    """The same state as a model stored at ``width`` would load it: narrowed, then widened to its own type.

    Values that a type can't hold become what they become when stored (Inf in fp16); the gate sees them.
    """
    narrow = _NARROW[width]
    return {name: narrow(tensor) if _is_weight(tensor) else tensor for name, tensor in state.items()}


def stored_bytes(state: Mapping[str, Tensor], width: Width) -> int:
    """What the state takes on disk at ``width``."""
    return sum(_bytes_of(tensor, width) for tensor in state.values())


def _is_weight(tensor: Tensor) -> bool:
    return tensor.dim() >= 2 and tensor.is_floating_point()


def _through(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda weight: weight.detach().to(dtype).to(weight.dtype)


_NARROW: dict[Width, Callable[[Tensor], Tensor]] = {
    Width.BF16: _through(torch.bfloat16),
    Width.FP16: _through(torch.float16),
    Width.INT8: lambda weight: to_int8(weight).widened(weight.dtype),
}


def _bytes_of(tensor: Tensor, width: Width) -> int:
    if not _is_weight(tensor):
        return tensor.numel() * tensor.element_size()
    return tensor.numel() + 4 * tensor.shape[0] if width is Width.INT8 else 2 * tensor.numel()
