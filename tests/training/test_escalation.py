from __future__ import annotations

import pytest

from failsoft.errors import ConfigError
from failsoft.training.escalation import EscalationPolicy, Remedy, Tried, next_remedy


def test_each_remedy_is_tried_once_in_order_and_then_the_run_stops() -> None:
    policy, history, said = EscalationPolicy(), list[Tried](), list[Remedy]()
    for position in range(5):
        said.append(next_remedy(history, policy))
        history.append(Tried(remedy=said[-1], position=position, why="five in a row"))
    assert said == [Remedy.SNAPSHOT, Remedy.SNAPSHOT_SLOWER, Remedy.DISK, Remedy.STOP, Remedy.STOP]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ladder": ()}, "name the remedies"),
        ({"ladder": (Remedy.STOP,)}, "name the remedies"),
        ({"settled_after_steps": 0}, "settled_after_steps is 0"),
        ({"lower_rate_factor": 1.5}, "lower_rate_factor is 1.5"),
        ({"lower_rate_factor": float("nan")}, "lower_rate_factor is nan"),
    ],
)
def test_a_ladder_that_leads_nowhere_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EscalationPolicy(**wrong)  # type: ignore[arg-type]
