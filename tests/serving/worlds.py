"""A rollout on a manual clock, on storage that a test can take away, in surroundings that it sets by hand."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from failsoft.errors import PlanStoreError
from failsoft.health.backoff import BackoffPolicy
from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm, RoutingPlan, Stage
from failsoft.serving.plan.planstore import Loaded, PlanStore, RolloutState
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout.course import Course
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.rollout.rollout import Rollout
from failsoft.serving.rollout.stages import StagePolicy, StageRule

STEP_S = 0.5


def quick_policy(**changes: Any) -> StagePolicy:
    """Round numbers: rest 10 s doubling to 80 s without jitter; each stage 5 s and 70, 20, 20, 20 answers."""
    counts = {Stage.SHADOW: (0.0, 70), Stage.CANARY: (0.05, 20), Stage.RAMP_20: (0.2, 20), Stage.RAMP_50: (0.5, 20)}
    settings: dict[str, Any] = {
        "rest": BackoffPolicy(first_s=10.0, factor=2.0, cap_s=80.0, jitter_fraction=0.0),
        "quiet_s": 60.0,
        "rules": {
            stage: StageRule(share=share, min_time_s=5.0, min_samples=samples)
            for stage, (share, samples) in counts.items()
        },
        "mirror_share": 0.5,
        "max_gap_s": 2.0,
        "margin": 0.15,
        "alpha": 0.1,
        "keep_every_s": 1.0,
    }
    return StagePolicy(**(settings | changes))


class KilledError(Exception):
    """The controller was killed just here."""


class MemoryStore(PlanStore):
    """A disk that survives the process, without the time that a real one takes; it can be taken away."""

    def __init__(self, disk: dict[str, str]) -> None:
        super().__init__(Path("/nowhere"))
        self._disk = disk
        self.refuses = False
        self.saves = 0

    def load(self) -> Loaded | None:
        text = self._disk.get("state")
        return None if text is None else Loaded(state=RolloutState.of(json.loads(text)), damaged=None)

    def save(self, state: RolloutState) -> None:
        if self.refuses:
            raise PlanStoreError("read-only file system")
        self.saves += 1
        self._disk["state"] = json.dumps(state.as_json())


@dataclass
class World:
    """Surroundings, clock, and a rollout among them."""

    folder: Path | None = None
    """Keep the plan in real files there; None: in memory."""
    policy: StagePolicy = field(default_factory=quick_policy)
    clock: ManualClock = field(default_factory=ManualClock)
    ready: float | None = 1.0
    baseline: float | None = 0.02
    right: float | None = 0.95
    """Accuracy of every release on its validation data."""
    slots: int = 2
    killed_when_telling: bool = False
    refuses_later: bool = False
    """Whether storage is to refuse once a cause that takes time comes to its end."""
    pushed: list[RoutingPlan] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    disk: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self.plans: dict[int, RoutingPlan] = {}
        self.start()

    def start(self, clock: ManualClock | None = None) -> Rollout:
        """Begin, or begin again as after a SIGKILL: nothing survives but the folder."""
        self.clock = clock or self.clock
        self.store = MemoryStore(self.disk)
        course = Course(
            clock=self.clock,
            policy=self.policy,
            store=self.store if self.folder is None else PlanStore(self.folder),
            around=self,
            rng=random.Random(1),
            release="r1",
        )
        self.rollout = Rollout(course)
        self.rollout.adopt(self.policy, slots=self.slots)
        self.plans[self.plan.epoch] = self.plan
        return self.rollout

    def plan_changed(self, plan: RoutingPlan) -> None:
        if self.killed_when_telling:
            raise KilledError
        self.plans[plan.epoch] = plan
        self.pushed.append(plan)

    def record(self, kind: str, why: str, **data: Any) -> None:
        self.events.append((kind, why))

    def healthy_bad_fraction(self, release: str) -> float | None:
        return self.baseline

    def accuracy(self, release: str) -> float | None:
        return self.right

    def ready_fraction(self, plan: RoutingPlan) -> float | None:
        return self.ready

    @property
    def plan(self) -> RoutingPlan:
        return self.rollout.plan

    @property
    def stage(self) -> Stage:
        return self.rollout.plan.stage

    def is_in(self, stage: Stage) -> bool:
        """Asked by a call, since the stage changes between two looks."""
        return self.stage is stage

    def trip(self, gateway: str, epoch: int, why: str) -> None:
        """A gateway tells that it found the subject of plan ``epoch`` ill."""
        self.rollout.trip(Trip.of_subject(self.plans[epoch], gateway=gateway, why=why))

    def report(self, counts: dict[str, int], *, arm: Arm = Arm.SUBJECT, epoch: int | None = None) -> OutcomeBatch:
        """A gateway reports; ``counts`` by the outcome's value, as in ``{"good": 9, "weak": 1}``."""
        batch = OutcomeBatch(
            gateway="g1",
            sequence=next(self._numbers),
            epoch=self.plan.epoch if epoch is None else epoch,
            arm=arm,
            mirrored=self.stage is Stage.SHADOW and arm is Arm.SUBJECT,
            outcomes={Outcome(name): count for name, count in counts.items()},
        )
        self.rollout.take(batch)
        return batch

    def run(self, seconds: float, **counts: int) -> None:
        """Let time pass in steps; in each step the subject, and the stand-in if there is one, report ``counts``."""
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            if counts and self.stage not in (Stage.DEGRADED, Stage.REJECTED):
                self.report(counts)
            if counts and self.plan.stand_in is not None:
                self.report({"good": 10}, arm=Arm.STAND_IN)
            self.rollout.tick()

    def run_until(self, stage: Stage, *, within_s: float = 300.0) -> float:
        """Seconds until ``stage``, with good traffic."""
        began_s = self.clock.monotonic_s()
        while self.stage is not stage:
            assert self.clock.monotonic_s() - began_s < within_s, f"{stage} not reached: {self.rollout.status()}"
            self.run(0.5, good=10)
        return self.clock.monotonic_s() - began_s

    def bring_to(self, stage: Stage, *, trial: bool = False) -> None:
        """Into a stage, as the way back of an incident or, on ``trial``, as the way of a new release."""
        if trial or stage is Stage.REJECTED:
            self.rollout.propose("r2", by="test")
        elif stage is not Stage.SERVING:
            self.trip("g1", self.plan.epoch, "made ill")
        if stage is Stage.REJECTED:
            self.rollout.abort(self.plan.subject_release, why="made ill", by="test")
        elif stage is Stage.DEGRADED and trial:
            self.trip("g1", self.plan.epoch, "made ill")
        elif stage is not Stage.SERVING or trial:
            self.run_until(stage)
        assert self.stage is stage


def world_at(stage: Stage, *, trial: bool = False) -> World:
    """A world in a stage, as the way back of an incident or, on ``trial``, as the way of a new release."""
    world = World()
    world.bring_to(stage, trial=trial)
    world.pushed.clear()
    return world
