"""A model that a replica found ill gets nothing from it again, whatever plans cross the news of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from failsoft.errors import ConfigError, PlanStoreError
from failsoft.serving.plan.follower import PlanFollower
from failsoft.serving.plan.plan import LIVE, Arm, Colour, RoutingPlan, Stage
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.stages import WATCHED
from failsoft.serving.rollout.transitions import first_state
from tests.serving.plan.test_follower import FakeSource
from tests.serving.worlds import World, quick_policy

ILL = Trip(gateway="g1", epoch=5, colour=Colour.BLUE, load_generation=1, why="7 of 20 weak")
Load = tuple[Colour, int]


def plan(stage: Stage = Stage.SERVING, *, epoch: int, **changes: Any) -> RoutingPlan:
    return replace(first_state("r1").plan, epoch=epoch, stage=stage, **changes)


def loads_that_get_traffic(plan: RoutingPlan) -> set[Load]:
    """Which weights answer callers or get copies under a plan."""
    asked = {plan.subject} if plan.share > 0.0 or plan.mirror_share > 0.0 else set()
    if plan.stand_in is not None:
        asked.add(plan.stand_in)
    return {(colour, plan.load_generation[colour]) for colour in asked}


@pytest.mark.parametrize("stage", sorted(WATCHED))
def test_the_same_weights_stay_held_back_under_a_plan_of_any_number(stage: Stage) -> None:
    releases = {Colour.BLUE: "r1", Colour.GREEN: "r0"}
    crossed = plan(stage, epoch=6, share=0.5 * (stage in LIVE), stand_in=Colour.GREEN, releases=releases)
    held = ILL.applied_to(crossed)
    assert (held.stage, held.share, held.mirror_share, held.epoch) == (Stage.DEGRADED, 0.0, 0.0, 6)
    assert held.stand_in is Colour.GREEN
    assert "7 of 20 weak" in held.why


def test_weights_that_were_read_again_are_not_held_back() -> None:
    again = replace(plan(epoch=6), load_generation={Colour.BLUE: 2, Colour.GREEN: 0})
    assert not ILL.holds_in(again)
    assert ILL.applied_to(again) is again


def test_ill_weights_that_would_stand_in_for_another_release_do_not() -> None:
    trial = plan(
        Stage.SHADOW,
        epoch=6,
        share=0.0,
        mirror_share=1.0,
        subject=Colour.GREEN,
        stand_in=Colour.BLUE,
        releases={Colour.BLUE: "r1", Colour.GREEN: "r2"},
    )
    held = ILL.applied_to(trial)
    assert (held.stage, held.stand_in, held.mirror_share) == (Stage.SHADOW, None, 1.0)


def test_a_trip_that_a_gateway_of_a_later_version_tells_is_heard() -> None:
    assert Trip.of(ILL.as_json() | {"added_later": [1]}) == ILL


def test_a_trip_travels_as_plain_values_and_anything_else_is_refused() -> None:
    assert Trip.of(ILL.as_json()) == ILL
    for body in ({}, ILL.as_json() | {"colour": "red"}, {"colour": "blue", "more": 1}):
        with pytest.raises(ConfigError, match="not a trip"):
            Trip.of(body)


def test_the_controller_lets_a_stand_in_go_that_a_gateway_found_ill_while_it_still_served() -> None:
    world = World()
    seen = Trip.of_subject(world.plan, gateway="g1", why="ill")
    world.rollout.propose("r2", by="me")
    world.rollout.trip(seen)
    assert (world.stage, world.plan.stand_in) == (Stage.SHADOW, None)


def test_a_trip_seen_just_before_the_next_stage_began_still_counts() -> None:
    world = World()
    world.bring_to(Stage.CANARY)
    seen = Trip.of_subject(world.plan, gateway="g1", why="ill")
    world.run_until(Stage.RAMP_20)
    world.rollout.trip(seen)
    assert world.is_in(Stage.DEGRADED)


class CrossedNews(RuleBasedStateMachine):
    """One gateway, one controller, and a network that delivers what it likes when it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(policy=quick_policy(keep_every_s=1e9))
        self.follower = PlanFollower(FakeSource(), name="g1", clock=self.world.clock, first=self.world.plan)
        self.orders: dict[str, Callable[[], None]] = {
            "force": lambda: self.world.rollout.force(None, why="x", by="me"),
            "restore": lambda: self.world.rollout.restore(why="x", by="me"),
            "propose": lambda: self.world.rollout.propose(f"new-{self.releases}", by="me"),
            "abort": lambda: self.world.rollout.abort(self.world.plan.subject_release, why="x", by="me"),
        }
        self.ill: set[Load] = set()
        self.told: set[Load] = set()
        self.releases = 1

    @initialize(stage=st.sampled_from(Stage), trial=st.booleans())
    def it_begins_anywhere(self, stage: Stage, trial: bool) -> None:
        self.world.bring_to(stage, trial=trial)
        self.follower.offer(self.world.plan)

    @precondition(lambda self: self.follower.plan.stage in WATCHED)
    @rule()
    def the_gateway_finds_the_subject_ill(self) -> None:
        seen = self.follower.plan
        self.ill.add((seen.subject, seen.load_generation[seen.subject]))
        self.follower.trip_locally("ill")

    @rule(late=st.booleans())
    def the_controller_hears_of_it(self, late: bool) -> None:
        for trip in self.follower.local_trips:
            self._order(partial(self.world.rollout.trip, trip))
            if not self.world.store.refuses:
                self.told.add((trip.colour, trip.load_generation))
        if not late:
            self.follower.offer(self.world.plan)

    @rule(epochs_back=st.integers(0, 3))
    def a_plan_arrives(self, epochs_back: int) -> None:
        self.follower.offer(self.world.plans[max(1, self.world.plan.epoch - epochs_back)])

    @rule(ready=st.sampled_from([0.02, 0.4, 1.0]))
    def replicas_come_and_go(self, ready: float) -> None:
        self.world.ready = ready
        self.world.run(1.5, good=1)

    @rule(seconds=st.sampled_from([6.0, 12.0]))
    def good_answers_arrive(self, seconds: float) -> None:
        self.world.run(seconds, good=10)

    @rule()
    def the_stand_in_is_bad(self) -> None:
        self.world.report({"error": 40}, arm=Arm.STAND_IN)
        self.world.run(0.5)

    @rule(order=st.sampled_from(["force", "restore", "propose", "abort"]))
    def an_operator_speaks(self, order: str) -> None:
        self.releases += order == "propose"
        self._order(self.orders[order])

    @rule(refuses=st.booleans())
    def storage_changes_its_mind(self, refuses: bool) -> None:
        self.world.store.refuses = refuses

    @rule()
    def the_controller_is_killed(self) -> None:
        self.world.start()

    @invariant()
    def the_gateway_gives_nothing_to_weights_that_it_found_ill(self) -> None:
        assert not self.ill & loads_that_get_traffic(self.follower.plan)

    @invariant()
    def the_controller_gives_nothing_to_weights_that_it_heard_to_be_ill(self) -> None:
        assert not self.told & loads_that_get_traffic(self.world.plan)

    @invariant()
    def nothing_is_held_back_for_ever(self) -> None:
        """Once the newest plan gives them nothing, the replica has nothing of its own to hold back."""
        if self.follower.plan.epoch == self.world.plan.epoch and not self.ill & loads_that_get_traffic(self.world.plan):
            assert self.follower.local_trips == ()

    def _order(self, order: Callable[[], None]) -> None:
        with suppress(ConfigError, PlanStoreError):
            order()


TestCrossedNews = CrossedNews.TestCase
TestCrossedNews.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(epochs=st.lists(st.integers(1, 9), max_size=6))
def test_the_plan_in_force_never_goes_back(epochs: list[int]) -> None:
    follower = PlanFollower(FakeSource(), name="g1", clock=World().clock, first=plan(epoch=1))
    for count, epoch in enumerate(epochs, start=1):
        follower.offer(plan(epoch=epoch))
        assert follower.plan.epoch == max([1, *epochs[:count]])


@pytest.mark.parametrize(
    "wrong",
    [{"epoch": "7"}, {"epoch": math.nan}, {"epoch": -1}, {"load_generation": None}, {"why": 3}, {"gateway": []}],
)
def test_what_can_not_be_held_against_a_plan_is_no_trip(wrong: dict[str, Any]) -> None:
    body = Trip(gateway="g1", epoch=1, colour=Colour.BLUE, load_generation=1, why="ill").as_json()
    with pytest.raises(ConfigError, match="trip"):
        Trip.of(body | wrong)


def test_what_is_no_object_is_no_trip() -> None:
    with pytest.raises(ConfigError, match="not a trip"):
        Trip.of([])  # type: ignore[arg-type]
