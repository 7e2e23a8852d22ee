"""Says when the learning rate is relieved, how far, and when the full rate is back."""

from __future__ import annotations

from failsoft.training.degradation import Degradation, DegradationKind, Degradations
from failsoft.training.relief import Relief


class LowerRate:
    """Looks at a relief after each batch; tells when it is lowered (further), and when it is over.

    Its slow rise is told by its end alone.
    """

    def __init__(self, relief: Relief, degradations: Degradations) -> None:
        self._relief = relief
        self._degradations = degradations
        self._lowest = 1.0

    def look(self) -> None:
        """Costs a comparison while the rate is full."""
        factor = self._relief.factor
        if factor < self._lowest:
            self._lowest = factor
            self._degradations.began(_lowered(factor, self._relief.policy.recovery_steps))
        elif factor >= 1.0 and self._lowest < 1.0:
            self._lowest = 1.0
            self._degradations.ended(DegradationKind.LOWER_RATE, why="the full rate is back")


def _lowered(factor: float, steps: int) -> Degradation:
    return Degradation(
        kind=DegradationKind.LOWER_RATE,
        cause="refused steps or a rollback",
        level=f"{factor:.3g} of the rate",
        cost="slower learning",
        way_back=f"rises to the full rate over {steps} applied steps",
        details={"factor": factor},
    )
