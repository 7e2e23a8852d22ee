"""What a forward pass changes by itself, and the way back: buffers (BatchNorm's statistics) and torch's generators."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Traces:
    """Remembers the buffers of a model and torch's generators, and puts them back.

    One NaN input leaves BatchNorm's running statistics NaN for ever, although the step that brought it was skipped; and
    a run that drew dropout masks for a batch that does not count is not the run that never saw it. Generators of
    ``random`` and ``numpy`` stay as they are: draw augmentations before the step, or by position.

    Args:
        model: the bare model, not its DDP wrapper. Modules that are added later are not seen.
    """

    def __init__(self, model: nn.Module) -> None:
        self._shelves = [module._buffers for module in model.modules() if module._buffers]
        self._live: list[tuple[dict[str, Tensor | None], str, Tensor | None]] = []
        self._tensors: list[Tensor] = []
        self._copies: list[Tensor] = []
        parameter = next(iter(model.parameters()), None)
        self._device = torch.device("cpu") if parameter is None else parameter.device
        self._generator = torch.default_generator
        self._generators: tuple[Tensor, ...] = ()

    @torch.no_grad()
    def remember(self) -> None:
        """Note everything as it is now."""
        if self._shelves:
            self._remember_buffers()
        if self._device.type == "cuda":
            self._generators = (self._generator.get_state(), torch.cuda.get_rng_state(self._device))
        else:
            self._generators = (self._generator.get_state(),)

    @torch.no_grad()
    def undo(self) -> None:
        """Put everything back as it was noted; may be called again."""
        self._put_back()
        if self._copies:
            torch._foreach_copy_(self._tensors, self._copies)
        if self._generators:
            self._generator.set_state(self._generators[0])
        if len(self._generators) > 1:
            torch.cuda.set_rng_state(self._generators[1], self._device)

    @torch.no_grad()
    def undo_buffers_where(self, flag: Tensor) -> None:
        """Put the buffers' values back if ``flag`` (one element, on the device) is not 0, without a look at it."""
        self._put_back()
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            tensor.copy_(torch.where(flag.to(tensor.device) != 0, copy, tensor))

    def _put_back(self) -> None:
        for shelf, name, buffer in self._live:  # a model may also put a new tensor in a buffer's place
            shelf[name] = buffer

    def _remember_buffers(self) -> None:
        self._live = [(shelf, name, buffer) for shelf in self._shelves for name, buffer in shelf.items()]
        tensors = [buffer.detach() for _shelf, _name, buffer in self._live if buffer is not None]
        if not _alike(tensors, self._copies):
            self._copies = [torch.empty_like(tensor) for tensor in tensors]
        self._tensors = tensors
        torch._foreach_copy_(self._copies, tensors)


def _alike(left: list[Tensor], right: list[Tensor]) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.device == b.device for a, b in zip(left, right, strict=True)
    )
