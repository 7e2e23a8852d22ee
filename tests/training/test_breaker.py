from __future__ import annotations

import json
import re
from itertools import product

import pytest

from failsoft.errors import ConfigError, IllegalMoveError
from failsoft.health.lifecycle import Lifecycle
from failsoft.health.monitor import HealthPolicy
from failsoft.training.breaker import MOVES, Advice, Breaker, BreakerPolicy, RunState
from failsoft.training.escalation import Remedy


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


def test_trouble_at_the_same_place_climbs_the_ladder_and_stops_above_it() -> None:
    breaker = Breaker(BreakerPolicy())
    for remedy in (Remedy.SNAPSHOT, Remedy.SNAPSHOT_SLOWER, Remedy.DISK):
        assert fed(breaker, "." * 99 + "xxxxx") is Advice.ROLL_BACK  # 99 updates do not settle a place
        assert breaker.remedy() is remedy
        breaker.rolled_back(remedy=remedy)
    assert fed(breaker, "xxxxx") is Advice.STOP_STUCK


def test_a_hundred_updates_after_a_rollback_renew_the_patience() -> None:
    breaker = Breaker(BreakerPolicy())
    for _ in range(4):
        assert fed(breaker, "." * 100 + "xxxxx") is Advice.ROLL_BACK
        assert breaker.remedy() is Remedy.SNAPSHOT
        breaker.rolled_back()
    assert breaker.rollbacks == 4


def test_a_restart_does_not_reset_the_ladder() -> None:
    before, after = Breaker(BreakerPolicy()), Breaker(BreakerPolicy())
    fed(before, "xxxxx")
    before.rolled_back(position=7, why="five in a row")
    fed(before, "." * 60)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert after.remedy() is Remedy.SNAPSHOT_SLOWER
    assert after.history == before.history
    fed(after, "." * 40)  # 60 and 40 settle the place
    assert after.remedy() is Remedy.SNAPSHOT


def test_counts_of_the_first_release_still_load() -> None:
    breaker = Breaker(BreakerPolicy())
    old = {"refused": 6, "rollbacks": 1, "fruitless": 1, "pending": 2, "counted": 20_000, "bad_at": [3, 19_000]}
    breaker.load_state_dict(old)
    assert (breaker.drop_rate.bad, breaker.drop_rate.total) == (2, 20_000)
    assert (breaker.refused, breaker.rollbacks, breaker.in_a_row, breaker.history) == (6, 1, 2, [])


def test_what_is_met_again_counts_once_by_its_last_verdict_and_each_way_back_is_one_incident() -> None:
    breaker = Breaker(BreakerPolicy())
    fed(breaker, "....")
    then = breaker.state_dict()
    fed(breaker, ".x..xxxxx")
    breaker.rewound(then)
    breaker.rolled_back(position=13, replays=True)
    assert (breaker.refused, breaker.drop_rate.bad, breaker.drop_rate.total) == (0, 1, 5)
    fed(breaker, ".........")
    assert (breaker.refused, breaker.drop_rate.bad, breaker.drop_rate.total) == (0, 1, 14)


def test_a_batch_refused_in_two_passes_is_passed_over_and_counts_once() -> None:
    breaker = Breaker(BreakerPolicy())
    then = breaker.state_dict()
    for _ in range(2):
        for position in range(5):
            breaker.record(applied=False, position=position)
        breaker.rewound(then)
        breaker.rolled_back(position=5, replays=True)
    assert [breaker.passes.for_good(position) for position in range(6)] == [True] * 5 + [False]
    for position in range(5):
        breaker.passed_over(position)
    assert (breaker.refused, breaker.drop_rate.bad) == (5, 2)  # five batches; two ways back


def test_skipped_samples_have_their_own_rate_and_stop_the_run_when_it_is_surely_above_its_limit() -> None:
    breaker = Breaker(BreakerPolicy())
    assert breaker.saw(samples=99_000, skipped=99)[0] is Advice.GO_ON
    advice, why = breaker.saw(samples=101_000, skipped=300)
    assert advice is Advice.STOP_DROP_RATE
    assert "399 bad of 200,000 samples (0.199 %, at least 0.170 % with 99.9 % confidence" in why
    assert breaker.drop_rate.total == 0


def test_the_reason_of_a_stop_names_the_rate_and_its_lower_bound() -> None:
    breaker = Breaker(BreakerPolicy())
    why = ""
    for step in range(20_000):
        advice, why = breaker.record(applied=step % 300 != 0)
        if advice is Advice.STOP_DROP_RATE:
            break
    assert re.search(r"\d+ bad of 1\d,\d{3} batches \(0\.3[34]\d %, at least 0\.\d+ % with 99\.9 % confidence", why)


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
