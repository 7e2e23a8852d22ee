"""The true state of a rollout and what is known about it, and the moves that both judgement and operators make.

Whatever changes the plan goes through :meth:`Course.go`: storage first, then effect; and when a stage begins, what no
longer counts is forgotten.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from failsoft.health.clock import Clock
from failsoft.health.monitor import HealthPolicy, fitted_policy
from failsoft.health.signals import SignalPolicy, armed_for_labels
from failsoft.serving.plan.durable import DurablePlan
from failsoft.serving.plan.plan import RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from failsoft.serving.rollout import one_slot, orders, transitions
from failsoft.serving.rollout.evidence import Gatherer, OutcomeBatch
from failsoft.serving.rollout.stages import WATCHED, StagePolicy
from failsoft.serving.rollout.surroundings import Surroundings


class Course:
    """Where the rollout stands. Raises PlanStoreError on construction when the plan can't be read or first be written.

    Args:
        clock: tells how much time passes.
        policy: when trust is lost and what it takes to return.
        store: where the plan is kept.
        around: what to ask and whom to tell.
        rng: jitter of the rest.
        release: serves in the first plan, when none is stored yet.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        policy: StagePolicy,
        store: PlanStore,
        around: Surroundings,
        rng: random.Random,
        release: str,
    ) -> None:
        self._clock, self._rng = clock, rng
        self.policy, self.around = policy, around
        self.now_s = self.kept_s = self.shaped_s = clock.monotonic_s()
        self.kept_or_refused_s = -math.inf
        """When storage last ended with timers and counts, whether it took them or not."""
        self.keep_took_s = 0.0
        self.durable = DurablePlan(store, around, release=release)
        self.gather = Gatherer(
            self._health(), max_gap_s=policy.max_gap_s, counts=self.durable.state.counts, signals=self._signals()
        )
        self.shaped_at = self.gather.counts.in_stage.total
        if self.durable.damage is not None:
            self._distrust(f"the newest stored plan can't be read: {self.durable.damage}")

    @property
    def plan(self) -> RoutingPlan:
        """The plan that is true now."""
        return self.durable.plan

    @property
    def state(self) -> RolloutState:
        """The true state with what is known now."""
        return replace(self.durable.state, counts=self.gather.counts)

    def pass_time(self) -> float:
        """Let the timers of rest and order run up to now, which is given back."""
        now_s = self._clock.monotonic_s()
        self.durable.count_down(now_s - self.now_s)
        self.now_s = now_s
        return now_s

    def count(self, batch: OutcomeBatch) -> None:
        """Add what a gateway reports to what is known."""
        self.gather.add(batch, self._clock.monotonic_s())

    def adopt(self, policy: StagePolicy) -> None:
        """Judge by another policy from now on. The same one again changes nothing, and no timer starts anew."""
        if policy != self.policy:
            self.policy = policy
            self.gather.max_gap_s, self.gather.signals = policy.max_gap_s, self._signals()
            self.gather.restart(self._health(), self.gather.counts)
            self.around.record("policy_changed", "another stage policy is in force", epoch=self.plan.epoch)

    def go(self, state: RolloutState) -> None:
        """Make a change; when it begins a stage, forget what no longer counts.

        Raises:
            PlanStoreError: it could not be made durable; the old plan stays.
        """
        begins_stage = state.since_epoch != self.durable.state.since_epoch
        self.durable.go(state)
        self.kept_s = self.shaped_s = self._clock.monotonic_s()
        if begins_stage:
            self.gather.signals = self._signals()
            self.gather.restart(self._health(), state.counts)
        elif state.plan.stand_in is None:
            self.gather.forget_stand_in()
        self.shaped_at = self.gather.counts.in_stage.total

    def keep(self, state: RolloutState) -> None:
        """Store what is no part of the plan, under the same plan. Raises as :meth:`go` does."""
        began_s = self._clock.monotonic_s()
        try:
            self.durable.keep(state)
            self.kept_s = self._clock.monotonic_s()
        finally:
            self.kept_or_refused_s = self._clock.monotonic_s()
            self.keep_took_s = self.kept_or_refused_s - began_s

    def fall(self, why: str) -> None:
        """The subject loses all trust; a release on trial that did so too often is given up. Raises as :meth:`go`."""
        state, policy = self.state, self.policy
        trips = state.trips + 1
        last = trips >= policy.reject_after or state.slots == 1  # in one slot each rest would be the ladder's alone
        if orders.may_reject(state) and last:
            self.give_up(f"fell {trips} times, now: {why}" if trips > 1 else f"fell: {why}")
        else:
            self.go(transitions.tripped(state, rest_s=policy.rest.wait_s(trips, self._rng), why=why))

    def propose(self, release: str, why: str) -> None:
        """Another release begins its way. Raises as :meth:`go` does."""
        move = one_slot.proposed if self.state.slots == 1 else transitions.proposed
        rejected = {name: words for name, words in self.state.rejected.items() if name != release}
        self.go(replace(move(self.state, release, self.policy, why=why), rejected=rejected))

    def give_up(self, why: str) -> None:
        """The older release takes the subject's place: it stands by, or it is swapped in. Raises as :meth:`go` does."""
        if self.state.slots == 1:
            self.go(one_slot.swapped_back(self.state, self.policy, why=why))
        else:
            self.go(transitions.rejected(self.state, why=why))

    def fit_to(self, slots: int) -> None:
        """Go on with so many model deployments; a plan that needs another number of them is made anew. Raises: same."""
        if self.state.slots == slots:
            return
        state = replace(self.state, slots=slots)
        if slots == 1 and not one_slot.fits(state.plan):
            self.go(one_slot.moved_in(state, self.policy))
        else:
            self.keep(state)
        self.around.record("slots_changed", f"{slots} model deployments", epoch=self.plan.epoch)

    def stand_in_fell(self, why: str) -> None:
        """A stand-in that fell ill leaves its traffic to the ladder; in REJECTED it is what serves, so it falls."""
        plan = self.plan
        if plan.stage is Stage.REJECTED:
            rest_s = self.policy.rest.wait_s(1, self._rng)
            self.go(transitions.tripped(self.state, rest_s=rest_s, why=f"the old release, which serves: {why}"))
        else:
            words = f"the stand-in, {plan.stand_in}, fell ill and the ladder stands in: {why}"
            self.go(transitions.reshaped(self.state, why=words, stand_in=None))

    def _health(self) -> HealthPolicy:
        """The trip, armed from the release's healthy baseline where that is known and fits."""
        rate = self.around.healthy_bad_fraction(self.plan.subject_release)
        if rate is None:
            return self.policy.health
        health, raised = fitted_policy(self.policy.health, rate)
        if raised is not None:
            self.around.record("health_not_armed", raised, release=self.plan.subject_release)
        return health

    def _signals(self) -> SignalPolicy:
        """What else is heard; late labels against the release's own accuracy where that is known."""
        release = self.plan.subject_release
        return armed_for_labels(self.policy.signals, release, self.around.accuracy(release))[0]

    def surpass(self, epoch: int) -> None:
        """Somebody follows a plan of this number, which is not stored here: that was lost, or is an older copy.

        Until there is a higher one no order given here holds anywhere. Raises as :meth:`go` does.
        """
        if epoch > self.plan.epoch:
            self._distrust(f"plan {epoch} is followed, and {self.plan.epoch} is the newest that is stored", known=epoch)

    def _distrust(self, why: str, *, known: int = 0) -> None:
        """What was true is not known for sure: number past it, and let a subject that answers callers start again."""
        state = transitions.renumbered(self.state, known=known)
        falls = self.plan.stage in WATCHED
        rest_s = self.policy.rest.wait_s(1, self._rng)
        self.go(transitions.tripped(state, rest_s=rest_s, why=why) if falls else transitions.reshaped(state, why=why))
