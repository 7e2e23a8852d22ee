"""What a forward pass changes by itself, and the way back: buffers (BatchNorm's statistics) and torch's generators."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

_Shelf = dict[str, Tensor | None]
_Key = TypeVar("_Key", bound=Hashable)


class Traces:
    """Remembers what the forward passes of a model change, and puts it back.

    Buffers: one NaN input leaves BatchNorm's running statistics NaN for ever, although the step that brought it was
    skipped. Buffers that appear, vanish, or are replaced by new tensors during the pass are put right, too. Weights of
    embeddings with a ``max_norm``, which their forward pass rescales in place. Torch's generators: a run that drew
    dropout masks for a batch that does not count is not the run that never saw it. Those of ``random`` and ``numpy``
    stay as they are: draw augmentations before the step, or by position. So do Python attributes of a model.

    Args:
        model: the bare model, not its DDP wrapper. Modules that are added later are not seen.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._shelves: list[_Shelf] = [module._buffers for module in modules]
        self.rescaling = [
            module for module in modules if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm
        ]
        """Embeddings whose forward pass writes into their weights."""
        self._noted: list[tuple[_Shelf, _Shelf]] | None = None
        self._tensors: list[Tensor] = []
        self._copies: list[Tensor] = []
        self._selectable = True
        parameter = next(iter(model.parameters()), None)
        self._cuda = parameter.device if parameter is not None and parameter.is_cuda else None
        self._host_generator = self._cuda_generator = torch.empty(0)

    def remember(self) -> None:
        """Note everything as it is now."""
        if any(self._shelves) or self.rescaling:
            self._note()
        elif self._noted or self._noted is None:
            self._noted, self._tensors, self._copies = [], [], []
        self._host_generator = torch.default_generator.get_state()
        if self._cuda is not None:
            self._cuda_generator = torch.cuda.get_rng_state(self._cuda)

    @torch.no_grad()
    def undo(self) -> None:
        """Put everything back as it was noted; may be called again."""
        if self._noted is None:
            return
        self._fill_shelves(self._noted)
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            if tensor.shape != copy.shape:  # observers of quantisation resize theirs in place
                tensor.resize_(copy.shape)
            (tensor.detach() if tensor.is_inference() else tensor).copy_(copy)  # else torch lets nobody write to it
        torch.default_generator.set_state(self._host_generator)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda_generator, self._cuda)

    @torch.no_grad()
    def undo_buffers_where(self, flag: Tensor) -> None:
        """Put the buffers' values back if ``flag`` (one element, on the device) is not 0, without a look at it.

        A pass that added or removed a buffer, or changed its shape, costs that look; so do sparse and quantised ones.
        """
        pairs = zip(self._pairs(self._noted or []), self._copies, strict=False)
        noted = {key: copy for (key, _buffer), copy in pairs}
        mine = self._pairs((shelf, shelf) for shelf in self._shelves)
        now = {key: _without_repeats(buffer).detach() for key, buffer in mine}
        if not (self._selectable and _alike(noted, now)):
            if bool(flag):
                self.undo()
            return
        for key, copy in noted.items():
            buffer = now[key]  # maybe not the tensor that was noted: its value counts, in its new place
            buffer.copy_(torch.where(flag.to(buffer.device) != 0, copy, buffer))

    @contextmanager
    def as_noted(self) -> Iterator[None]:
        """The model with the values that its buffers had when they were noted, for the time of the block."""
        now = [(shelf, dict(shelf)) for shelf in self._shelves]
        copies = iter(self._copies)
        self._fill_shelves(
            (
                shelf,
                {name: None if buffer is None else _as_wide(next(copies), buffer) for name, buffer in content.items()},
            )
            for shelf, content in self._noted or []
        )
        try:
            yield
        finally:
            self._fill_shelves(now)

    @torch.no_grad()
    def _note(self) -> None:
        self._noted = [(shelf, dict(shelf)) for shelf in self._shelves if shelf]
        tensors = [buffer for _key, buffer in self._pairs(self._noted)]
        tensors = [_without_repeats(tensor) for tensor in tensors]
        tensors += [module.weight for module in self.rescaling]
        if not _alike(dict(enumerate(tensors)), dict(enumerate(self._copies))):
            self._copies = [torch.empty_like(tensor) for tensor in tensors]
            self._selectable = all(tensor.layout is torch.strided and not tensor.is_quantized for tensor in tensors)
        self._tensors = tensors
        if tensors:  # an InstanceNorm has buffers, and all are None
            torch._foreach_copy_(self._copies, tensors)

    def _fill_shelves(self, contents: Iterable[tuple[_Shelf, _Shelf]]) -> None:
        """Each shelf as given, the others empty; the shelves themselves stay, since the modules hold them."""
        given = {id(shelf): content for shelf, content in contents}
        for shelf in self._shelves:
            content = given.get(id(shelf), {})
            shelf.clear()
            shelf.update(content)

    @staticmethod
    def _pairs(contents: Iterable[tuple[_Shelf, _Shelf]]) -> Iterator[tuple[tuple[int, str], Tensor]]:
        for shelf, content in contents:
            for name, buffer in content.items():
                if buffer is not None:
                    yield (id(shelf), name), buffer


def _without_repeats(tensor: Tensor) -> Tensor:
    """All that an expanded tensor (a mask, say) holds in memory: torch writes to no element that shares its place."""
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return tensor
    return tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]


def _as_wide(copy: Tensor, buffer: Tensor) -> Tensor:
    return copy if _without_repeats(buffer) is buffer else copy.expand(buffer.shape)


def _alike(left: Mapping[_Key, Tensor], right: Mapping[_Key, Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        a.shape == right[key].shape and a.dtype == right[key].dtype and a.device == right[key].device
        for key, a in left.items()
    )
