"""A look at a model that leaves nothing behind, whatever happens during it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from failsoft.training.rng import HeldRng
from failsoft.training.traces import Traces


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, without gradients, within the block; afterwards exactly as before, also after an error.

    Each module gets its own mode back (a frozen BatchNorm stays in eval mode). Buffers and embeddings with a
    ``max_norm`` are put back, too, and so are ``requires_grad``, ``.grad`` and all global generators: a run with a look
    now and then is the run without, to the bit. Parameters that the block replaces or casts (``model.half()``, averaged
    weights swapped in by ``parameter.data = …``) are put back. Their values are not copied: it must not write to them.

    Args:
        model: bare. A forward pass through DDP's wrapper is a collective, and ranks that need another number of passes
            than their fellows would wait for ever.
    """
    modes = [(module, module.training) for module in model.modules()]
    shelves = [(module._parameters, dict(module._parameters)) for module, _training in modes]
    parameters = [(one, one.requires_grad, one.grad) for one in model.parameters()]
    values = [(one, one.data) for owner, _learns, grad in parameters for one in (owner, grad) if one is not None]
    traces, generators = Traces(model), HeldRng.take()
    traces.remember()
    try:
        with torch.no_grad():
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training
        for shelf, content in shelves:
            shelf.clear()
            shelf.update(content)
        for parameter, _learns, _grad in parameters:
            parameter.grad = None  # while either is of another type, one would not fit the other
        for tensor, value in values:
            if not _is(tensor, value):
                tensor.data = value
        for parameter, learns, grad in parameters:
            parameter.requires_grad_(learns)
            parameter.grad = grad
        traces.undo()
        generators.restore()


def _is(tensor: Tensor, value: Tensor) -> bool:
    """Whether a tensor still holds the memory that it had; a sparse one has no place to ask for."""
    same = tensor.dtype == value.dtype and tensor.device == value.device
    return same and (tensor.layout is not torch.strided or tensor.data_ptr() == value.data_ptr())
