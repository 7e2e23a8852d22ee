from __future__ import annotations

from typing import Any

from failsoft.training.degradation import Degradations
from failsoft.training.lower_rate import LowerRate
from failsoft.training.relief import Relief, ReliefPolicy


def test_a_lower_rate_is_told_when_it_falls_and_when_it_is_over_and_not_while_it_rises() -> None:
    told: list[tuple[str, Any]] = []
    relief = Relief(ReliefPolicy(recovery_steps=10))
    rate = LowerRate(relief, Degradations(lambda kind, why, **data: told.append((kind, data.get("factor")))))
    rate.look()
    for factor in (0.5, 0.5):
        relief.lower(factor)
        rate.look()
        rate.look()
    for _ in range(12):
        relief.applied()
        rate.look()
    assert told == [("degradation_began", 0.5), ("degradation_changed", 0.25), ("degradation_ended", None)]
    relief.lower(0.5)
    rate.look()
    assert told[-1] == ("degradation_began", 0.5)
