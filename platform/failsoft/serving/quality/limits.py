"""Two limits of a confidence: under the one an answer counts against its model, under the other nobody gets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from failsoft.errors import ConfigError
from failsoft.health.window import Outcome
from failsoft.serving.defence import REAL
from failsoft.serving.seam import Judged


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a confidence must reach."""

    low_confidence: float = 0.65
    """Below it an answer is weak; the model is watched by it."""
    cutoff_confidence: float = 0.50
    """Below it this caller gets the fallback instead."""

    def __post_init__(self) -> None:
        """Refuse limits that everything or nothing can pass."""
        if not 0.0 <= self.cutoff_confidence <= self.low_confidence <= 1.0:
            raise ConfigError(
                f"cutoff_confidence is {self.cutoff_confidence} and low_confidence {self.low_confidence}; use 0 <= "
                "cutoff <= low <= 1, such as 0.50 and 0.65"
            )

    def judged(self, output: Any, confidence: float, *, fault: str = "") -> Judged:
        """An answer against the limits.

        Args:
            output: the answer.
            confidence: 0 to 1; NaN passes no limit.
            fault: what else is wrong with it, for which nobody may have it; empty when nothing is.
        """
        low = not confidence >= self.low_confidence
        reason = fault or (f"confidence {confidence:.2f} is below {self.low_confidence:.2f}" if low else "")
        return Judged(
            output=output,
            confidence=confidence,
            outcome=Outcome.WEAK if reason else Outcome.GOOD,
            usable=not fault and confidence >= self.cutoff_confidence,
            reason=reason,
        )


def numbers(scores: Any, *, rows: int, ndim: int) -> NDArray[np.float64] | None:
    """Scores as float64 with ``rows`` rows and ``ndim`` axes; None when they are anything else."""
    try:
        given = np.asarray(scores)
        array = given.astype(np.float64) if given.dtype.kind in REAL else None
    except (TypeError, ValueError, OverflowError):  # ragged, or objects that are no numbers
        return None
    return array if array is not None and array.ndim == ndim and array.shape[0] == rows else None
