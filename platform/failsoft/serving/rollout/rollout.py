"""The machine that takes the subject's trust away and gives it back, in stages. Durable: storage first, then effect.

Single-threaded and free of Ray: whoever owns it calls :meth:`Rollout.tick` often and passes on what gateways and
operators say. Only the monotonic clock is read, and only differences of it are kept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from failsoft.errors import ConfigError, PlanStoreError
from failsoft.serving.plan.plan import RoutingPlan, Stage
from failsoft.serving.plan.trips import Trip
from failsoft.serving.rollout import orders, transitions
from failsoft.serving.rollout.course import Course
from failsoft.serving.rollout.evidence import OutcomeBatch
from failsoft.serving.rollout.judgement import Action
from failsoft.serving.rollout.pacer import Pacer
from failsoft.serving.rollout.stages import NEXT, WATCHED, StagePolicy

_RETRY_S = 1.0  # judged changes wait so long after storage refused; orders and trips try at once


class Rollout:
    """Owns the routing plan.

    Args:
        course: where it stands.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._pacer = Pacer(course)
        self._quiet_until_s = course.now_s
        self._dropped = 0

    @property
    def plan(self) -> RoutingPlan:
        """The plan that is true now."""
        return self._course.plan

    @property
    def overtaken(self) -> bool:
        """Another controller leads: nothing that is decided here becomes true any more."""
        return self._course.durable.overtaken

    def adopt(self, policy: StagePolicy, *, slots: int | None = None) -> None:
        """Judge by another policy from now on. The same one again changes nothing, and no timer starts anew.

        Args:
            policy: when trust is lost and what it takes to return.
            slots: model deployments there are: 2, or 1 for a model too large for two (see ``one_slot.py``); None: as
                many as before.

        Raises:
            PlanStoreError: another number of slots could not be made durable.
        """
        self._course.adopt(policy)
        if slots is not None:
            self._course.fit_to(slots)

    def take(self, batch: OutcomeBatch) -> None:
        """Count what a gateway reports. News from before this stage, or seen before, is dropped and counted."""
        course = self._course
        if not course.gather.is_new(batch) or not course.state.since_epoch <= batch.epoch <= self.plan.epoch:
            self._dropped += 1
            return
        course.count(batch)

    def trip(self, trip: Trip) -> None:
        """A gateway found a model ill. Ignored when that was another load of it, or when it gets nothing already.

        Raises:
            PlanStoreError: the fall could not be made durable; the old plan stays.
        """
        plan, why = self.plan, f"{trip.why} ({trip.gateway})"
        if trip.epoch > plan.epoch:
            return
        if trip.is_about(plan, plan.subject) and plan.stage in WATCHED:
            self._course.fall(why)
        elif trip.is_about(plan, plan.stand_in):
            self._course.stand_in_fell(why)

    def surpass(self, epoch: int) -> None:
        """A replica follows a plan of this number; one that is not known here is passed by, see :meth:`Course.surpass`.

        Never raises: where storage refuses, the next one who says so has it tried again.
        """
        with suppress(PlanStoreError):  # recorded where it arose
            self._course.surpass(epoch)

    def force(self, for_s: float | None, *, why: str, by: str) -> None:
        """An operator holds the subject back, for a while or until :meth:`restore`: what stands in answers.

        The order in force given again makes no new plan; its time starts anew.

        Raises:
            ConfigError: the time is not a positive number.
            PlanStoreError: the order could not be made durable; the old plan stays.
        """
        orders.refuse_bad_time(for_s)
        words, course = orders.force_in_words(for_s, why=why, by=by), self._course
        if words == course.state.order:
            course.keep(transitions.renewed(course.state, for_s=for_s))
            course.around.record("order_renewed", words, epoch=self.plan.epoch)
        else:
            course.go(transitions.forced(course.state, for_s=for_s, why=words))

    def restore(self, *, why: str, by: str) -> None:
        """An operator ends an order or a rest: the subject begins its way back. Does nothing in other stages.

        Raises:
            PlanStoreError: it could not be made durable; the old plan stays.
        """
        course = self._course
        if self.plan.stage is Stage.DEGRADED:
            course.go(transitions.to_shadow(course.state, course.policy, why=f"restored by {by}: {why}"))

    def propose(self, release: str, *, by: str, again: bool = False) -> None:
        """Let a release begin its way; what serves stands in. The subject's own release again changes nothing.

        Args:
            release: which one.
            by: who says so.
            again: also one that was rejected.

        Raises:
            ConfigError: the release was rejected, stands in now, or an operator's order is in force.
            PlanStoreError: it could not be made durable; the old plan stays.
        """
        course, state = self._course, self._course.state
        if release == self.plan.subject_release and release not in state.rejected:
            return
        orders.refuse_bad_proposal(state, release, again=again)
        once_more = " again" if release in state.rejected else ""
        course.propose(release, f"{release} proposed{once_more} by {by}")

    def abort(self, release: str, *, why: str, by: str) -> None:
        """Give a release up, on trial or in service: its share is 0 at once, and the older one, still warm, serves.

        A release that was given up already stays so, and nothing changes.

        Raises:
            ConfigError: it is not the subject, or no older release could serve.
            PlanStoreError: it could not be made durable; the old plan stays.
        """
        state = self._course.state
        if orders.is_given_up(state, release):
            return
        orders.refuse_bad_abort(state, release)
        words = "rolled back" if state.proven else "called off"
        self._course.give_up(f"{words} by {by}: {why}")

    def hold(self, release: str, *, why: str, by: str) -> None:
        """Let a release stay in the stage where it is until :meth:`resume`. It still falls when it is ill.

        Raises:
            ConfigError: it is not the subject, or not on its way.
            PlanStoreError: it could not be made durable; it goes on.
        """
        orders.refuse_bad_hold(self._course.state, release)
        self._set_held(f"held by {by}: {why}")

    def resume(self, release: str, *, why: str, by: str) -> None:
        """Let a release that is held go on by itself. Does nothing for one that is not held.

        Raises:
            ConfigError: it is not the subject, or not on its way.
            PlanStoreError: it could not be made durable; it stays held.
        """
        orders.refuse_bad_hold(self._course.state, release)
        self._set_held("", told=f"let go by {by}: {why}")

    def advance(self, release: str, *, from_stage: Stage, why: str, by: str) -> None:
        """Let a release that has passed ``from_stage``, and is held or goes by hand, into the next stage.

        Does nothing when it is there already, so that an order told twice is one step.

        Raises:
            ConfigError: it is not the subject, in another stage, or has not passed this one: no stage is skipped.
            PlanStoreError: it could not be made durable; it stays.
        """
        course = self._course
        if release == self.plan.subject_release and NEXT.get(from_stage) is self.plan.stage:
            return
        orders.refuse_bad_advance(course.state, release, from_stage)
        course.pass_time()
        decision = self._pacer.decide()
        if decision.action is not Action.ADVANCE:
            raise ConfigError(f"{release} has not passed {from_stage} yet: {decision.why}")
        why = f"let on by {by}: {why}; {decision.why}"
        course.go(transitions.advanced(course.state, course.policy, why=why))

    def _set_held(self, held: str, *, told: str = "") -> None:
        course = self._course
        if course.state.held != held:
            course.keep(replace(course.state, held=held))
            course.around.record("trial_held" if held else "trial_resumed", held or told, epoch=self.plan.epoch)

    def tick(self) -> None:
        """Let time pass, judge, and make at most one change. Call it often; never raises."""
        now_s = self._course.pass_time()
        if now_s < self._quiet_until_s:
            return
        try:
            self._pacer.act()
            self._pacer.keep()
        except PlanStoreError:  # recorded where it arose, maybe after long; the old plan stays true
            self._quiet_until_s = self._course.pass_time() + _RETRY_S

    def status(self) -> dict[str, Any]:
        """What is known and what it waits for, for people."""
        course = self._course
        gather, state, verdict = course.gather, course.state, course.gather.subject.verdict()
        return {
            "plan": self.plan.as_json(),
            "waits_for": self._pacer.waits_for,
            "needs": self._pacer.needs(),
            "rest_remaining_s": round(state.rest_s, 3),
            "trips": state.trips,
            "order": state.order,
            "held": state.held,
            "slots": state.slots,
            "evidence": gather.counts.as_json(),
            "health": {"status": str(verdict.status), "reason": verdict.reason},
            "mirror": {"agree": gather.agree, "compared": gather.compared} | gather.beside.status(),
            "ready_fraction": course.around.ready_fraction(self.plan),
            "gateways": gather.gateways,
            "dropped_reports": self._dropped,
            "store_error": course.durable.refusal,
            "rejected": dict(state.rejected),
        }
