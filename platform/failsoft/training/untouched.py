"""A look at a model that leaves nothing behind, whatever happens during it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from failsoft.training.rng import HeldRng
from failsoft.training.traces import Traces


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """The model in eval mode, without gradients, within the block; afterwards exactly as before, also after an error.

    Each module gets its own mode back (a frozen BatchNorm stays in eval mode). Buffers and embeddings with a
    ``max_norm`` are put back, too, and so are ``requires_grad``, ``.grad`` and all global generators: a run with a look
    now and then is the run without, to the bit. Parameters themselves are not copied: the block must not write to them.

    Args:
        model: bare. A forward pass through DDP's wrapper is a collective, and ranks that need another number of passes
            than their fellows would wait for ever.
    """
    modes = [(module, module.training) for module in model.modules()]
    parameters = [(one, one.requires_grad, one.grad) for one in model.parameters()]
    traces, generators = Traces(model), HeldRng.take()
    traces.remember()
    try:
        with torch.no_grad():
            model.eval()
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, learns, grad in parameters:
            parameter.requires_grad_(learns)
            parameter.grad = grad
        traces.undo()
        generators.restore()
