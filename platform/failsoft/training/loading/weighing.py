"""What each sample of a batch counts, over all ranks: real ones equally, all others nothing.

The loss of a batch is the mean over its *real* samples, wherever they are. With DDP, which averages gradients over the
ranks, rank r's loss is the mean over its own real samples times ``real_r · world / Σ real``: then the average is the
gradient of the batch without the others, however unevenly they lie. The sum is one all-reduce of one number.
"""

# B rows of this rank's batch

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from failsoft.training.ranks import Ranks


@runtime_checkable
class Loads(Protocol):
    """A task that loads its samples, and may get fewer real ones than it asks for; ``loss`` of these follows."""

    def load_samples(self, position: int, indices: NDArray[np.int64], *, counted: bool) -> float:
        """Load these samples; returns what the real ones weigh in the mean: how many they are, or their tokens.

        0 where they are not ``counted``.

        ``loss(indices)`` afterwards is the mean over the real ones, 0 where there is none.
        """
        ...


def weighted_mean(losses_B: Tensor, weights_B: Tensor) -> Tensor:
    """Mean of the losses with a weight; 0, with a graph, where all weights are 0.

    A row of weight 0 adds nothing even if its loss is NaN; its *gradient* must be finite (0 · NaN is NaN), which copies
    of good samples grant.
    """
    weights_B = weights_B.to(losses_B.device, losses_B.dtype)
    kept_B = torch.where(weights_B > 0, losses_B * weights_B, torch.zeros_like(losses_B))
    return kept_B.sum() / weights_B.sum().clamp(min=1.0)


def rank_weight(ranks: Ranks, real: float) -> float | None:
    """What a rank's mean is multiplied with before DDP averages it; None when no rank has a real sample.

    All ranks call it together, once for each batch.

    Args:
        ranks: of the run.
        real: what the real samples of this rank weigh.
    """
    total = real
    if ranks.world > 1:
        total = ranks.sum_(torch.tensor([float(real)], dtype=torch.float64)).item()
    return real * ranks.world / total if total > 0.0 else None
