"""How far two models' answers lie apart: the Kullback-Leibler divergence of their distributions."""
# B texts (or words), C classes

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from failsoft.errors import ConfigError
from failsoft.release.spread import Floats


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """KL(reference ‖ other) in nats over some distributions; NaN where a distribution is not finite."""

    mean: float
    maximum: float
    count: int


def divergence(reference_BC: Floats, other_BC: Floats) -> Divergence:
    """KL(reference ‖ other), from log probabilities of the same inputs over the same classes.

    Raises:
        ConfigError: the shapes differ.
    """
    if reference_BC.shape != other_BC.shape:
        raise ConfigError(
            f"answers of shape {reference_BC.shape} and {other_BC.shape} can't be compared; same inputs, same classes"
        )
    if not len(reference_BC):
        return Divergence(mean=np.nan, maximum=np.nan, count=0)
    with np.errstate(invalid="ignore"):  # inf - inf stays NaN, which no gate passes
        kl_B = (np.exp(reference_BC) * (reference_BC - other_BC)).sum(axis=1)
    return Divergence(mean=float(kl_B.mean()), maximum=float(kl_B.max()), count=len(kl_B))
