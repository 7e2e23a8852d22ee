"""How a request's time is shared out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.serving.config import GatewayConfig
from failsoft.serving.visit import Budget

CONFIG = GatewayConfig(deadline_ms=250.0, ladder_reserve_ms=10.0, previous_share=0.2, max_deadline_ms=1_000.0)


def budget(caller_ms: float | None = None, *, with_previous: bool = False) -> Budget:
    return Budget.of(CONFIG, began_s=100.0, caller_ms=caller_ms, with_previous=with_previous)


def test_the_model_gets_what_the_ladder_does_not_need() -> None:
    assert budget().for_model(100.0).left_s == pytest.approx(0.240)
    assert budget().for_model(100.1).left_s == pytest.approx(0.140)


def test_a_previous_release_is_kept_its_share_of_time_after_the_models() -> None:
    shared = budget(with_previous=True)
    assert shared.for_model(100.0).left_s == pytest.approx(0.192)
    assert shared.for_previous(100.192).left_s == pytest.approx(0.048)
    assert shared.for_previous(100.0).left_s == pytest.approx(0.240)


@pytest.mark.parametrize(
    ("caller_ms", "deadline_s", "by_caller"),
    [(None, 0.25, False), (80.0, 0.08, True), (600.0, 0.6, False), (9e9, 1.0, False), (-1.0, 0.0, True)],
)
def test_a_caller_may_wait_shorter_or_longer_up_to_a_bound(
    caller_ms: float | None, deadline_s: float, by_caller: bool
) -> None:
    given_time = budget(caller_ms)
    assert given_time.deadline_s == pytest.approx(deadline_s)
    assert given_time.by_caller is by_caller


@given(st.one_of(st.none(), st.floats()), st.booleans(), st.floats(0.0, 10.0))
def test_no_call_ever_has_more_than_the_deadline_less_the_ladders_share(
    caller_ms: float | None, with_previous: bool, later_s: float
) -> None:
    shared = budget(caller_ms, with_previous=with_previous)
    assert 0.0 <= shared.deadline_s <= 1.0
    for allowance in (shared.for_model(100.0 + later_s), shared.for_previous(100.0 + later_s)):
        assert allowance.left_s <= max(0.0, shared.deadline_s - 0.010) - later_s + 1e-9


@pytest.mark.parametrize(
    ("field", "value"),
    [("deadline_ms", math.nan), ("max_deadline_ms", math.inf), ("previous_share", 0.6), ("previous_share", math.nan)],
)
def test_a_budget_that_leaves_somebody_no_time_is_refused(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        GatewayConfig(**{field: value})  # type: ignore[arg-type]  # the wrong values are the point
