"""Whatever happens to controllers, clocks and storage: one plan of each number, each by a listed move, none lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from failsoft.artifacts.home import Home
from failsoft.errors import ConfigError, PlanOvertakenError, PlanStoreError
from failsoft.health.clock import ManualClock
from failsoft.serving.plan.plan import RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore
from failsoft.serving.rollout.control import Controller, ControllerConfig
from failsoft.serving.rollout.stages import MOVES
from tests.serving.worlds import KilledError, World, quick_policy

POLICY = quick_policy(keep_every_s=1e9)


def newest_file(folder: Path) -> Path:
    return max(folder.glob("plan-?.json"), key=lambda path: int(json.loads(path.read_bytes())["write"]))


class Controllers(RuleBasedStateMachine):
    """One folder; a controller that is killed, cut off and replaced; everything that anybody was ever told."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)  # fsync is free there
        self.told: dict[int, RoutingPlan] = {}
        self.leader = World(Path(self.folder.name), policy=POLICY)
        self.cut_off: World | None = None
        self.releases = 1
        self.hear()

    def teardown(self) -> None:
        self.folder.cleanup()

    def hear(self) -> None:
        """Followers hear of each plan; of two with one number they would believe the one that came first."""
        for world in filter(None, (self.leader, self.cut_off)):
            for plan in [*world.pushed, world.plan]:
                plain = replace(plan, forced_remaining_s=None)
                assert self.told.setdefault(plan.epoch, plain) == plain, "two truths"
            world.pushed.clear()

    def do(self, what: Callable[[World], object], *, by_the_one_cut_off: bool) -> None:
        world = self.cut_off if by_the_one_cut_off and self.cut_off is not None else self.leader
        with suppress(ConfigError, PlanStoreError):
            what(world)
        self.hear()

    @rule(old=st.booleans())
    def the_subject_falls(self, old: bool) -> None:
        self.do(lambda world: world.trip("g1", world.plan.epoch, "ill"), by_the_one_cut_off=old)

    @rule(seconds=st.sampled_from([1.0, 6.0, 12.0]), old=st.booleans())
    def good_answers_arrive(self, seconds: float, old: bool) -> None:
        self.do(lambda world: world.run(seconds, good=10), by_the_one_cut_off=old)

    @rule(order=st.sampled_from(["force", "restore", "propose", "abort", "hold", "resume"]), old=st.booleans())
    def an_operator_speaks(self, order: str, old: bool) -> None:
        self.releases += 1
        orders: dict[str, Callable[[World], object]] = {
            "force": lambda world: world.rollout.force(5.0, why="x", by="me"),
            "restore": lambda world: world.rollout.restore(why="x", by="me"),
            "propose": lambda world: world.rollout.propose(f"new-{self.releases}", by="me"),
            "abort": lambda world: world.rollout.abort(world.plan.subject_release, why="x", by="me"),
            "hold": lambda world: world.rollout.hold(world.plan.subject_release, why="x", by="me"),
            "resume": lambda world: world.rollout.resume(world.plan.subject_release, why="x", by="me"),
        }
        self.do(orders[order], by_the_one_cut_off=old)

    @rule(jump_s=st.sampled_from([0.0, 86_400.0, -86_400.0]))
    def the_controller_is_killed(self, jump_s: float) -> None:
        """Another one reads the plan that was true, on a machine whose clocks say something else."""
        before = self.leader.plan
        self.leader.start(ManualClock(monotonic_s=0.02, wall_s=1_700_000_000.0 + jump_s))
        assert (self.leader.plan.epoch, self.leader.plan.stage) == (before.epoch, before.stage), "lost"
        self.hear()

    @rule()
    def the_controller_is_killed_between_storing_and_telling(self) -> None:
        self.leader.killed_when_telling = True
        with suppress(KilledError, ConfigError, PlanStoreError):
            self.leader.rollout.force(5.0, why="x", by="me")
        self.leader.killed_when_telling = False
        self.leader.start(ManualClock(monotonic_s=0.02))
        self.hear()

    @rule()
    def the_controller_is_cut_off_and_another_takes_its_place(self) -> None:
        self.cut_off = self.leader
        self.leader = World(Path(self.folder.name), policy=POLICY, clock=ManualClock(monotonic_s=0.5))
        self.hear()

    @precondition(lambda self: len(list(Path(self.folder.name).glob("plan-?.json"))) == 2)
    @rule()
    def the_newest_file_is_torn(self) -> None:
        """Only the last change may be forgotten by that, and its number is not used again."""
        newest_file(Path(self.folder.name)).write_bytes(b"{ torn")
        self.leader.start()
        self.hear()

    @rule(jump_s=st.sampled_from([86_400.0, -86_400.0]))
    def the_wall_clock_jumps(self, jump_s: float) -> None:
        self.leader.clock.jump_wall(jump_s)
        self.leader.rollout.tick()
        self.hear()

    @invariant()
    def no_stage_is_skipped(self) -> None:
        for epoch, plan in self.told.items():
            before = self.told.get(epoch - 1)
            if before is not None and before.stage is not plan.stage:
                assert plan.stage in MOVES[before.stage], f"{before.stage} to {plan.stage}"

    @invariant()
    def the_newest_plan_is_the_leaders(self) -> None:
        assert self.leader.plan.epoch == max(self.told)


TestControllers = Controllers.TestCase
TestControllers.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_a_controller_that_was_cut_off_tells_nobody_anything_once_another_leads(tmp_path: Path) -> None:
    cut_off = World(tmp_path, policy=POLICY)
    cut_off.bring_to(Stage.CANARY, trial=True)
    epoch = cut_off.plan.epoch
    leader = World(tmp_path, policy=POLICY)
    leader.trip("g1", epoch, "ill")
    cut_off.pushed.clear()
    cut_off.run(30.0, good=10)  # by what it knows the release passes
    assert (cut_off.pushed, cut_off.rollout.overtaken, leader.rollout.overtaken) == ([], True, False)
    with pytest.raises(PlanOvertakenError, match="that one leads, and this one changes nothing any more"):
        cut_off.rollout.force(None, why="x", by="me")
    assert (leader.plan.epoch, leader.plan.stage) == (epoch + 1, Stage.DEGRADED)
    leader.run(11.0)
    assert leader.is_in(Stage.SHADOW)


def test_two_that_write_at_one_moment_are_never_both_right(tmp_path: Path) -> None:
    """Both have read the same plan, and neither has seen the other write."""
    World(tmp_path, policy=POLICY)
    first, second = PlanStore(tmp_path), PlanStore(tmp_path)
    states = [loaded.state for loaded in (first.load(), second.load()) if loaded is not None]
    first.save(states[0])
    with pytest.raises(PlanOvertakenError):
        second.save(states[1])
    first.save(states[0])


def test_a_plan_that_an_older_version_wrote_is_taken_over(tmp_path: Path) -> None:
    World(tmp_path, policy=POLICY)
    for path in tmp_path.glob("plan-?.json"):
        body = json.loads(path.read_bytes())
        body.pop("writer")
        path.write_text(json.dumps(body), "utf-8")
    world = World(tmp_path, policy=POLICY)
    world.rollout.force(None, why="x", by="me")
    assert not world.rollout.overtaken


@pytest.mark.anyio
async def test_a_controller_that_is_overtaken_ends_its_process(tmp_path: Path) -> None:
    ended = asyncio.Event()
    config = ControllerConfig(home=str(tmp_path), release="r1", profile="drill")
    controller = Controller(asdict(config), lambda: {}, end=ended.set)
    await controller.wait_plan(-1, 0.0)
    other = PlanStore(Home(root=tmp_path).serving)
    loaded = other.load()
    assert loaded is not None
    other.save(loaded.state)
    async with asyncio.timeout(30.0):  # it stores its timers every second
        await ended.wait()
    with pytest.raises(PlanOvertakenError):
        await controller.force(5.0, "x", "me")
    await controller.stop()
