"""What stays and what may go, for every shelf and every set of rules."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.training.checkpoints.retention import Best, Every, Last, Rule, Shelved, from_plain, removable, to_plain

HOUR_S = 3600.0


def shelf(*losses: float, healthy: bool = True, hours: float = 1.0) -> list[Shelved]:
    return [
        Shelved(
            name=f"at-{position}",
            position=position,
            at_s=position * hours * HOUR_S,
            healthy=healthy,
            metrics={"loss": loss},
        )
        for position, loss in enumerate(losses)
    ]


rules = st.lists(
    st.one_of(
        st.builds(Last, count=st.integers(1, 4)),
        st.builds(Best, count=st.integers(1, 3), larger_is_better=st.booleans()),
        st.builds(Every, hours=st.floats(0.5, 48.0)),
    ),
    max_size=3,
)
shelves = st.lists(
    st.builds(
        Shelved,
        name=st.text("abcxyz", min_size=1, max_size=6),
        position=st.integers(0, 1000),
        at_s=st.floats(0.0, 1e6),
        healthy=st.booleans(),
        metrics=st.dictionaries(st.just("loss"), st.floats(), max_size=1),
    ),
    max_size=12,
    unique_by=(lambda one: one.name, lambda one: one.position),
)


def stays(there: list[Shelved], chosen: list[Rule]) -> set[str]:
    return {one.name for one in there} - set(removable(there, chosen))


@given(shelves, rules)
def test_the_newest_healthy_one_always_stays(there: list[Shelved], chosen: list[Rule]) -> None:
    healthy = [one for one in there if one.healthy]
    if healthy:
        assert max(healthy, key=lambda one: one.position).name in stays(there, chosen)
    else:
        assert removable(there, chosen) == []


@given(shelves, rules, rules)
def test_another_rule_never_removes_more(there: list[Shelved], some: list[Rule], more: list[Rule]) -> None:
    assert set(removable(there, some + more)) <= set(removable(there, some))


@given(shelves, rules)
def test_pruning_twice_is_pruning_once(there: list[Shelved], chosen: list[Rule]) -> None:
    left = [one for one in there if one.name in stays(there, chosen)]
    assert removable(left, chosen) == []


@given(shelves, rules, st.randoms(use_true_random=False))
def test_the_order_in_which_a_folder_lists_them_does_not_matter(
    there: list[Shelved], chosen: list[Rule], rng: object
) -> None:
    mixed = sorted(there, key=lambda one: one.name[::-1])
    assert removable(mixed, chosen) == removable(there, chosen)


@given(rules)
def test_rules_survive_being_told_to_another_process(chosen: list[Last | Best | Every]) -> None:
    assert from_plain(json.loads(json.dumps(to_plain(chosen)))) == tuple(chosen)


def test_each_rule_keeps_what_it_says() -> None:
    there = shelf(0.9, 0.2, 0.5, 0.1, 0.7, 0.6)
    assert stays(there, [Last(count=2)]) == {"at-4", "at-5"}
    assert stays(there, [Best(count=2)]) == {"at-1", "at-3", "at-5"}
    assert stays(there, [Best(larger_is_better=True)]) == {"at-0", "at-5"}
    assert stays(there, [Every(hours=2.0)]) == {"at-0", "at-2", "at-4", "at-5"}


def test_a_loss_that_is_no_number_is_never_the_best() -> None:
    assert stays(shelf(0.3, math.nan, -math.inf, 0.4), [Best()]) == {"at-0", "at-3"}


def test_position_decides_and_not_the_clock_or_the_name() -> None:
    young_clock = Shelved(name="zzz", position=10, at_s=9e9)
    newest = Shelved(name="aaa", position=20, at_s=1.0)
    assert removable([newest, young_clock], [Last(count=1)]) == ["zzz"]


def test_an_ill_one_counts_for_no_rule() -> None:
    there = [*shelf(0.5, 0.4), Shelved(name="ill", position=9, at_s=9 * HOUR_S, healthy=False)]
    assert stays(there, [Last(count=1)]) == {"at-1"}


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ([{"rule": "oldest"}], "oldest"),
        ([{"rule": "last", "number": 3}], "number"),
        ([{"rule": "last", "count": 0}], "count is 0"),
        ([{"rule": "every", "hours": math.nan}], "hours is nan"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_name(plain: list[dict[str, object]], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        from_plain(plain)
