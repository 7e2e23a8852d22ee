"""The soak's training as a plain loop in one process: no loader, no ranks, no nets. The measure of a clean run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LinearLR

from failsoft.training.batches import GlobalBatches
from tests.drills.soak_data import GLOBAL_BATCH, Sample, SmallReader, Texts, bytes_of, decoded

Spoil = Callable[[int, NDArray[np.int64], Sample], Sample]
"""What becomes of the batch at a position; a copy is changed, not the data."""


def model_of(texts: Texts, seed: int, total: int) -> tuple[SmallReader, AdamW, LinearLR]:
    """What each run of this seed begins with, and its schedule."""
    torch.manual_seed(seed)
    model = SmallReader(texts)
    optimizer = AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    return model, optimizer, LinearLR(optimizer, start_factor=1.0, end_factor=0.01, total_iters=total)


def judged(model: nn.Module, texts: Texts) -> float:
    """Mean loss over the validation split."""
    with torch.no_grad():
        losses_B: Tensor = model(texts.judged)
    return losses_B.double().mean().item()


@dataclass(kw_only=True)
class PlainRuns:
    """Runs of several seeds over the same samples."""

    texts: Texts
    total: int

    def __post_init__(self) -> None:
        every = [decoded(bytes_of(self.texts.train, index)) for index in range(len(self.texts.train))]
        self._all: Sample = {name: torch.stack([sample[name] for sample in every]) for name in every[0]}

    def loss(self, seed: int, *, spoil: Spoil | None = None) -> float:
        """What a run of this seed ends with on the validation split."""
        model, optimizer, scheduler = model_of(self.texts, seed, self.total)
        batches = GlobalBatches(num_samples=len(self.texts.train), global_batch=GLOBAL_BATCH, seed=seed)
        for position in range(self.total):
            indices = batches.global_indices(position)
            batch = {name: values[torch.from_numpy(indices)] for name, values in self._all.items()}
            batch = batch if spoil is None else spoil(position, indices, batch)
            optimizer.zero_grad()
            model(batch).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        return judged(model, self.texts)
