"""Failsoft in the incident race in simulated time: the product's own watch, rollout, routing and stages.

Only what carries them is made here: the requests, the clock, and the report that a gateway sends every half second.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable

from failsoft.health.clock import ManualClock
from failsoft.health.window import Outcome
from failsoft.serving.plan.plan import Arm, Stage, choose_arm, should_mirror
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.rollout.stages import StagePolicy, stage_policy
from failsoft.serving.watching.outcomes import Seen
from failsoft.serving.watching.watch import Watch
from tests.benchmarks.race_recording import Given, Recording
from tests.benchmarks.race_rivals import By
from tests.serving.worlds import World

MODEL_MS, REPORT_EVERY_S = 5.0, 0.5


class Failsoft:
    """The product's own watch, rollout and routing.

    Args:
        clock: of the race.
        recording: whose baseline arms it.
        labelled: share of the model's answers whose right label comes later …
        label_after_s: … after so long.
        policy: production's unless given.
    """

    def __init__(
        self,
        clock: ManualClock,
        recording: Recording,
        *,
        labelled: float = 0.0,
        label_after_s: float = 120.0,
        policy: StagePolicy | None = None,
    ) -> None:
        policy = policy or stage_policy("production")
        self._labelled, self._label_after_s, self._chance = labelled, label_after_s, random.Random(17)
        self._labels: deque[tuple[float, int, bool]] = deque()
        baseline = recording.baseline
        self._world = World(policy=policy, clock=clock, baseline=baseline.weak_fraction, right=baseline.accuracy or 0.9)
        self._watch = Watch(policy.health, self._tripped, policy.signals)
        self._watch.arm("r1", baseline)
        self._clock, self._numbers = clock, itertools.count(1)
        self._counted: Counter[Outcome] = Counter()
        self._told_s = clock.monotonic_s()
        self.falls = 0
        self.warned_s: list[float] = []
        """When warnings began where there were none."""
        self._warns = False
        self._follow()

    @property
    def serves_in_full(self) -> bool:
        """See :class:`Rival`."""
        return self._plan.share >= 1.0

    @property
    def loads(self) -> int:
        """See :class:`Rival`."""
        return self._plan.load_generation[self._plan.subject] - self._first_load

    def ask(self, key: str, answer: Callable[[], Given]) -> By:
        """See :class:`Rival`."""
        plan = self._plan
        live = plan.lets_answer(plan.subject) and choose_arm(plan, key) is Arm.SUBJECT
        if not live:
            if should_mirror(plan, key):
                self._see(answer(), mirrored=True)
            return By.FALLBACK
        given = answer()
        self._see(given, mirrored=False)
        if self._labelled and self._chance.random() < self._labelled:
            self._labels.append((self._clock.monotonic_s() + self._label_after_s, self.loads, given.right))
        return By.MODEL if given.usable and self._plan.lets_answer(plan.subject) else By.FALLBACK

    def pass_time(self) -> None:
        """See :class:`Rival`."""
        if self._clock.monotonic_s() < self._told_s + REPORT_EVERY_S:
            return
        self._told_s = now_s = self._clock.monotonic_s()
        while self._labels and self._labels[0][0] <= now_s:
            _, loads, right = self._labels.popleft()
            if loads == self.loads:  # labels of other weights say nothing about these
                self._watch.feedback(right=right)
        if self._counted:
            self._report()
        self._world.rollout.tick()
        self._follow()
        warns = bool(self._watch.warnings())
        if warns and not self._warns:
            self.warned_s.append(now_s)
        self._warns = warns

    def _see(self, given: Given, *, mirrored: bool) -> None:
        self._counted[given.outcome] += 1
        self._watch.record(
            Seen(
                epoch=self._plan.epoch,
                arm=Arm.SUBJECT,
                outcome=given.outcome,
                latency_ms=MODEL_MS,
                mirrored=mirrored,
                model_ms=MODEL_MS,
                label=given.intent,
                oov_share=given.oov_share,
                words=given.words,
                confidence=given.confidence,
            )
        )

    def _report(self) -> None:
        plan, counted = self._plan, dict(self._counted)
        self._counted.clear()
        self._world.rollout.take(
            OutcomeBatch(
                gateway="g1",
                sequence=next(self._numbers),
                epoch=plan.epoch,
                arm=Arm.SUBJECT,
                mirrored=plan.share == 0.0,
                outcomes=counted,
            )
        )

    def _tripped(self, epoch: int, why: str) -> None:
        if self._counted:  # what was seen before belongs to the plan before
            self._report()
        self._world.trip("g1", epoch, why)
        self._follow()

    def _follow(self) -> None:
        before = getattr(self, "_plan", None)
        self._plan = self._world.plan
        if before is None:
            self._first_load = self._plan.load_generation[self._plan.subject]
        elif before.stage is not self._plan.stage and self._plan.stage is Stage.DEGRADED:
            self.falls += 1
        if before is not self._plan:
            self._watch.follow(self._plan)
