"""The moves of a model that is too large for two warm colours: one slot, the older release kept in host memory.

Pure, as ``transitions.py``. There is one model deployment, blue. What two colours give at no cost has a price here,
and the machine says so:

* a new release takes the slot: from then on until it has passed its stages the fallback ladder stands in, since no
  older model is there to answer;
* the older release is named in the other colour's place of the plan. Nothing runs there: it tells the one deployment
  what to keep in host memory;
* giving the new one up is a swap, not a pointer flip: the old weights are read from host memory (the time is measured
  and shown), copies probe them while the ladder answers, and they rise through the same stages. No stage is skipped: a
  release that has just been read is as unproven as any other load.
"""

from __future__ import annotations

from dataclasses import replace

from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.planstore import RolloutState
from failsoft.serving.rollout.stages import StagePolicy
from failsoft.serving.rollout.transitions import loaded_again, moved, rejections

SLOT = Colour.BLUE


def kept_release(plan: RoutingPlan) -> str | None:
    """The release that is kept in host memory, which is what there is to go back to; None: none."""
    return plan.releases.get(SLOT.other)


def fits(plan: RoutingPlan) -> bool:
    """Whether a plan can be followed with one slot."""
    return plan.subject is SLOT and plan.stand_in is None


def proposed(state: RolloutState, release: str, policy: StagePolicy, *, why: str) -> RolloutState:
    """Another release takes the slot; the last one that has served is kept."""
    plan = state.plan
    kept = plan.subject_release if state.proven else kept_release(plan)
    after = _taken(state, release, kept, policy, why=f"{why}; the ladder answers until it has passed its stages")
    return replace(after, proven=False)


def swapped_back(state: RolloutState, policy: StagePolicy, *, why: str) -> RolloutState:
    """The subject is given up; the kept release takes the slot again and rises. Needs one that is kept."""
    given_up, kept = state.plan.subject_release, str(kept_release(state.plan))
    words = f"{why}; {kept} is read from host memory, the ladder answers until it has passed its stages"
    after = _taken(state, kept, None, policy, why=words)
    return replace(after, proven=True, rejected=rejections(state, given_up, why))


def moved_in(state: RolloutState, policy: StagePolicy) -> RolloutState:
    """A plan of two colours becomes one of one slot: what served takes it."""
    plan = state.plan
    after = _taken(state, plan.release_in_service, None, policy, why="one slot from now on")
    return replace(after, proven=True)


def _taken(state: RolloutState, release: str, kept: str | None, policy: StagePolicy, *, why: str) -> RolloutState:
    """The slot holds another release and gets copies; under an operator's order, which goes on, it gets nothing."""
    before = state.plan
    after = moved(
        state,
        Stage.DEGRADED if before.forced else Stage.SHADOW,
        f"{why}; the order goes on: {state.order}" if before.forced else why,
        subject=SLOT,
        stand_in=None,
        releases={SLOT: release, SLOT.other: kept},
        load_generation=loaded_again(before, SLOT),
        mirror_share=0.0 if before.forced else policy.mirror_share,
        forced=before.forced,
        forced_remaining_s=before.forced_remaining_s,
        relapses=0,
    )
    return replace(after, order=state.order if before.forced else "", trips=0, rest_s=0.0, held="")
