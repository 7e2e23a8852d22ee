"""How long what stands beside the training (validations, callbacks) is left alone when it keeps failing."""

from __future__ import annotations

from failsoft.health.backoff import BackoffPolicy
from failsoft.health.monitor import HealthPolicy
from failsoft.training.loading.quarantine import QuarantinePolicy


def three_in_a_row() -> QuarantinePolicy:
    """A rest of a minute after three failures in a row, growing to an hour with each try that fails again."""
    health = HealthPolicy(window_size=50, min_samples=50, max_bad_fraction=0.5, max_consecutive_bad=3)
    return QuarantinePolicy(health=health, rest=BackoffPolicy(first_s=60.0, factor=3.0, cap_s=3600.0))
