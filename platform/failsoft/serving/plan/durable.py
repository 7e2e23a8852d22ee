"""The one door through which the plan changes: stored first, then true, then told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from failsoft.errors import PlanOvertakenError, PlanStoreError
from failsoft.health.lifecycle import Lifecycle, Move
from failsoft.serving.plan.plan import RoutingPlan, Stage
from failsoft.serving.plan.planstore import PlanStore, RolloutState
from failsoft.serving.rollout import transitions
from failsoft.serving.rollout.stages import MOVES
from failsoft.serving.rollout.surroundings import Audience


class DurablePlan:
    """Holds the true state. Raises PlanStoreError on construction when storage can't be read, or takes no first plan.

    Args:
        store: where the plan is kept.
        audience: told of every change, after it is true.
        release: serves in the first plan, when none is stored yet.
    """

    def __init__(self, store: PlanStore, audience: Audience, *, release: str) -> None:
        self._store = store
        self._audience = audience
        loaded = store.load()
        self.state = transitions.first_state(release) if loaded is None else loaded.state
        self._next = self.state
        self._life = Lifecycle(MOVES, self.plan.stage, self._make_durable)
        self.refusal: str | None = None
        """Why storage refused the last change; None when it took it."""
        self.damage = loaded.damaged if loaded is not None else None
        """What was wrong with the newer of the stored plans; the state is then one change behind what was true."""
        self.overtaken = False
        """Another controller leads: nothing that is decided here becomes true any more."""
        if loaded is None:
            store.save(self.state)
        elif self.damage is None:  # damage is numbered past with the first move, and must not be written over before
            self._claim()
        self._record("plan_first" if loaded is None else "plan_loaded")

    @property
    def plan(self) -> RoutingPlan:
        """The plan that is true now."""
        return self.state.plan

    def go(self, state: RolloutState) -> None:
        """Make ``state`` true.

        Raises:
            PlanStoreError: storage refused; the old state stays true.
            IllegalMoveError: the table of stages has no such move.
        """
        begins_stage = state.since_epoch != self.state.since_epoch
        self._next = state
        if begins_stage:
            self._life.move(state.plan.stage, why=state.plan.why)
        else:
            self._store_or_say(state)
        before, self.state = self.plan.stage, state
        self._audience.plan_changed(state.plan)
        self._record("stage_move" if begins_stage else "plan_change", before=str(before))

    def keep(self, state: RolloutState) -> None:
        """Store timers and counts under the same plan. Raises PlanStoreError as :meth:`go` does."""
        self._store_or_say(state)
        self.state = state

    def count_down(self, passed_s: float) -> None:
        """Let the timers of rest and order run."""
        state, plan = self.state, self.plan
        if plan.stage is not Stage.DEGRADED:
            return
        forced_s = plan.forced_remaining_s
        left_s = None if forced_s is None else max(0.0, forced_s - passed_s)
        self.state = replace(
            state, rest_s=max(0.0, state.rest_s - passed_s), plan=replace(plan, forced_remaining_s=left_s)
        )

    def _claim(self) -> None:
        """Write what was read: a controller that still lives somewhere is overtaken by that, and finds it out."""
        with suppress(PlanStoreError):  # recorded; on storage that takes nothing the other one can do nothing either
            self._store_or_say(self.state)

    def _make_durable(self, _move: Move[Stage]) -> None:
        self._store_or_say(self._next)

    def _store_or_say(self, state: RolloutState) -> None:
        """Save; a refusal is recorded once, not at every try."""
        try:
            self._store.save(state)
        except PlanStoreError as error:
            self.overtaken = self.overtaken or isinstance(error, PlanOvertakenError)
            if self.refusal is None:
                self._audience.record(
                    "plan_not_stored", str(error), epoch=self.plan.epoch, wanted=str(state.plan.stage)
                )
            self.refusal = str(error)
            raise
        self.refusal = None

    def _record(self, kind: str, **data: Any) -> None:
        plan = self.plan
        facts = {"epoch": plan.epoch, "stage": str(plan.stage), "release": plan.subject_release}
        shares = {"share": plan.share, "mirror_share": plan.mirror_share, "relapses": plan.relapses}
        self._audience.record(kind, plan.why, **facts, **shares, **data)
