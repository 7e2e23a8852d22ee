"""A batch in pieces whose gradients add up to the whole one's, and what a task may say about itself for that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from failsoft.errors import ConfigError

Indices = NDArray[np.int64]
Weigh = Callable[[Indices], float]
"""What a set of samples counts in the mean that the loss is."""


@runtime_checkable
class TaskWeighs(Protocol):
    """A task whose loss is no mean over samples, but over tokens, say. Optional.

    With it the gradient of a global batch is that of the mean over *all* its tokens, however the batch is cut into
    ranks and micro-batches; without it a micro-batch of few tokens would count as much as one of many.
    """

    def weight(self, indices: Indices) -> float:
        """The denominator of ``loss`` over these samples: how many tokens count in it; 0 or more.

        Must add up: the weight of two sets together is the sum of their weights. Asked for all samples of a global
        batch on each rank, so it should look at lengths, and not read the samples.
        """
        ...


@runtime_checkable
class AddsUp(Protocol):
    """A task whose loss is a sum of means over different things, over texts and over words, say. Optional.

    One weight can't divide such a loss; it goes before ``weight`` where a task has both.
    """

    def partial_loss(self, piece: Indices, whole: Indices) -> Tensor:
        """What some samples add to ``loss(whole)``: over pieces that make up ``whole`` it adds up to it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Distortion:
    """What a capped input changes about what is learnt."""

    said: str
    """Like "sequences are cut to 256 tokens, which shortens 12 % of them"."""
    fraction: float | None = None
    """Share of samples that are changed, where known."""


@runtime_checkable
class Shrinks(Protocol):
    """A task that can make its input smaller: shorter sequences, a lower resolution. Optional."""

    shrink_levels: int
    """How many times it can; level 0 is the full size."""

    def shrink(self, level: int) -> Distortion:
        """From the next ``loss`` on, work at this level; all ranks are told the same."""
        ...


def weigher(task: object) -> Weigh:
    """How a task weighs samples: by its own word, else each alike."""
    if isinstance(task, TaskWeighs):
        return task.weight
    return len


def cut(samples: Indices, size: int, *, least: int = 1) -> list[Indices]:
    """Pieces of ``size`` samples, in order; the last is smaller, or larger where it would have fewer than ``least``."""
    if size < 1:
        raise ConfigError(f"size is {size}; a micro-batch holds at least one sample")
    starts = [at for at in range(0, len(samples), size) if not at or len(samples) - at >= least]
    return [samples[at:end] for at, end in zip(starts, [*starts[1:], len(samples)], strict=True)]


def least_piece(model: nn.Module) -> int:
    """Samples that a pass needs: batch norm over features alone has no variance of one."""
    return 2 if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()) else 1


def piece_size(largest_share: int, micro_batches: int) -> int:
    """Samples of a micro-batch when a full share is cut into so many."""
    return max(1, -(-largest_share // micro_batches))


def shares_of(pieces: Sequence[Indices], weigh: Weigh) -> list[float]:
    """Each piece's share of the whole, adding up to 1; where nothing weighs anything, equal shares."""
    weights = [_checked(weigh(piece)) for piece in pieces]
    total = math.fsum(weights)
    if not total > 0.0:
        return [1.0 / len(pieces)] * len(pieces)
    return [weight / total for weight in weights]


def that_count(pieces: Sequence[Indices], shares: Sequence[float]) -> list[tuple[Indices, float]]:
    """Pieces with a share; the mean over no token at all is NaN, and NaN times a share of 0 is NaN, too."""
    return [(piece, share) for piece, share in zip(pieces, shares, strict=True) if share > 0.0]


def rank_weight(mine: Indices, whole: Indices, world: int, weigh: Weigh) -> float | None:
    """What makes the mean over ranks (DDP's) the mean over the whole batch; 1.0 where all ranks weigh the same.

    None where nothing of the batch counts.
    """
    total = _checked(weigh(whole))
    return _checked(weigh(mine)) * world / total if total > 0.0 else None


def distortions(model: nn.Module) -> list[str]:
    """What is not the same about a batch in pieces, for this model, although its gradients add up."""
    modules = list(model.modules())
    said = []
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in modules):
        said.append("batch norm takes its statistics from each micro-batch, so the gradient is not quite the batch's")
    if any(isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in modules):
        said.append("dropout draws other masks than for the whole batch, of the same distribution")
    return said


def _checked(weight: float) -> float:
    if not 0.0 <= weight < math.inf:
        raise ConfigError(f"the task weighs samples as {weight}; return how many tokens count in the loss, 0 or more")
    return float(weight)
