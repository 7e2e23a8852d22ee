"""Runs foreign code in a higher precision than it was written for, for trials of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_BELOW: Mapping[torch.dtype, frozenset[torch.dtype]] = {
    torch.float32: frozenset({torch.float16, torch.bfloat16}),
    torch.float64: frozenset({torch.float16, torch.bfloat16, torch.float32}),
}
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)
_LOW = _BELOW[torch.float32]


class Precision(StrEnum):
    """How a trial computes."""

    AS_TRAINED = "as trained"
    SINGLE = "float32"
    DOUBLE = "float64"

    @property
    def dtype(self) -> torch.dtype | None:
        """The lowest floating type that the trial uses; None leaves all as it is."""
        return {Precision.SINGLE: torch.float32, Precision.DOUBLE: torch.float64}.get(self)


class _Lifted(TorchFunctionMode):
    """Every torch function gets, and gives, floating tensors of at least ``dtype``; casts below it stop there.

    The model's own parameters are lifted before; this is for what the task brings: inputs, masks, constants, casts,
    and an autocast of its own, which would else lower the very functions that are to be tried.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self._dtype = dtype
        self._low = _BELOW[dtype]
        self._device_type = device.type

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Lift what goes in and what comes out."""
        if func in _CASTS:
            return args[0].to(self._dtype)
        with torch.autocast(self._device_type, enabled=False):
            return self._lift(func(*self._lift(args), **self._lift(kwargs or {})))

    def _lift(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(self._dtype) if value.dtype in self._low else value
        if isinstance(value, torch.dtype):
            return self._dtype if value in self._low else value
        if type(value) in {tuple, list}:
            return type(value)(map(self._lift, value))
        return {key: self._lift(entry) for key, entry in value.items()} if type(value) is dict else value


class Noticing(TorchFunctionMode):
    """Changes nothing, and notices whether any function takes or gives a floating tensor below float32."""

    def __init__(self) -> None:
        super().__init__()
        self.low = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Look at what goes in and what comes out."""
        given = func(*args, **(kwargs or {}))
        self.low = self.low or any(map(_is_low, (*args, *(kwargs or {}).values(), given)))
        return given


def _is_low(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dtype in _LOW
    return type(value) in {tuple, list} and any(map(_is_low, value))


def in_precision(model: nn.Module, how: Precision) -> nn.Module:
    """A copy of the model that holds at least this precision; its gradients are its own."""
    twin = copy.deepcopy(model)
    dtype = how.dtype
    if dtype is not None and any(tensor.dtype in _BELOW[dtype] for tensor in _tensors(model)):
        twin = twin.to(dtype)
    return twin


@contextmanager
def computing(how: Precision, device: torch.device, autocast_dtype: torch.dtype | None) -> Iterator[None]:
    """The block's torch functions compute in this precision; as trained means under the run's own autocast."""
    dtype = how.dtype
    if dtype is None:
        with torch.autocast(device.type, dtype=autocast_dtype, enabled=autocast_dtype is not None):
            yield
        return
    with torch.autocast(device.type, enabled=False), _Lifted(dtype, device):
        yield


def computes_low(model: nn.Module, autocast_dtype: torch.dtype | None) -> bool:
    """Whether training is set up to compute below float32; what a task does of its own accord, Noticing tells."""
    return autocast_dtype in _LOW or any(tensor.dtype in _LOW for tensor in _tensors(model))


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
