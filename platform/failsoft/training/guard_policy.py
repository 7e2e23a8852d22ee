"""What a guarded step must satisfy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from failsoft.errors import ConfigError
from failsoft.training.relief_policy import ReliefPolicy
from failsoft.training.spikes import SpikePolicy


@dataclass(frozen=True, kw_only=True)
class GuardPolicy:
    """What a step must satisfy."""

    max_grad_norm: float | None = 1.0
    """Clip the total gradient norm to this; None does not clip."""
    min_loss_scale: float = 1.0
    """The loss scale of a GradScaler never backs off below this."""
    autocast_dtype: torch.dtype | None = None
    """Run the forward pass under autocast to this type; None leaves that to the caller."""
    loss_spikes: SpikePolicy | None = None
    """Refuse a loss (mean over the ranks) far above its usual level; None does not look."""
    norm_spikes: SpikePolicy | None = None
    """The same for the gradient norm before clipping."""
    relief: ReliefPolicy | None = None
    """Lower the learning rate for a while after a refused step; None leaves it."""

    def __post_init__(self) -> None:
        """Refuse limits that no step could meet."""
        if self.max_grad_norm is not None and not 0.0 < self.max_grad_norm < math.inf:
            raise ConfigError(
                f"max_grad_norm is {self.max_grad_norm}; use a positive number, or None to leave norms as they are"
            )
        if not 0.0 < self.min_loss_scale < math.inf:
            raise ConfigError(
                f"min_loss_scale is {self.min_loss_scale}; a scale of 0 writes NaN into the weights, use 1.0 or so"
            )
