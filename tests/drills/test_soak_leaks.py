"""A leak is told from noise, and what may be either is not called good."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.drills.soak_census import role_of
from tests.drills.soak_faults import FROZEN, KILLED, LEAST_GAP_S, MOST_GAP_S, WAVES, plan
from tests.drills.soak_leaks import Allowance, Growth, Judged, judge

LEVEL, HOUR_S, LOOK_S = 2e9, 3600.0, 5.0
FIVE = Allowance(share=0.05, at_least=64e6)


def judged(value: Callable[[float, random.Random], float], *, until_s: float = HOUR_S, seed: int = 1) -> Judged:
    rng, at_s = random.Random(seed), [LOOK_S * place for place in range(int(until_s / LOOK_S))]
    return judge("memory", at_s, [value(at, rng) for at in at_s], allowance=FIVE, rng=random.Random(seed))


@pytest.mark.parametrize("seed", range(3))
def test_noise_and_deaths_are_flat(seed: int) -> None:
    """One look in eight is taken while a process of a fifth of the memory has just died."""
    found = judged(lambda _at, rng: LEVEL * (rng.gauss(1.0, 0.02) - 0.2 * (rng.random() < 0.125)), seed=seed)
    assert found.verdict is Growth.FLAT
    assert found.low < 0.0 < found.high


@pytest.mark.parametrize("seed", range(3))
def test_a_tenth_more_in_an_hour_grows_under_the_same_noise(seed: int) -> None:
    found = judged(lambda at, rng: LEVEL * (1.0 + 0.1 * at / HOUR_S + rng.gauss(0.0, 0.02)), seed=seed)
    assert found.verdict is Growth.GROWS
    assert found.low < 0.1 * LEVEL * 1.02
    assert found.high > 0.1 * LEVEL * 0.9


def test_a_series_that_wanders_too_much_for_its_time_is_not_decided() -> None:
    state = [LEVEL]

    def wander(_at: float, rng: random.Random) -> float:
        state[0] += rng.gauss(0.0, 0.02 * LEVEL)
        return state[0]

    verdicts = {judged(wander, until_s=300.0, seed=seed).verdict for seed in range(5)}
    assert Growth.UNDECIDED in verdicts


def test_too_few_moments_decide_nothing() -> None:
    found = judged(lambda _at, _rng: LEVEL, until_s=50.0)
    assert found.verdict is Growth.UNDECIDED
    assert math.isnan(found.per_hour)


def test_what_is_no_number_is_left_out() -> None:
    found = judged(lambda at, _rng: math.nan if at % 50 < 25 else LEVEL)
    assert (found.verdict, found.per_hour, found.usual) == (Growth.FLAT, 0.0, LEVEL)


def test_what_shrinks_is_no_leak() -> None:
    assert judged(lambda at, _rng: LEVEL * (1.0 - 0.3 * at / HOUR_S)).verdict is Growth.FLAT


def test_moments_without_a_value_are_refused() -> None:
    with pytest.raises(ValueError, match="2 moments and 1 values"):
        judge("memory", [0.0, 1.0], [1.0], allowance=FIVE, rng=random.Random(1))


def test_faults_come_about_every_twenty_seconds_each_kind_before_any_comes_again() -> None:
    planned = list(plan(5, HOUR_S))
    assert planned == list(plan(5, HOUR_S)) != list(plan(6, HOUR_S))
    gaps = [second[0] - first[0] for first, second in pairwise(planned)]
    assert min(gaps) >= LEAST_GAP_S
    assert max(gaps) <= MOST_GAP_S
    assert 17.0 < sum(gaps) / len(gaps) < 25.0
    kinds = [kind for _, kind in planned]
    every = {*KILLED, *FROZEN, *WAVES}
    assert set(kinds[: len(every)]) == set(kinds[len(every) : 2 * len(every)]) == every


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("ray::ServeReplica:intent:blue", "ray::ServeReplica:intent:blue"),
        ("ray::ServeReplica:intent:gateway.handle_request", "ray::ServeReplica:intent:gateway"),
        ("ray::RayTrainWorker.execute", "RayTrainWorker"),
        ("/usr/lib/ray/core/src/ray/raylet/raylet --port=1", "raylet"),
        ("/x/python -m train_jobs.driver_process 5 6", "train_jobs.driver_process"),
        ("/x/python -u /y/ray/dashboard/agent.py --a=b", "agent.py"),
        ("", ""),
    ],
)
def test_the_role_of_a_process_is_the_same_after_it_was_replaced(title: str, role: str) -> None:
    assert role_of(title) == role
