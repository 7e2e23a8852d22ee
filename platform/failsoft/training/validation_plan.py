"""How often a run looks at its model on samples that it does not learn from, and how patient it is with that."""

from __future__ import annotations

from dataclasses import dataclass, field

from failsoft.errors import ConfigError
from failsoft.health.backoff import BackoffPolicy
from failsoft.training.loading.quarantine import QuarantinePolicy
from failsoft.training.resting import three_in_a_row


@dataclass(frozen=True, kw_only=True)
class ValidationPlan:
    """How often, and how."""

    every_steps: int | None = None
    """Applied steps between two looks; None: not by steps."""
    at_epoch_end: bool = False
    """Also look when an epoch is over."""
    batch: int = 256
    """Samples at a time on each rank."""
    halvings: int = 2
    """How often a look may halve that before it is given up."""
    rest: QuarantinePolicy = field(default_factory=three_in_a_row)
    """When looks that fail are left out for a while."""
    after_death: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(first_s=600.0, factor=3.0, cap_s=86_400.0))
    """Rest after a look that took its worker down, by how often in a row that happened."""

    def __post_init__(self) -> None:
        """Refuse looks that never come or hold nothing."""
        if self.every_steps is not None and self.every_steps < 1:
            raise ConfigError(f"every_steps is {self.every_steps}; use 1 or more, or None to go by epochs alone")
        if self.batch < 1:
            raise ConfigError(f"batch is {self.batch}; a look takes at least one sample at a time")
        if self.halvings < 0:
            raise ConfigError(f"halvings is {self.halvings}; use 0 to give up at once, or 2 or so")

    @property
    def looks(self) -> bool:
        """Whether there is any look at all."""
        return self.every_steps is not None or self.at_epoch_end
