from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failsoft.errors import ConfigError
from failsoft.training.memory.ladder import MOVES, MemoryLadder, Step
from failsoft.training.memory.rungs import ORDER, Means, MemoryPolicy, Rung, Setting, left_out, notches

ALL = Means(largest_share=6, cap_levels=2, can_offload=True)
QUICK = MemoryPolicy(climb_after_steps=3, patience_factor=2.0, max_climb_after_steps=20)


def ladder_of(policy: MemoryPolicy = QUICK, means: Means = ALL, told: list[Step] | None = None) -> MemoryLadder:
    steps = [] if told is None else told
    return MemoryLadder(policy, notches(policy, means), steps.append)


def at(ladder: MemoryLadder, rung: Rung) -> MemoryLadder:
    while ladder.notch.rung is not rung:
        ladder.ran_out("no memory")
    return ladder


def quiet(ladder: MemoryLadder, steps: int) -> None:
    for _ in range(steps):
        ladder.applied()


def test_the_ladder_has_every_rung_in_order_and_each_keeps_what_the_ones_above_brought() -> None:
    said = [notch.in_words() for notch in notches(QUICK, ALL)]
    assert said == [
        "full size",
        "caches freed",
        "micro-batches, 2 a batch",
        "micro-batches, 4 a batch",
        "micro-batches, 6 a batch",
        "capped input, level 1",
        "capped input, level 2",
        "optimizer state in host RAM",
        "smaller updates, 6 a batch",
        "batch given up",
    ]
    assert notches(QUICK, ALL)[-1].setting == Setting(micro_batches=6, cap_level=2, offloaded=True, updates=6)


def test_rungs_that_a_run_does_not_have_are_left_out_with_the_reason() -> None:
    bare = Means(largest_share=1)
    assert [notch.rung for notch in notches(QUICK, bare)] == [Rung.FULL_SIZE, Rung.CACHES, Rung.BATCH_GIVEN_UP]
    missing = {Rung.MICRO_BATCHES, Rung.INPUT_CAP, Rung.OFFLOAD, Rung.SMALLER_UPDATES}
    assert left_out(QUICK, bare).keys() == set(map(str, missing))
    assert left_out(QUICK, ALL) == {}


def test_a_batch_that_can_not_be_cut_is_not_cut() -> None:
    uncut = Means(largest_share=6, uncut="because")
    assert {notch.setting for notch in notches(QUICK, uncut)} == {Setting()}
    assert left_out(QUICK, uncut)[Rung.MICRO_BATCHES] == "because"


def test_another_order_and_fewer_rungs_are_the_policys_choice() -> None:
    policy = MemoryPolicy(rungs=(Rung.OFFLOAD, Rung.SMALLER_UPDATES))
    updates = [notch.setting.updates for notch in notches(policy, ALL)]
    assert updates == [1, 1, 2, 4, 6]


@pytest.mark.parametrize(
    "change",
    [
        {"rungs": (Rung.CACHES, Rung.CACHES)},
        {"rungs": (Rung.FULL_SIZE,)},
        {"rungs": (Rung.BATCH_GIVEN_UP, Rung.CACHES)},
        {"climb_after_steps": 0},
        {"patience_factor": float("nan")},
        {"max_host_used_fraction": 1.5},
        {"min_device_free_fraction": 1.0},
        {"look_every_s": -1.0},
    ],
)
def test_impossible_policies_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        MemoryPolicy(**change)  # type: ignore[arg-type]


def test_every_pair_of_neighbours_on_any_ladder_is_a_move_of_the_table() -> None:
    for first, second in pairwise(notches(QUICK, ALL)):
        assert second.rung in MOVES[first.rung]
        assert first.rung in MOVES[second.rung]


def test_each_time_that_memory_runs_out_is_one_notch_down_until_nothing_is_left() -> None:
    ladder = ladder_of()
    for notch in ladder.notches[1:]:
        assert ladder.ran_out("no memory") == notch
    assert ladder.at_the_end
    with pytest.raises(ConfigError, match="the ladder ends at batch given up"):
        ladder.ran_out("no memory")


def test_after_a_quiet_time_it_climbs_one_notch_at_a_time() -> None:
    ladder = at(ladder_of(), Rung.MICRO_BATCHES)
    ladder.ran_out("again")
    quiet(ladder, 3)
    assert ladder.setting.micro_batches == 2
    quiet(ladder, 2)
    assert ladder.setting.micro_batches == 2
    quiet(ladder, 1)
    assert ladder.notch.in_words() == "caches freed"
    quiet(ladder, 3)
    assert ladder.notch.in_words() == "full size"


def test_a_relapse_after_a_climb_makes_the_next_wait_longer_up_to_a_cap() -> None:
    ladder, waits = at(ladder_of(), Rung.MICRO_BATCHES), []
    for _ in range(5):
        waits.append(ladder.patience_steps)
        quiet(ladder, ladder.patience_steps)
        assert ladder.notch.in_words() == "caches freed"
        ladder.ran_out("too early")
    assert waits == [3, 6, 12, 20, 20]


def test_trouble_that_comes_long_after_a_climb_is_no_relapse() -> None:
    ladder = at(ladder_of(), Rung.CACHES)
    quiet(ladder, 3)
    assert ladder.notch.rung is Rung.FULL_SIZE
    quiet(ladder, 100)
    ladder.ran_out("another day")
    assert ladder.relapses == 0


def test_relapses_are_forgotten_when_full_size_has_held_for_the_longer_wait() -> None:
    ladder = at(ladder_of(), Rung.CACHES)
    quiet(ladder, 3)
    ladder.ran_out("too early")
    quiet(ladder, 6)
    assert (ladder.notch.in_words(), ladder.relapses) == ("full size", 1)
    quiet(ladder, 6)
    assert ladder.relapses == 0


def test_pressure_goes_down_only_as_far_as_the_gradient_stays_what_it_is() -> None:
    ladder = ladder_of()
    moved = [ladder.pressed("95 % used") for _ in range(6)]
    assert moved == [True, True, True, True, False, False]
    assert ladder.notch.in_words() == "micro-batches, 6 a batch"


def test_nothing_is_climbed_under_pressure() -> None:
    ladder = at(ladder_of(), Rung.INPUT_CAP)
    for _ in range(10):
        quiet(ladder, 2)
        assert not ladder.pressed("95 % used")
    assert ladder.setting.cap_level == 1


def test_a_batch_given_up_leaves_the_notch_above() -> None:
    ladder = at(ladder_of(), Rung.BATCH_GIVEN_UP)
    ladder.given_up()
    assert ladder.notch.rung is Rung.SMALLER_UPDATES


def test_every_move_is_told_with_its_cause_and_the_way_back() -> None:
    told: list[Step] = []
    ladder = ladder_of(told=told)
    ladder.ran_out("no memory")
    quiet(ladder, 3)
    assert [(step.before.rung, step.after.rung, step.why) for step in told] == [
        (Rung.FULL_SIZE, Rung.CACHES, "no memory"),
        (Rung.CACHES, Rung.FULL_SIZE, "3 updates without trouble"),
    ]
    assert told[0].patience_steps == 3


@given(st.lists(st.sampled_from(["out", "quiet", "pressed"]), max_size=60))
def test_a_ladder_that_was_written_down_and_read_goes_on_as_the_one_that_was_not(story: list[str]) -> None:
    through, other = ladder_of(), ladder_of()
    for word in story:
        for ladder in (through, other):
            if word == "out" and not ladder.at_the_end:
                ladder.ran_out("no memory")
                ladder.given_up()
            elif word == "pressed":
                ladder.pressed("short")
            else:
                ladder.applied()
        fresh = ladder_of()
        fresh.load_state_dict(json.loads(json.dumps(other.state_dict())))
        other = fresh
        assert other.state_dict() == through.state_dict()


@given(st.lists(st.sampled_from(["out", "quiet"]), max_size=60))
def test_ladders_of_all_ranks_agree_whatever_happens(story: list[str]) -> None:
    """Moves depend on nothing but what all ranks share: the number of updates and the agreed trouble."""
    ladders = [ladder_of() for _ in range(3)]
    for word in story:
        for ladder in ladders:
            if word == "quiet":
                ladder.applied()
            elif not ladder.at_the_end:
                ladder.ran_out("no memory")
    assert len({json.dumps(ladder.state_dict()) for ladder in ladders}) == 1


def test_a_state_of_another_ladder_takes_the_first_notch_that_relieves_as_much() -> None:
    old = at(ladder_of(means=Means(largest_share=4)), Rung.MICRO_BATCHES)
    old.ran_out("again")
    state = old.state_dict()
    assert state["setting"]["micro_batches"] == 4
    wider = ladder_of(means=Means(largest_share=16, cap_levels=2))
    wider.load_state_dict(state)
    assert wider.setting.micro_batches == 4
    short = ladder_of(means=Means(largest_share=2))
    short.load_state_dict(state)
    assert short.notch.rung is Rung.SMALLER_UPDATES


def test_a_state_of_a_format_to_come_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="format 9"):
        ladder_of().load_state_dict(ladder_of().state_dict() | {"format": 9})


def test_the_order_of_the_rungs_is_the_one_that_loses_least_first() -> None:
    assert ORDER == (
        Rung.CACHES,
        Rung.MICRO_BATCHES,
        Rung.INPUT_CAP,
        Rung.OFFLOAD,
        Rung.SMALLER_UPDATES,
        Rung.BATCH_GIVEN_UP,
    )
