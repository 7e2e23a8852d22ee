"""What the memory net is given for one step, and how several updates of one batch are one outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from failsoft.training.memory.micro_batches import Indices
from failsoft.training.verdict import Refusal, StepOutcome


class PartialLoss(Protocol):
    """As :meth:`AddsUp.partial_loss`."""

    def __call__(self, piece: Indices, whole: Indices) -> Tensor:
        """What the piece adds to the loss over ``whole``."""
        ...


class Batch(NamedTuple):
    """One global batch, seen from one rank. Not a dataclass: one is made at every step."""

    position: int
    whole: Indices
    """Samples of all ranks, at least one."""
    loss: Callable[[Indices], Tensor]
    """Mean loss over some of this rank's samples (at least one)."""
    partial_loss: PartialLoss | None = None
    """What a piece adds to the loss over all; for a task that knows (:class:`AddsUp`)."""
    weight: float | None = None
    """What makes the mean over ranks the mean over the whole batch, where the caller knows; see ``weight_of``."""
    share: Callable[[Indices], Indices] | None = None
    """This rank's part of some of the batch's samples; None: every ``world``-th."""


def nothing_real(batch: Batch, mine: Indices, rank: int) -> StepOutcome:
    """No rank has a sample that counts: there is nothing to apply."""
    return _numberless(batch, mine, rank, Refusal.NO_SAMPLE)


def given_up(batch: Batch, mine: Indices, rank: int, why: str) -> StepOutcome:
    """It did not fit, however small its pieces."""
    return _numberless(batch, mine, rank, Refusal.OUT_OF_MEMORY)._replace(why=why)


def _numberless(batch: Batch, mine: Indices, rank: int, refusal: Refusal) -> StepOutcome:
    nan = math.nan
    return StepOutcome(batch.position, tuple(mine.tolist()), rank, refusal, nan, nan, nan)


def combined(parts: Sequence[StepOutcome], ids: Sequence[int]) -> StepOutcome:
    """Several updates of one batch as one outcome; refused if any part is, and then it says how many were not."""
    real = [part for part in parts if part.refusal is not Refusal.NO_SAMPLE]
    parts = real or parts  # a part that no rank has a sample of is nothing to apply
    refused = next((part for part in parts if part.refusal is not None), None)
    applied = [part for part in parts if part.refusal is None]
    if refused is not None:
        why = (
            f"{len(applied)} of {len(parts)} parts of the batch were applied{'; ' if refused.why else ''}{refused.why}"
        )
        return refused._replace(sample_ids=tuple(ids), why=why)
    total = sum(len(part.sample_ids) for part in parts) or 1
    loss = sum(part.loss * len(part.sample_ids) for part in parts) / total
    mean = sum(part.mean_loss for part in parts) / len(parts)
    return parts[-1]._replace(sample_ids=tuple(ids), loss=loss, mean_loss=mean)
