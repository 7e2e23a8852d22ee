"""What each move makes of the state. Pure: the state before in, the state after out, its plan numbered one higher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.plan.planstore import RolloutState
from failsoft.serving.rollout.evidence import Counts
from failsoft.serving.rollout.stages import NEXT, StagePolicy

_MAX_REJECTED = 64


def first_state(release: str) -> RolloutState:
    """A release that serves everything from the start, with nothing to stand in but the ladder."""
    plan = RoutingPlan(
        epoch=1,
        stage=Stage.SERVING,
        subject=Colour.BLUE,
        stand_in=None,
        releases={Colour.BLUE: release, Colour.GREEN: None},
        load_generation={Colour.BLUE: 1, Colour.GREEN: 0},
        share=1.0,
        mirror_share=0.0,
        why=f"first plan: {release} serves",
    )
    return RolloutState(plan=plan, since_epoch=1)


def tripped(state: RolloutState, *, rest_s: float, why: str) -> RolloutState:
    """The subject falls and rests. In REJECTED the old release falls, which serves: it becomes the subject."""
    state = _without_rejected(state)
    trips = state.trips + 1
    return moved(state, Stage.DEGRADED, why, trips=trips, rest_s=rest_s, relapses=trips - 1)


def rejected(state: RolloutState, *, why: str) -> RolloutState:
    """The subject, on trial or in service, is given up; the old release, which stands in, goes on. Needs one."""
    recent = rejections(state, state.plan.subject_release, why)
    return replace(moved(state, Stage.REJECTED, why), rejected=recent, held="")


def rejections(state: RolloutState, release: str, why: str) -> Mapping[str, str]:
    """Those that were given up, with one more; of many the oldest are forgotten."""
    return dict(list(state.rejected.items())[1 - _MAX_REJECTED :]) | {release: why}


def to_shadow(state: RolloutState, policy: StagePolicy, *, why: str) -> RolloutState:
    """The rest or an operator's order is over: the subject reads its weights from disk again and gets copies."""
    plan = state.plan
    loads = loaded_again(plan, plan.subject)
    return replace(moved(state, Stage.SHADOW, why, mirror_share=policy.mirror_share, load_generation=loads), rest_s=0.0)


def advanced(state: RolloutState, policy: StagePolicy, *, why: str) -> RolloutState:
    """The subject passed its stage and gets the next share; the evidence of the whole trial stays."""
    to = NEXT[state.plan.stage]
    counts = Counts(on_trial=state.counts.on_trial, stand_in=state.counts.stand_in)
    serves = to is Stage.SERVING
    after = moved(state, to, why, share=policy.share_of(to))
    return replace(after, counts=counts, proven=state.proven or serves, held="" if serves else state.held)


def proposed(state: RolloutState, release: str, policy: StagePolicy, *, why: str) -> RolloutState:
    """Another release begins its way in SHADOW, in the colour that does not serve.

    What serves stands in; a release that was on trial loses its place; a subject that has fallen and has no model to
    stand in for it leaves the traffic to the ladder.
    """
    plan = state.plan
    takes_over = plan.stage is Stage.SERVING or plan.stand_in is None
    colour = plan.subject.other if takes_over else plan.subject
    stand_in = plan.subject if plan.stage is Stage.SERVING else plan.stand_in
    return replace(
        moved(
            state,
            Stage.SHADOW,
            why,
            subject=colour,
            stand_in=stand_in,
            releases={**plan.releases, colour: release},
            load_generation=loaded_again(plan, colour),
            mirror_share=policy.mirror_share,
            relapses=0,
        ),
        proven=False,
        trips=0,
        rest_s=0.0,
        held="",
    )


def forced(state: RolloutState, *, for_s: float | None, why: str) -> RolloutState:
    """An operator holds the subject back. What stands in, the previous release or the ladder, answers all.

    In REJECTED the old release serves, so it is what is held back, and the ladder answers.
    """
    state = _without_rejected(state)
    after = moved(state, Stage.DEGRADED, why, forced=True, forced_remaining_s=for_s)
    return replace(after, order=why)


def unforced(state: RolloutState, *, why: str) -> RolloutState:
    """The order has expired, but a rest from before it is not over."""
    return moved(state, Stage.DEGRADED, why)


def renewed(state: RolloutState, *, for_s: float | None) -> RolloutState:
    """The order in force is given again: its time starts anew. Nobody routes otherwise: the plan keeps its number."""
    return replace(state, plan=replace(state.plan, forced_remaining_s=for_s))


def reshaped(state: RolloutState, *, why: str, **changes: Any) -> RolloutState:
    """Another share, mirror share, stand-in or count of relapses inside the same stage: what is known stays known."""
    return replace(state, plan=replace(state.plan, epoch=state.plan.epoch + 1, why=why, **changes))


def renumbered(state: RolloutState, *, known: int = 0) -> RolloutState:
    """The newest plan is not known. Its number may have been one higher than this one's, or is ``known``: pass it."""
    return replace(state, plan=replace(state.plan, epoch=max(state.plan.epoch + 1, known)))


def moved(
    state: RolloutState, to: Stage, why: str, *, trips: int | None = None, rest_s: float | None = None, **changes: Any
) -> RolloutState:
    """A new stage begins: no share and no copies unless given, no order unless given, and nothing known yet."""
    before = state.plan
    plain: dict[str, Any] = {"share": 0.0, "mirror_share": 0.0, "forced": False, "forced_remaining_s": None}
    words = f"{before.stage.name} → {to.name}: {why}"
    plan = replace(before, epoch=before.epoch + 1, stage=to, why=words, **(plain | changes))
    return replace(
        state,
        plan=plan,
        since_epoch=plan.epoch,
        order="",
        counts=Counts(),
        trips=state.trips if trips is None else trips,
        rest_s=state.rest_s if rest_s is None else rest_s,
    )


def _without_rejected(state: RolloutState) -> RolloutState:
    """In REJECTED the old release serves in the stand-in's place: make it the subject. Else unchanged."""
    plan = state.plan
    if plan.stage is not Stage.REJECTED or plan.stand_in is None:
        return state
    swapped = replace(plan, subject=plan.stand_in, stand_in=None, relapses=0)
    return replace(state, plan=swapped, proven=True, trips=0)


def loaded_again(plan: RoutingPlan, colour: Colour) -> Mapping[Colour, int]:
    """The load generations after a colour was told to read its release again."""
    return {**plan.load_generation, colour: plan.load_generation.get(colour, 0) + 1}
