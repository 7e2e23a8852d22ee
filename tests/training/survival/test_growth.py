from __future__ import annotations

import pytest

from failsoft.errors import ConfigError
from failsoft.training.survival.growth import Growth, ResizePolicy

POLICY = ResizePolicy(look_s=2.0, steady_s=10.0, calm_s=1000.0)
"""Rests 120, 240, 480 ... s."""


def begun(workers: int = 1, most: int = 4, at_s: float = 0.0) -> Growth:
    growth = Growth(POLICY, most)
    growth.began(workers, at_s)
    return growth


def grows_at(growth: Growth, from_s: float, until_s: float, spare: int = 1) -> float | None:
    """When, looking every two seconds at steady room."""
    at_s = from_s
    while at_s <= until_s:
        if growth.look(spare, at_s) is not None:
            return at_s
        at_s += POLICY.look_s
    return None


def test_room_that_was_there_at_each_look_for_a_while_is_used() -> None:
    growth = begun()
    looks = [growth.look(2, at_s) for at_s in (0.0, 2.0, 4.0, 6.0, 8.0)]
    assert looks == [None] * 5
    assert growth.look(2, 10.0) == 3


def test_room_that_was_gone_at_one_look_is_waited_for_anew() -> None:
    growth = begun()
    for at_s, spare in ((0.0, 2), (6.0, 0), (8.0, 2), (12.0, 2)):
        assert growth.look(spare, at_s) is None
    assert growth.look(2, 18.0) == 3


def test_only_as_much_is_used_as_was_there_all_the_time() -> None:
    growth = begun()
    for at_s, spare in ((0.0, 3), (4.0, 1), (8.0, 3)):
        growth.look(spare, at_s)
    assert growth.look(3, 10.0) == 2


def test_not_knowing_is_no_room() -> None:
    growth = begun()
    growth.look(2, 0.0)
    growth.look(None, 9.0)
    assert growth.look(2, 11.0) is None


def test_one_more_worker_is_worth_a_new_start_of_few_and_not_of_thousands() -> None:
    assert grows_at(begun(workers=59, most=100), 0.0, 100.0) == 10.0
    large = begun(workers=2040, most=2080)
    assert grows_at(large, 0.0, 100.0) is None
    assert grows_at(large, 200.0, 300.0, spare=35) is not None


def test_what_fills_the_run_up_counts_and_no_room_beyond_it() -> None:
    assert grows_at(begun(workers=2047, most=2048), 0.0, 100.0, spare=40) is None


def test_a_resize_that_costs_more_than_it_may_take_to_pay_back_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"costs_s is 60\.0 and pays_back_s 60\.0"):
        ResizePolicy(pays_back_s=60.0)


def test_a_run_that_has_all_it_may_have_does_not_grow() -> None:
    assert grows_at(begun(workers=4), 0.0, 100.0) is None


def test_a_node_that_goes_and_comes_back_is_used_at_once_the_first_time() -> None:
    growth = begun(workers=2, most=2)
    growth.began(1, 100.0)
    assert grows_at(growth, 100.0, 200.0) == 110.0


def test_a_node_that_flaps_makes_the_run_rest_longer_each_time() -> None:
    growth, at_s, rests = begun(), 0.0, []
    for _ in range(4):
        grown_s = grows_at(growth, at_s, at_s + 5000.0)
        assert grown_s is not None
        rests.append(grown_s - at_s)
        growth.began(2, grown_s)
        at_s = grown_s + 20.0
        growth.began(1, at_s)
    assert rests == [10.0, 120.0, 240.0, 480.0]


def test_a_growth_that_brought_no_worker_is_one_that_did_not_hold() -> None:
    growth = begun()
    assert grows_at(growth, 0.0, 100.0) == 10.0
    growth.began(1, 20.0)
    assert grows_at(growth, 20.0, 1000.0) == 140.0


def test_a_growth_that_held_for_long_forgets_the_ones_before() -> None:
    growth = begun()
    for grown_s, lost_s in ((10.0, 20.0), (500.0, 1600.0)):
        growth.began(2, grown_s)
        growth.began(1, lost_s)
    assert grows_at(growth, 1600.0, 3000.0) == 1720.0


@pytest.mark.parametrize("name", ["look_s", "steady_s", "settle_s", "calm_s"])
def test_impossible_times_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is "):
        ResizePolicy(**{name: float("nan")})  # type: ignore[arg-type]
