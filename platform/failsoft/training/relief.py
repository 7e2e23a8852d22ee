"""A lower learning rate for a while after trouble, beside whatever schedule the run has.

The factor multiplies the groups' ``lr`` around ``optimizer.step()`` only and is taken out again, so schedulers that
work from the current rate (ExponentialLR, CosineAnnealingLR) never see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.optim import Optimizer

from failsoft.errors import ConfigError
from failsoft.training.relief_policy import ReliefPolicy

__all__ = ["Relief", "ReliefPolicy", "at_share_of_rate"]


class Relief:
    """The factor now. 1.0 until something lowers it."""

    def __init__(self, policy: ReliefPolicy | None = None) -> None:
        self.policy = policy or ReliefPolicy(factor_per_refusal=1.0)
        self._per_refusal = self.policy.factor_per_refusal
        self.factor = 1.0
        self._rise = 0.0

    def refused(self) -> None:
        """A step was refused."""
        if self._per_refusal < 1.0:
            self.lower(self._per_refusal)

    def lower(self, factor: float) -> None:
        """Multiply the learning rate by ``factor`` (above 0, up to 1) from the next step on, down to the floor."""
        if not 0.0 < factor <= 1.0:
            raise ConfigError(f"factor is {factor}; a relief lowers the learning rate, use a share above 0 and up to 1")
        self.factor = max(self.factor * factor, self.policy.min_factor)
        self._rise = (1.0 - self.factor) / self.policy.recovery_steps

    def applied(self) -> None:
        """A step was applied: one step closer to the full rate."""
        if self.factor < 1.0:
            risen = self.factor + self._rise
            self.factor = 1.0 if risen > 1.0 - 1e-9 else risen

    def lowered(self, optimizer: Optimizer) -> AbstractContextManager[None]:
        """The optimizer at the lowered rate, for the time of the block."""
        return at_share_of_rate(optimizer, self.factor)

    def state_dict(self) -> dict[str, Any]:
        """Factor and pace of recovery."""
        return {"factor": self.factor, "rise": self._rise}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of a checkpoint on."""
        self.factor, self._rise = float(state_dict["factor"]), float(state_dict["rise"])


@contextmanager
def at_share_of_rate(optimizer: Optimizer, share: float) -> Iterator[None]:
    """The optimizer at a share of its learning rate for the time of the block; groups that find their own keep it."""
    rated = [(group, group["lr"]) for group in optimizer.param_groups if group.get("lr") is not None]
    for group, rate in rated:
        group["lr"] = rate * share  # a rate that is a tensor is replaced, not changed
    try:
        yield
    finally:
        for group, rate in rated:
            group["lr"] = rate
