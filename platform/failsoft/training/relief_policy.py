"""How much lower the learning rate is after trouble, and for how long. Loads no torch, so that a config may hold it."""

from __future__ import annotations

from dataclasses import dataclass

from failsoft.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ReliefPolicy:
    """How much lower, and for how long."""

    factor_per_refusal: float = 0.5
    """Each refused step multiplies the learning rate by this; 1.0 leaves that to rollbacks alone."""
    min_factor: float = 0.05
    """The learning rate is never lowered below this share of its schedule."""
    recovery_steps: int = 200
    """Applied steps until the full rate is back, in equal steps from where it was lowered to."""

    def __post_init__(self) -> None:
        """Refuse factors that raise or stop the learning."""
        if not 0.0 < self.factor_per_refusal <= 1.0:
            raise ConfigError(f"factor_per_refusal is {self.factor_per_refusal}; use a share above 0 and up to 1")
        if not 0.0 < self.min_factor <= 1.0:
            raise ConfigError(f"min_factor is {self.min_factor}; use a share above 0 and up to 1")
        if self.recovery_steps < 1:
            raise ConfigError(f"recovery_steps is {self.recovery_steps}; use 1 or more")
