"""Runs a dead batch again on a copy of a model, in some precision, and says whether it is bad; nothing is applied."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from failsoft.training.letters.diagnosis import Seen
from failsoft.training.letters.fingerprints import device_of
from failsoft.training.letters.precision import Noticing, Precision, computing, in_precision

Loss = Callable[[nn.Module, NDArray[np.int64]], Tensor]
"""Mean loss over some samples through a model."""
FOREIGN = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError)
"""What a task's own code may raise when it is asked for something that it can't do (any more)."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One rank's part of a global batch."""

    indices: NDArray[np.int64]
    weight: float = 1.0
    """Of its loss in the batch's loss; the weights of all ranks' shares add up to 1."""
    draw: Callable[[], object] = lambda: None
    """Sets the generators before the forward pass."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is bad beside numbers that are not finite: what the run's spike gates said at that time."""

    loss: float = math.inf
    grad_norm: float = math.inf


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How one try went."""

    name: str
    seen: Seen
    loss: float | None = None
    """None when not finite, or when it could not be tried."""
    grad_norm: float | None = None
    bad_tensor: str | None = None
    why: str = ""

    def as_data(self) -> dict[str, Any]:
        """Plain JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Tries batches in one setting."""

    loss: Loss
    autocast_dtype: torch.dtype | None = None
    loss_scale: float = 1.0
    """What a GradScaler multiplied the loss by; counts as trained only."""

    def run(
        self,
        name: str,
        model: nn.Module,
        shares: Sequence[Share],
        *,
        how: Precision = Precision.AS_TRAINED,
        limits: Limits | None = None,
    ) -> Trial:
        """Try once.

        Args:
            name: of the trial.
            model: stays as it is; a copy is run.
            shares: the global batch, rank by rank.
            how: in which precision.
            limits: of spikes.

        Returns:
            The trial; *unknown* with the reason when foreign code or the device can't do this.
        """
        twin = in_precision(model, how)
        try:
            loss, norm, bad = self._passes(twin, shares, how)
        except FOREIGN as error:
            return Trial(name=name, seen=Seen.UNKNOWN, why=f"{type(error).__name__}: {str(error)[:200]}")
        why = verdict(loss, norm, bad, limits or Limits())
        return Trial(
            name=name,
            seen=Seen.BAD if why else Seen.FINE,
            loss=loss if math.isfinite(loss) else None,
            grad_norm=norm if math.isfinite(norm) else None,
            bad_tensor=bad,
            why=why,
        )

    def computes_low(self, model: nn.Module, shares: Sequence[Share]) -> bool:
        """Whether the task computes below float32 of its own accord: by casts, or by an autocast inside its loss."""
        twin, noticing = in_precision(model, Precision.AS_TRAINED), Noticing()
        with suppress(*FOREIGN), noticing:
            self._passes(twin, shares, Precision.AS_TRAINED)
        return noticing.low

    def _passes(self, twin: nn.Module, shares: Sequence[Share], how: Precision) -> tuple[float, float, str | None]:
        """Forward and backward of all shares: loss, norm, and the first parameter whose gradient is not finite."""
        scale = self.loss_scale if how is Precision.AS_TRAINED else 1.0
        total = 0.0
        for share in shares:
            share.draw()
            with computing(how, device_of(twin), self.autocast_dtype):
                loss = self.loss(twin, share.indices) * share.weight
            (loss * scale).backward()  # type: ignore[no-untyped-call]  # torch leaves this one untyped
            total += float(loss.detach().double())
        grads = {name: p.grad / scale for name, p in twin.named_parameters() if p.grad is not None}
        norm = float(get_total_norm(list(grads.values())))
        bad = None
        if not math.isfinite(norm):
            bad = next((name for name, grad in grads.items() if not bool(torch.isfinite(grad).all())), None)
        return total, norm, bad


def verdict(loss: float, norm: float, bad_tensor: str | None, limits: Limits) -> str:
    """What is bad about these numbers, in words; empty when nothing is."""
    if not math.isfinite(loss):
        return "loss is not finite"
    if not math.isfinite(norm):
        return "gradient is finite, but its norm overflows" if bad_tensor is None else "gradient is not finite"
    if not loss <= limits.loss:
        return f"loss {loss:.4g} is above {limits.loss:.4g}"
    if not norm <= limits.grad_norm:
        return f"gradient norm {norm:.4g} is above {limits.grad_norm:.4g}"
    return ""
