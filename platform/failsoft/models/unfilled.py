"""A network without first weights, for whoever reads all of them from a file next.

Drawing random ones took fourteen fifteenths of the time of reading 75 MB of weights, beside live answers of another
model, and moved the global generator of a process that had nothing to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from failsoft.models.network import IntentNer, NetworkConfig, build

_DRAW = frozenset(
    {Tensor.normal_, Tensor.uniform_, init.normal_, init.uniform_, init.kaiming_uniform_, init.xavier_uniform_}
)


def build_unfilled(config: NetworkConfig) -> IntentNer:
    """A network whose weights are whatever was in memory. It must not be used before they are loaded, all of them."""
    with _NoDraws():
        return build(config)


class _NoDraws(TorchFunctionMode):
    """In this thread alone, random numbers in place are left out."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """The tensor as it is, for those who would draw; everything else as ever."""
        named = kwargs or {}
        if func in _DRAW:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)
