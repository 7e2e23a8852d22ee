from __future__ import annotations

from itertools import product

import pytest

from failsoft.errors import ConfigError, IllegalMoveError
from failsoft.health.lifecycle import Lifecycle
from failsoft.health.monitor import HealthPolicy
from failsoft.training.breaker import MOVES, Advice, Breaker, BreakerPolicy, RunState


def fed(breaker: Breaker, steps: str) -> Advice:
    """Feed a good step for each ``.`` and a refused one for each ``x``; the last advice."""
    advice = Advice.GO_ON
    for step in steps:
        advice, _ = breaker.record(applied=step == ".")
    return advice


def test_five_refusals_in_a_row_call_for_a_rollback_and_four_do_not() -> None:
    assert fed(Breaker(BreakerPolicy()), "..xxxx") is Advice.GO_ON
    assert fed(Breaker(BreakerPolicy()), "..xxxxx") is Advice.ROLL_BACK


def test_a_good_step_ends_the_streak() -> None:
    assert fed(Breaker(BreakerPolicy()), "xxxx.xxxx") is Advice.GO_ON


def test_rollbacks_without_a_good_step_between_them_stop_the_run() -> None:
    breaker = Breaker(BreakerPolicy(max_fruitless_rollbacks=2))
    for _ in range(2):
        assert fed(breaker, "xxxxx") is Advice.ROLL_BACK
        breaker.rolled_back()
    assert fed(breaker, "xxxxx") is Advice.STOP_STUCK


def test_a_good_step_after_a_rollback_renews_the_patience() -> None:
    breaker = Breaker(BreakerPolicy(max_fruitless_rollbacks=1))
    for _ in range(4):
        assert fed(breaker, "." * 40 + "xxxxx") is Advice.ROLL_BACK
        breaker.rolled_back()
    assert breaker.rollbacks == 4


def test_a_burst_that_was_rolled_back_is_one_incident_in_the_drop_rate() -> None:
    breaker = Breaker(BreakerPolicy())
    fed(breaker, "...xxxxx")
    breaker.rolled_back()
    fed(breaker, "..x.")
    assert breaker.refused == 6
    assert (breaker.drop_rate.bad, breaker.drop_rate.total) == (2, 8)


def test_a_short_run_is_not_stopped_by_the_drop_rate_but_by_a_fifth_of_recent_steps() -> None:
    assert fed(Breaker(BreakerPolicy()), ("." * 49 + "x") * 6) is Advice.GO_ON  # 2 % of 300: far above 0.1 %, but young
    assert fed(Breaker(BreakerPolicy()), "..x" * 40) is Advice.STOP_DROP_RATE


@pytest.mark.parametrize(
    ("bad", "advice", "warning"),
    [(0, Advice.GO_ON, False), (3, Advice.GO_ON, True), (20, Advice.GO_ON, True), (60, Advice.STOP_DROP_RATE, True)],
)
def test_the_drop_rate_warns_above_one_in_10000_and_stops_when_its_lower_bound_is_above_one_in_1000(
    bad: int, advice: Advice, warning: bool
) -> None:
    breaker = Breaker(BreakerPolicy())
    said = Advice.GO_ON
    for step in range(20_000):
        refused = bad > 0 and step % (20_000 // bad) == 0 and step // (20_000 // bad) < bad
        said, _ = breaker.record(applied=not refused)
        if said is not Advice.GO_ON:
            break
    assert said is advice
    assert breaker.drop_rate.warning is warning


def test_a_good_step_between_bursts_does_not_keep_an_ill_run_alive() -> None:
    breaker, advice = Breaker(BreakerPolicy()), Advice.GO_ON
    for _ in range(30):
        for step in ".xxxxx":
            advice = fed(breaker, step)
            if advice is Advice.ROLL_BACK:
                breaker.rolled_back()
            if advice is Advice.STOP_DROP_RATE:
                return
    raise AssertionError(f"still {advice} after 150 refused batches of 180")


def test_the_counts_survive_a_restart() -> None:
    small = BreakerPolicy(drop_rate=HealthPolicy(window_size=30, min_samples=10, warn_bad_fraction=0.01))
    before, after = Breaker(small), Breaker(small)
    fed(before, "x...xx....xxxxx")
    before.rolled_back()
    fed(before, "." * 25 + "x.xx")
    after.load_state_dict(before.state_dict())
    assert after.drop_rate == before.drop_rate
    assert (after.refused, after.rollbacks, after.in_a_row) == (before.refused, before.rollbacks, before.in_a_row)
    assert fed(after, "xxx") is fed(before, "xxx") is Advice.ROLL_BACK
    assert after.state_dict() == before.state_dict()


@pytest.mark.parametrize(("start", "to"), list(product(RunState, RunState)))
def test_a_run_moves_along_the_table_and_nowhere_else(start: RunState, to: RunState) -> None:
    life = Lifecycle(MOVES, start)
    if to in MOVES[start]:
        life.move(to, why="listed")
        assert life.state is to
    else:
        with pytest.raises(IllegalMoveError):
            life.move(to, why="not listed")


def test_a_breaker_that_could_never_roll_back_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_consecutive_bad"):
        BreakerPolicy(streak=HealthPolicy())
