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
    random.seed((seed << 128) + (position << 64) + first)  # mixes all of them; a SeedSequence takes three times as long
    torch.default_generator.manual_seed(random.getrandbits(32))  # torch.manual_seed sees to devices, too, for long
    np.random.seed(random.getrandbits(32))  # noqa: NPY002 -- foreign code draws from it
    try:
        yield
    finally:
        if held is not None:
            held.restore()
