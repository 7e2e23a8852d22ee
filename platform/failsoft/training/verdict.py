"""The verdict on one step, from nothing but its numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from failsoft.errors import ConfigError


class Refusal(StrEnum):
    """Why a step was refused."""

    LOSS = "loss is not finite"
    GRADIENT = "gradient is not finite"
    OVERFLOW = "gradient is finite, but its norm overflows"
    ELSEWHERE = "another rank refused"
    LOSS_SPIKE = "loss is far above its usual level"
    GRADIENT_SPIKE = "gradient norm is far above its usual level"
    OUT_OF_MEMORY = "out of memory on every rung"
    """The batch did not fit, however small its pieces; says nothing about its numbers."""
    NO_SAMPLE = "not one real sample on any rank"
    """All were bad or out of reach; says nothing about the state, so no way back would help."""


SPIKES = frozenset({Refusal.LOSS_SPIKE, Refusal.GRADIENT_SPIKE})
"""Refusals of finite numbers; the loss scale is not to blame for them."""


class StepOutcome(NamedTuple):
    """How one step ended. Not a dataclass: one is made at every step, and this is four times as fast."""

    position: int
    sample_ids: tuple[int, ...]
    rank: int
    refusal: Refusal | None
    loss: float
    """This rank's own loss."""
    mean_loss: float
    """Mean over the ranks; not finite when any of them is not."""
    grad_norm: float
    """Total norm before clipping, unscaled."""
    bad_tensor: str | None = None
    """First parameter whose gradient is not finite (the largest gradient when only the norm is too large)."""
    why: str = ""
    """What a spike was measured against, in words."""

    @property
    def applied(self) -> bool:
        """Whether the update happened."""
        return self.refusal is None


def plain_ids(sample_ids: Sequence[int]) -> tuple[int, ...]:
    """Ids of samples as plain numbers, from any list of numbers, arrays and tensors among them.

    Raises:
        ConfigError: they are none.
    """
    try:
        if not len(sample_ids):
            return ()
        in_bulk = getattr(sample_ids, "tolist", None)  # of a tensor, each number alone would wait for the device
        return tuple(map(int, sample_ids if in_bulk is None else in_bulk()))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"sample_ids is no list of whole numbers ({error}); give one number for each sample of this rank, such as "
            "its index in the dataset"
        ) from error


class Reading(NamedTuple):
    """The numbers that one step needs on the host."""

    loss: float
    norm: float
    mean_loss: float
    mean_norm: float


class Limits(NamedTuple):
    """Above these, finite numbers are spikes. The largest float where nobody looks or too little is known."""

    loss: float = sys.float_info.max
    norm: float = sys.float_info.max


def judge(reading: Reading, limits: Limits) -> Refusal | None:
    """From the numbers that all ranks share, whether the step is refused; from this rank's own, what to call it."""
    if -sys.float_info.max <= reading.mean_loss <= limits.loss and reading.mean_norm <= limits.norm:
        return None  # NaN and Inf are above every limit, so a good step is told by comparisons alone
    if math.isfinite(reading.mean_loss) and math.isfinite(reading.mean_norm):
        return Refusal.GRADIENT_SPIKE if reading.mean_loss <= limits.loss else Refusal.LOSS_SPIKE
    if not math.isfinite(reading.loss):
        return Refusal.LOSS
    return Refusal.ELSEWHERE if math.isfinite(reading.norm) else Refusal.GRADIENT
