"""The machine that takes the subject's trust away and gives it back, in stages. Durable: storage first, then effect.

Single-threaded and free of Ray: whoever owns it calls :meth:`Rollout.tick` often and passes on what gateways and
operators say. Only the monotonic clock is read, and only differences of it are kept.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from failsoft.errors import ConfigError, PlanStoreError
from failsoft.health.clock import Clock
from failsoft.health.monitor import HealthPolicy, Status, armed_policy
from failsoft.serving import orders, transitions
from failsoft.serving.durable import DurablePlan
from failsoft.serving.evidence import Gatherer, OutcomeBatch
from failsoft.serving.judgement import Action, Decision, Evidence, judge_stage
from failsoft.serving.plan import RoutingPlan, Stage
from failsoft.serving.planstore import PlanStore, RolloutState
from failsoft.serving.shaping import Situation, shape_of
from failsoft.serving.stages import WATCHED, StagePolicy
from failsoft.serving.surroundings import Surroundings

_RETRY_S = 1.0  # judged changes wait so long after storage refused; orders and trips try at once


class Rollout:
    """Owns the routing plan. Raises PlanStoreError on construction when the plan can't be read or first be written.

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
        self._clock, self._policy, self._around, self._rng = clock, policy, around, rng
        self._now_s = self._kept_s = self._shaped_s = clock.monotonic_s()
        self._quiet_until_s = self._now_s
        self._durable = DurablePlan(store, around, release=release)
        self._gather = Gatherer(self._health(), max_gap_s=policy.max_gap_s, counts=self._durable.state.counts)
        self._shaped_at = self._gather.counts.in_stage.total
        self._hold = ""
        self._dropped = 0
        if self._durable.damage is not None:
            self._distrust(self._durable.damage)

    @property
    def plan(self) -> RoutingPlan:
        """The plan that is true now."""
        return self._durable.plan

    def adopt(self, policy: StagePolicy) -> None:
        """Judge by another policy from now on. The same one again changes nothing, and no timer starts anew."""
        if policy != self._policy:
            self._policy = policy
            self._gather.max_gap_s = policy.max_gap_s
            self._gather.restart(self._health(), self._gather.counts)
            self._around.record("policy_changed", "another stage policy is in force", epoch=self.plan.epoch)

    def take(self, batch: OutcomeBatch) -> None:
        """Count what a gateway reports. News from before this stage, or seen before, is dropped and counted."""
        if not self._gather.is_new(batch) or not self._concerns_now(batch.epoch):
            self._dropped += 1
            return
        self._gather.add(batch, self._clock.monotonic_s())

    def trip(self, gateway: str, epoch: int, why: str) -> None:
        """A gateway found the subject ill. Ignored when that was before this stage, or when it has fallen already.

        Raises:
            PlanStoreError: the fall could not be made durable; the old plan stays.
        """
        if self.plan.stage in WATCHED and self._concerns_now(epoch):
            self._fall(f"{why} ({gateway})")

    def force(self, for_s: float | None, *, why: str, by: str) -> None:
        """An operator has the ladder answer everything, for a while or until :meth:`restore`.

        Raises:
            ConfigError: the time is not a positive number.
            PlanStoreError: the order could not be made durable; the old plan stays.
        """
        orders.refuse_bad_time(for_s)
        limit = "until restored" if for_s is None else f"for {for_s:.0f} s"
        self._go(transitions.forced(self._state(), for_s=for_s, why=f"ordered by {by} {limit}: {why}"))

    def restore(self, *, why: str, by: str) -> None:
        """An operator ends an order or a rest: the subject begins its way back. Does nothing in other stages.

        Raises:
            PlanStoreError: it could not be made durable; the old plan stays.
        """
        if self.plan.stage is Stage.DEGRADED:
            self._go(transitions.to_shadow(self._state(), self._policy, why=f"restored by {by}: {why}"))

    def propose(self, release: str, *, by: str) -> None:
        """Let a release begin its way; what serves stands in. The subject's own release again changes nothing.

        Raises:
            ConfigError: the release was rejected, stands in now, or an operator's order is in force.
            PlanStoreError: it could not be made durable; the old plan stays.
        """
        state = self._state()
        if release == self.plan.subject_release and release not in state.rejected:
            return
        orders.refuse_bad_proposal(state, release)
        self._go(transitions.proposed(state, release, self._policy, why=f"{release} proposed by {by}"))

    def abort(self, *, why: str, by: str) -> None:
        """End the way of a release on trial: its share is 0 at once, and the old release serves.

        Raises:
            ConfigError: nothing is on trial, or no older release could serve.
            PlanStoreError: it could not be made durable; the old plan stays.
        """
        state = self._state()
        orders.refuse_bad_abort(state)
        self._go(transitions.rejected(state, why=f"called off by {by}: {why}"))

    def tick(self) -> None:
        """Let time pass, judge, and make at most one change. Call it often; never raises."""
        now_s = self._clock.monotonic_s()
        self._durable.count_down(now_s - self._now_s)
        self._now_s = now_s
        if now_s < self._quiet_until_s:
            return
        try:
            self._act()
            self._keep()
        except PlanStoreError:  # recorded where it arose; the old plan stays true
            self._quiet_until_s = now_s + _RETRY_S

    def status(self) -> dict[str, Any]:
        """What is known and what it waits for, for people."""
        gather, state, verdict = self._gather, self._durable.state, self._gather.subject.verdict()
        return {
            "plan": self.plan.as_json(),
            "waits_for": self._hold,
            "rest_remaining_s": round(state.rest_s, 3),
            "evidence": gather.counts.as_json(),
            "health": {"status": str(verdict.status), "reason": verdict.reason},
            "mirror": {"agree": gather.agree, "compared": gather.compared},
            "ready_fraction": self._around.ready_fraction(self.plan),
            "gateways": gather.gateways,
            "dropped_reports": self._dropped,
            "store_error": self._durable.refusal,
            "rejected": dict(state.rejected),
        }

    def _state(self) -> RolloutState:
        """The true state with what is known now."""
        return replace(self._durable.state, counts=self._gather.counts)

    def _concerns_now(self, epoch: int) -> bool:
        return self._durable.state.since_epoch <= epoch <= self.plan.epoch

    def _health(self) -> HealthPolicy:
        """The trip, armed from the release's healthy baseline where that is known and fits."""
        rate = self._around.healthy_bad_fraction(self.plan.subject_release)
        try:
            return self._policy.health if rate is None else armed_policy(self._policy.health, rate)
        except ConfigError as error:
            self._around.record("health_not_armed", str(error), release=self.plan.subject_release)
            return self._policy.health

    def _go(self, state: RolloutState) -> None:
        """Make a change; when it begins a stage, forget what no longer counts."""
        begins_stage = state.since_epoch != self._durable.state.since_epoch
        self._durable.go(state)
        self._kept_s = self._shaped_s = self._clock.monotonic_s()
        if begins_stage:
            self._gather.restart(self._health(), state.counts)
        elif state.plan.stand_in is None:
            self._gather.forget_stand_in()
        self._shaped_at = self._gather.counts.in_stage.total

    def _fall(self, why: str) -> None:
        """The subject loses all trust; a release on trial that did so too often is given up."""
        state, policy = self._state(), self._policy
        trips = state.trips + 1
        if orders.may_reject(state) and trips >= policy.reject_after:
            self._go(transitions.rejected(state, why=f"fell {trips} times, now: {why}"))
        else:
            self._go(transitions.tripped(state, rest_s=policy.rest.wait_s(trips, self._rng), why=why))

    def _distrust(self, damage: str) -> None:
        """What was true is not known for sure: number past it, and let a subject that answers callers start again."""
        state, why = transitions.renumbered(self._state()), f"stored plan damaged: {damage}"
        falls = self.plan.stage in WATCHED
        rest_s = self._policy.rest.wait_s(1, self._rng)
        self._go(transitions.tripped(state, rest_s=rest_s, why=why) if falls else transitions.reshaped(state, why=why))

    def _act(self) -> None:
        stage = self.plan.stage
        if stage is Stage.DEGRADED:
            self._rest()
        elif stage is Stage.REJECTED:
            self._watch_old_release()
        else:
            self._judge()

    def _rest(self) -> None:
        state, plan = self._state(), self.plan
        if plan.forced and (plan.forced_remaining_s is None or plan.forced_remaining_s > 0.0):
            self._hold = "an operator's order"
        elif plan.forced and state.rest_s > 0.0:
            self._go(transitions.unforced(state, why="the order has expired, the rest goes on"))
        elif state.rest_s > 0.0:
            self._hold = f"rest, {state.rest_s:.1f} s left"
            self._watch_stand_in()
        elif self._around.ready_fraction(plan) == 0.0:
            self._hold = "no replica of the subject is ready"
        else:
            why = "the order has expired" if plan.forced else "the rest is over"
            self._go(transitions.to_shadow(state, self._policy, why=why))

    def _judge(self) -> None:
        decision = self._decide()
        self._hold = decision.why
        if decision.action is Action.TRIP:
            self._fall(decision.why)
        elif decision.action is Action.ADVANCE:
            self._go(transitions.advanced(self._state(), self._policy, why=decision.why))
        elif not (self._watch_stand_in() or self._shape()):
            self._forget_old_trips()

    def _decide(self) -> Decision:
        plan, counts = self.plan, self._gather.counts
        evidence = Evidence(
            stage=plan.stage,
            in_stage=counts.in_stage,
            on_trial=counts.on_trial,
            stand_in=counts.stand_in if plan.stand_in is not None else None,
            healthy_bad_fraction=self._around.healthy_bad_fraction(plan.subject_release),
            active_s=counts.active_s,
            since_answer_s=self._gather.since_answer_s(self._now_s),
            verdict=self._gather.subject.verdict(),
            ready_fraction=self._around.ready_fraction(plan),
        )
        return judge_stage(evidence, self._policy)

    def _watch_stand_in(self) -> bool:
        """A stand-in model that falls ill leaves its traffic to the ladder; True when it did."""
        verdict, plan = self._gather.stand_in.verdict(), self.plan
        if plan.stand_in is None or verdict.status is not Status.DEGRADED:
            return False
        why = f"the stand-in, {plan.stand_in}, fell ill and the ladder stands in: {verdict.reason}"
        self._go(transitions.reshaped(self._state(), why=why, stand_in=None))
        return True

    def _watch_old_release(self) -> None:
        """In REJECTED the stand-in is what serves."""
        verdict = self._gather.stand_in.verdict()
        self._hold = "another release; the old one serves"
        if verdict.status is Status.DEGRADED:
            rest_s, why = self._policy.rest.wait_s(1, self._rng), f"the old release, which serves: {verdict.reason}"
            self._go(transitions.tripped(self._state(), rest_s=rest_s, why=why))

    def _shape(self) -> bool:
        """Fit shares to capacity and traffic; True when that made a new plan."""
        plan = self.plan
        situation = Situation(
            samples=self._gather.counts.in_stage.total - self._shaped_at,
            since_s=self._now_s - max(self._shaped_s, self._gather.first_s or 0.0),
            ready_fraction=self._around.ready_fraction(plan),
        )
        shape = shape_of(plan, situation, self._policy)
        if shape is None:
            return False
        shares = {"share": shape.share, "mirror_share": shape.mirror_share}
        self._go(transitions.reshaped(self._state(), why=shape.why, **shares))
        return True

    def _forget_old_trips(self) -> None:
        """After a full quiet period in SERVING the next rest is the first one again."""
        state, quiet_s = self._state(), self._policy.quiet_s
        if self.plan.stage is Stage.SERVING and state.trips and self._gather.counts.active_s >= quiet_s:
            why = f"no trip in {quiet_s:.0f} s of answers: the rest starts from its first value again"
            self._go(transitions.reshaped(replace(state, trips=0), why=why, relapses=0))

    def _keep(self) -> None:
        if self._now_s - self._kept_s >= self._policy.keep_every_s:
            self._kept_s = self._now_s
            self._durable.keep(self._state())
