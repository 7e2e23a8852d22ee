from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.training.pace.judgement import Finding, Look, Pace, judge
from failsoft.training.pace.policy import PacePolicy, RemedyPolicy, Sureness
from failsoft.training.pace.standing import RankStanding, Standing

POLICY = PacePolicy()
PER_DAY = 86_400 / (0.1 * POLICY.window)
"""Windows in a day of steps of 0.1 s."""


def steady(took_s: float, *, error: float = 0.01, count: int = 50) -> Pace:
    return Pace(log_median=math.log(took_s), error=error, count=count)


def looks(*paces: Pace | None) -> list[Look]:
    return [finding.look for finding in judge(paces, POLICY)]


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ((0.1, 0.1), (Look.KEEPS_UP, Look.KEEPS_UP)),
        ((0.1, 0.2), (Look.KEEPS_UP, Look.SLOW)),
        ((0.1, 0.13), (Look.KEEPS_UP, Look.BETWEEN)),
        ((0.1, 0.2, 0.1), (Look.KEEPS_UP, Look.SLOW, Look.KEEPS_UP)),
        ((0.1, 0.2, 0.2), (Look.KEEPS_UP, Look.SLOW, Look.SLOW)),  # the third shows what could be
        ((0.1, 0.1, 0.1, 0.14), (Look.KEEPS_UP,) * 3 + (Look.SLOW,)),
        ((0.1, 0.1, 0.1, 0.115), (Look.KEEPS_UP,) * 3 + (Look.BETWEEN,)),
        ((0.1, 0.1, 0.1, 0.2, 0.2), (Look.KEEPS_UP,) * 3 + (Look.SLOW,) * 2),
        ((0.1, 0.13, 0.17, 0.22, 0.28), (Look.KEEPS_UP, Look.KEEPS_UP, Look.KEEPS_UP, Look.BETWEEN, Look.BETWEEN)),
        ((0.001, 0.002), (Look.KEEPS_UP, Look.BETWEEN)),  # one millisecond is not worth a word
    ],
)
def test_who_is_slow(times: tuple[float, ...], wanted: tuple[Look, ...]) -> None:
    assert looks(*map(steady, times)) == list(wanted)


def test_what_is_not_known_is_no_verdict() -> None:
    few = steady(0.5, count=POLICY.min_samples - 1)
    assert looks(steady(0.1)) == [Look.UNKNOWN]
    assert looks(steady(0.1), None) == [Look.UNKNOWN, Look.UNKNOWN]
    assert looks(steady(0.1), few) == [Look.UNKNOWN, Look.UNKNOWN]
    assert looks(steady(0.1), steady(0.3), few) == [Look.KEEPS_UP, Look.SLOW, Look.UNKNOWN]
    assert looks() == []


def test_a_noisy_rank_is_not_surely_slow() -> None:
    assert looks(steady(0.1), steady(0.2, error=0.2)) == [Look.KEEPS_UP, Look.BETWEEN]


def test_times_that_are_none_are_passed_over() -> None:
    pace = Pace.of([0.1, math.nan, 0.0, -1.0, math.inf, 0.1])
    assert pace is not None
    assert (pace.count, round(math.exp(pace.log_median), 9)) == (2, 0.1)
    assert Pace.of([math.nan]) is None
    assert Pace.of([]) is None


def test_one_hiccup_in_a_window_does_not_move_its_median() -> None:
    calm, hiccup = Pace.of([0.1] * 50), Pace.of([0.1] * 45 + [9.0] * 5)
    assert calm is not None
    assert hiccup is not None
    assert calm.log_median == hiccup.log_median


PACES = st.lists(
    st.builds(
        Pace,
        log_median=st.floats(-6.0, 3.0),
        error=st.floats(0.0, 1.0),
        count=st.integers(0, 60),
    ),
    min_size=0,
    max_size=9,
)


@given(paces=PACES, factor=st.floats(0.1, 10.0))
def test_a_verdict_does_not_depend_on_the_unit_of_time_or_the_order_of_ranks(paces: list[Pace], factor: float) -> None:
    policy = PacePolicy(min_excess_s=0.0)
    found = judge(paces, policy)
    scaled = judge([replace(pace, log_median=pace.log_median + math.log(factor)) for pace in paces], policy)
    backwards = judge(paces[::-1], policy)[::-1]
    for one, other, third in zip(found, scaled, backwards, strict=True):
        assert math.isnan(one.factor) == math.isnan(other.factor) == math.isnan(third.factor)
        if not math.isnan(one.factor):
            assert one.factor == pytest.approx(other.factor) == pytest.approx(third.factor)


@given(paces=PACES)
def test_a_slow_rank_surely_takes_longer_than_most_others(paces: list[Pace]) -> None:
    for finding in judge(paces, POLICY):
        if finding.look is Look.SLOW:
            assert finding.factor >= finding.surely_above >= 1.2
        if finding.look is Look.KEEPS_UP:
            assert finding.factor < POLICY.end_factor


def test_never_are_half_of_many_ranks_slow_at_once() -> None:
    chance = np.random.default_rng(1)
    for _ in range(500):
        world = int(chance.integers(4, 12))
        paces = [steady(float(chance.lognormal(-2.0, 1.0))) for _ in range(world)]
        assert 2 * looks(*paces).count(Look.SLOW) <= world


# --- hysteresis -------------------------------------------------------------------------------------------------------


def stands(findings: list[Look], *, ranks: int = 2, light: bool = False) -> list[Standing]:
    one = RankStanding(policy=POLICY)
    told = []
    for look in findings:
        factor = {Look.SLOW: 2.0, Look.KEEPS_UP: 1.0, Look.BETWEEN: 1.2, Look.UNKNOWN: math.nan}[look]
        one.met(Finding(look=look, factor=factor), ranks=ranks, light=light)
        told.append(one.standing)
    return told


def test_a_rank_is_behind_after_some_slow_windows_in_a_row_and_with_the_others_after_some_good_ones() -> None:
    slow, good = Look.SLOW, Look.KEEPS_UP
    told = stands([slow, slow, slow, Look.BETWEEN, good, good, good])
    assert told == [Standing.WITH_THE_OTHERS] * 2 + [Standing.BEHIND] * 4 + [Standing.WITH_THE_OTHERS]


@pytest.mark.parametrize("between", [Look.KEEPS_UP, Look.BETWEEN, Look.UNKNOWN])
def test_windows_that_are_not_slow_break_the_row(between: Look) -> None:
    assert Standing.BEHIND not in stands([Look.SLOW, Look.SLOW, between, Look.SLOW, Look.SLOW])


def test_windows_without_a_verdict_never_end_it() -> None:
    assert stands([Look.SLOW] * 3 + [Look.UNKNOWN] * 50)[-1] is Standing.BEHIND


def test_many_ranks_need_fewer_windows() -> None:
    assert stands([Look.SLOW] * 2, ranks=4)[-1] is Standing.BEHIND


def test_a_rank_with_a_lighter_share_that_keeps_up_is_still_behind() -> None:
    one = RankStanding(policy=POLICY)
    for _ in range(3):
        one.met(Finding(look=Look.SLOW, factor=2.0), ranks=2, light=False)
    for _ in range(50):
        one.met(Finding(look=Look.KEEPS_UP, factor=1.0), ranks=2, light=True)
    assert one.standing is Standing.BEHIND


# --- false alarms -----------------------------------------------------------------------------------------------------


def false_alarms(world: int, noise: float, *, windows: int, by_nature: float = 0.0, seed: int = 0) -> int:
    """How often a rank of a healthy run is found to be behind: times are lognormal, ranks differ a little by nature."""
    chance = np.random.default_rng(seed)
    natures = chance.normal(math.log(0.1), by_nature, size=world)
    standings, alarms = [RankStanding(policy=POLICY) for _ in range(world)], 0
    for _ in range(windows):
        times = np.exp(natures[:, None] + noise * chance.standard_normal((world, POLICY.window)))
        findings = judge([Pace.of(row.tolist()) for row in times], POLICY)
        for standing, finding in zip(standings, findings, strict=True):
            alarms += standing.met(finding, ranks=world, light=False) and standing.standing is Standing.BEHIND
    return alarms


@pytest.mark.parametrize(
    ("world", "noise", "by_nature"), [(2, 0.1, 0.03), (2, 0.5, 0.0), (2, 1.0, 0.0), (4, 0.5, 0.05), (8, 0.5, 0.1)]
)
def test_a_healthy_run_has_no_false_alarm(
    world: int, noise: float, by_nature: float, capsys: pytest.CaptureFixture[str]
) -> None:
    windows = 6000 // world
    alarms = false_alarms(world, noise, windows=windows, by_nature=by_nature)
    with capsys.disabled():
        print(
            f"\n  {world} ranks, noise {noise:.0%} (lognormal), by nature {by_nature:.0%}: {alarms} false alarms in "
            f"{windows / PER_DAY:.2f} days of 0.1 s steps"
        )
    assert alarms == 0


@pytest.mark.parametrize(("world", "noise"), [(2, 0.1), (2, 0.3), (4, 0.3), (8, 0.5)])
def test_a_rank_of_twice_the_time_is_found_within_a_few_windows(world: int, noise: float) -> None:
    chance = np.random.default_rng(3)
    standings = [RankStanding(policy=POLICY) for _ in range(world)]
    for number in range(12):
        times = 0.1 * np.exp(noise * chance.standard_normal((world, POLICY.window)))
        times[-1] *= 2.0
        findings = judge([Pace.of(row.tolist()) for row in times], POLICY)
        for standing, finding in zip(standings, findings, strict=True):
            standing.met(finding, ranks=world, light=False)
        if standings[-1].standing is Standing.BEHIND:
            assert number < 8
            break
    assert [one.standing for one in standings] == [Standing.WITH_THE_OTHERS] * (world - 1) + [Standing.BEHIND]


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_samples": 1},
        {"min_samples": 51},
        {"end_factor": 1.25},
        {"end_factor": math.nan},
        {"few": Sureness(min_factor=1.3, errors=4.0, windows=0)},
        {"deviations": -1.0},
        {"min_excess_s": math.nan},
        {"end_windows": 0},
    ],
)
def test_an_impossible_policy_names_the_field(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PacePolicy(**wrong)  # type: ignore[arg-type]  # of many types


@pytest.mark.parametrize("wrong", [{"floor": 0}, {"floor": 16}, {"headroom": 1.0}, {"windows": 0}, {"max_updates": 0}])
def test_an_impossible_remedy_names_the_field(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RemedyPolicy(**wrong)  # type: ignore[arg-type]  # as above
