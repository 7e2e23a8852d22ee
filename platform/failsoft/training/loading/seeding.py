"""The global generators of a process that loads, seeded anew for each batch: foreign code draws from them.

Keyed by the batch and not by the worker, so that a run with another number of workers, or one that goes on after a
restart, draws what the undisturbed one draws.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch.utils.data import get_worker_info

from failsoft.training.rng import HeldRng


@contextmanager
def seeded(seed: int, position: int, first: int) -> Iterator[None]:
    """Within the block torch (CPU), numpy and ``random`` draw what belongs to this batch.

    In a worker they stay so: the next batch seeds anew. In the training's own process they are put back.

    Args:
        seed: of the run.
        position: of the batch.
        first: its first sample on this rank, which tells ranks apart.
    """
    held = HeldRng.take() if get_worker_info() is None else None
    words = np.random.SeedSequence([seed, position, first]).generate_state(3, np.uint32).tolist()
    torch.default_generator.manual_seed(words[0])  # torch.manual_seed sees to devices, too: a hundred times the time
    np.random.seed(words[1])  # noqa: NPY002 -- foreign code draws from it
    random.seed(words[2])
    try:
        yield
    finally:
        if held is not None:
            held.restore()
