"""A model that comes and goes for a day costs a bounded number of relapses and of bad answers, whatever its rhythm."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from failsoft.health.backoff import BackoffPolicy
from failsoft.serving.rollout.stages import StagePolicy
from tests.health.peeking import table
from tests.serving.rollout.flapping import DAY_S, TRAFFIC_HZ, Day, flapping_day

RHYTHMS_S = ((30, 30), (300, 300), (60, 1800), (600, 1800), (1800, 3600), (60, 7200), (600, 10_800), (3600, 14_400))
"""How long it is ill, and then well."""
GROWING = 6
"""Rests below the cap: 60, 120, … 1920 s."""
AT_CAP = int(DAY_S / (3600.0 * 0.9)) + 1
"""So many rests at the cap fit in a day, each shortened by jitter as far as it can be."""


@pytest.fixture(scope="module")
def days() -> dict[tuple[int, int], Day]:
    return {rhythm: flapping_day(*rhythm) for rhythm in RHYTHMS_S}


def test_relapses_and_bad_answers_of_a_flapping_day_are_bounded(
    days: dict[tuple[int, int], Day], capsys: pytest.CaptureFixture[str]
) -> None:
    steady = StagePolicy(rest=BackoffPolicy(first_s=60.0, factor=1.0, cap_s=60.0), keep_every_s=600.0)
    rows: list[tuple[str, ...]] = [
        ("ill / well", "falls", "while live", "bad answers", "most before a fall", "resets", "falls at 60 s rests")
    ]
    for (ill_s, well_s), day in days.items():
        counts = day.falls, day.live_falls, day.bad_answers, day.most_between_falls, day.resets
        without = str(flapping_day(ill_s, well_s, policy=steady).falls) if well_s <= 600 else "–"
        rows.append((f"{ill_s} s / {well_s} s", *map(str, counts), without))
    with capsys.disabled():
        print(table(f"a day of a flapping model, {TRAFFIC_HZ:.0f} requests a second", rows))
    for day in days.values():
        assert day.falls <= (day.resets + 1) * GROWING + AT_CAP
        assert day.bad_answers <= 60 * max(1, day.live_falls)
        assert day.bad_answers <= 0.001 * DAY_S * TRAFFIC_HZ
    assert sum(day.live_falls for day in days.values()) > 20  # or nothing was put to the test


def test_each_rest_is_about_twice_the_one_before_until_the_cap_where_no_quiet_period_comes_between(
    days: dict[tuple[int, int], Day],
) -> None:
    grown = [day.rests_s for day in days.values() if not day.resets]
    assert grown
    for rests_s in grown:
        assert all(after > 1.5 * before or after > 0.9 * 3600.0 for before, after in pairwise(rests_s))
        assert max(rests_s) <= 1.1 * 3600.0


def test_a_full_quiet_period_sets_the_rest_back_and_a_shorter_one_does_not(days: dict[tuple[int, int], Day]) -> None:
    quiet = [day for day in days.values() if day.resets]
    assert quiet
    for day in quiet:
        first = [rest_s for rest_s in day.rests_s if rest_s < 1.1 * 60.0]
        assert day.resets <= len(first) <= day.resets + 1
    assert days[60, 1800].resets == 0  # well for 1800 s: never through all stages and quiet for an hour


def test_a_rhythm_of_the_stages_own_length_gains_nothing() -> None:
    """Ill just as the first callers get it, well in every trial: the worst rhythm there is for such stages."""
    policy = StagePolicy()
    trial_s = sum(rule.min_time_s for rule in policy.rules.values())
    day = flapping_day(300, int(trial_s), policy=replace(policy, keep_every_s=600.0))
    assert day.falls <= (day.resets + 1) * GROWING + AT_CAP
    assert day.most_between_falls <= 60
