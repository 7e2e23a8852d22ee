"""What time and evidence do to a rollout: the turn that is taken at every tick, at most one change in each."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from failsoft.health.monitor import Status
from failsoft.serving.plan.plan import Stage
from failsoft.serving.plan.planstore import RolloutState
from failsoft.serving.rollout import transitions
from failsoft.serving.rollout.course import Course
from failsoft.serving.rollout.judgement import Action, Decision, Evidence, answers_to_compare, judge_stage
from failsoft.serving.rollout.shaping import Situation, shape_of

_NEEDS_S = 1.0
_KEEP_REST, _KEEP_REST_AT_MOST_S = 20.0, 300.0
"""Storing takes a twentieth of the controller's time at most, on any disk that answers, or refuses, within 15 s. What
hung once for longer does not leave an hour of counts unstored."""


class Pacer:
    """Moves a course on when it is due, and says what it waits for when it is not."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self.waits_for = ""
        """What the stage waits for, in words."""
        self._needs: dict[str, Any] = {}
        self._needs_s = -math.inf

    def act(self) -> None:
        """Judge, and make at most one change. Raises PlanStoreError when that could not be made durable."""
        stage = self._course.plan.stage
        if stage is Stage.DEGRADED:
            self._rest()
        elif stage is Stage.REJECTED:
            self.waits_for = "another release; the old one serves"
            self._watch_stand_in()
        else:
            self._judge()

    def keep(self) -> None:
        """Store timers and counts every so often; on slow storage less often, since all gateways wait meanwhile."""
        course = self._course
        rest_s = min(_KEEP_REST * course.keep_took_s, _KEEP_REST_AT_MOST_S)
        has_rested = course.now_s - course.kept_or_refused_s >= rest_s
        if has_rested and course.now_s - course.kept_s >= course.policy.keep_every_s:
            course.keep(course.state)

    def decide(self) -> Decision:
        """What the evidence says about the stage now."""
        return judge_stage(self.evidence(), self._course.policy)

    def needs(self) -> dict[str, Any]:
        """What each stage on trial asks for, and how many answers a comparison with what stands in takes.

        Worked out once a second at most: it takes some ms, and anybody may ask as often as they like.
        """
        policy, now_s = self._course.policy, self._course.now_s
        if self._needs and self._needs_s <= now_s < self._needs_s + _NEEDS_S:
            return self._needs
        stages = {
            str(stage): {"answers": rule.min_samples, "seconds": rule.min_time_s, "share": rule.share}
            for stage, rule in policy.rules.items()
        }
        self._needs_s = now_s
        self._needs = {"stages": stages, "answers_to_compare": answers_to_compare(self.evidence(), policy)}
        return self._needs

    def evidence(self) -> Evidence:
        """What is known about the stage now."""
        course = self._course
        plan, counts = course.plan, course.gather.counts
        return Evidence(
            stage=plan.stage,
            in_stage=counts.in_stage,
            on_trial=counts.on_trial,
            stand_in=counts.stand_in if plan.stand_in is not None else None,
            healthy_bad_fraction=course.around.healthy_bad_fraction(plan.subject_release),
            active_s=counts.active_s,
            since_answer_s=course.gather.since_answer_s(course.now_s),
            verdict=course.gather.subject.verdict(),
            ready_fraction=course.around.ready_fraction(plan),
        )

    def _rest(self) -> None:
        course, state, plan = self._course, self._course.state, self._course.plan
        if self._watch_stand_in():
            return
        if plan.forced and (plan.forced_remaining_s is None or plan.forced_remaining_s > 0.0):
            self.waits_for = _order_in_words(state)
        elif plan.forced and state.rest_s > 0.0:
            course.go(transitions.unforced(state, why="the order has expired, the rest goes on"))
        elif state.rest_s > 0.0:
            self.waits_for = f"rest, {state.rest_s:.1f} s left"
        elif state.held:
            self.waits_for = f"an operator: {state.held}"
        elif course.around.ready_fraction(plan) == 0.0:
            self.waits_for = "no replica of the subject is ready"
        else:
            why = "the order has expired" if plan.forced else "the rest is over"
            course.go(transitions.to_shadow(state, course.policy, why=why))

    def _judge(self) -> None:
        course, decision = self._course, self.decide()
        self.waits_for = decision.why if course.plan.stage is not Stage.SERVING else "nothing: the subject serves"
        if decision.action is Action.TRIP:
            course.fall(decision.why)
        elif decision.action is Action.ADVANCE and self._needs_hand():
            self.waits_for = f"an operator, to let it on ({course.state.held or 'by hand'}); passed: {decision.why}"
            self._watch_stand_in()
        elif decision.action is Action.ADVANCE:
            course.go(transitions.advanced(course.state, course.policy, why=decision.why))
        elif not (self._watch_stand_in() or self._shape()):
            self._forget_old_trips()

    def _needs_hand(self) -> bool:
        return bool(self._course.state.held) or self._course.policy.by_hand

    def _watch_stand_in(self) -> bool:
        """True when a stand-in model fell ill."""
        verdict = self._course.gather.stand_in.verdict()
        if self._course.plan.stand_in is None or verdict.status is not Status.DEGRADED:
            return False
        self._course.stand_in_fell(verdict.reason)
        return True

    def _shape(self) -> bool:
        """Fit shares to capacity and traffic; True when that made a new plan."""
        course, plan = self._course, self._course.plan
        situation = Situation(
            samples=course.gather.counts.in_stage.total - course.shaped_at,
            since_s=course.now_s - max(course.shaped_s, course.gather.first_s or 0.0),
            ready_fraction=course.around.ready_fraction(plan),
        )
        shape = shape_of(plan, situation, course.policy)
        if shape is None:
            return False
        shares = {"share": shape.share, "mirror_share": shape.mirror_share}
        course.go(transitions.reshaped(course.state, why=shape.why, **shares))
        return True

    def _forget_old_trips(self) -> None:
        """After a full quiet period in SERVING the next rest is the first one again."""
        course, state = self._course, self._course.state
        quiet_s = course.policy.quiet_s
        if course.plan.stage is Stage.SERVING and state.trips and course.gather.counts.active_s >= quiet_s:
            why = f"no trip in {quiet_s:.0f} s of answers: the rest starts from its first value again"
            course.go(transitions.reshaped(replace(state, trips=0), why=why, relapses=0))


def _order_in_words(state: RolloutState) -> str:
    left_s = state.plan.forced_remaining_s
    left = "until it is restored" if left_s is None else f"{left_s:.0f} s left"
    return f"the end of an operator's order, {left}: {state.order or state.plan.why}"
