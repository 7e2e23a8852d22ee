"""Which orders of an operator make sense in which state. Pure: a refusal is a ConfigError with a sentence."""

from __future__ import annotations

import math

from failsoft.errors import ConfigError
from failsoft.serving.plan.plan import Stage
from failsoft.serving.plan.planstore import RolloutState
from failsoft.serving.rollout.stages import NEXT, ON_TRIAL


def refuse_bad_time(for_s: float | None) -> None:
    """An order lasts a finite time above 0, or (None) until it is ended."""
    if for_s is not None and not (for_s > 0.0 and math.isfinite(for_s)):
        raise ConfigError(f"for_s is {for_s}; give seconds above 0, or none for an order without end")


def force_in_words(for_s: float | None, *, why: str, by: str) -> str:
    """An order to hold the subject back; two with the same words are the same order."""
    limit = "until restored" if for_s is None else f"for {for_s:.0f} s"
    return f"ordered by {by} {limit}: {why}"


def refuse_bad_proposal(state: RolloutState, release: str, *, again: bool) -> None:
    """A release may begin its way unless it was rejected, serves already, or an operator holds everything back.

    One that was rejected may, where the operator says that she means it: it is on trial as any other.
    """
    plan = state.plan
    if release in state.rejected and not again:
        raise ConfigError(
            f"{release} was rejected: {state.rejected[release]}; publish a mended one under a new name, or let the "
            f"same one try again: failsoft release promote {release} --again"
        )
    if plan.forced:
        raise ConfigError(f"an operator's order is in force ({plan.why}); end it first: failsoft restore")
    if plan.stage is not Stage.SERVING and plan.stand_in and release == plan.releases.get(plan.stand_in):
        raise ConfigError(f"{release} serves already, as the stand-in of {plan.subject_release} in {plan.stage}")


def may_reject(state: RolloutState) -> bool:
    """Whether the subject is a release on its first way up, with an older one that can serve in its place."""
    return on_its_way(state) and not state.proven and older_one_at_hand(state)


def older_one_at_hand(state: RolloutState) -> bool:
    """Whether an older release could serve: one that stands in, or, with one slot, one that is kept in host memory."""
    plan = state.plan
    return plan.stand_in is not None or (state.slots == 1 and plan.releases.get(plan.subject.other) is not None)


def on_its_way(state: RolloutState) -> bool:
    """Whether the subject is below full service, and would rise again by itself."""
    return state.plan.stage in ON_TRIAL or state.plan.stage is Stage.DEGRADED


def is_given_up(state: RolloutState, release: str) -> bool:
    """Whether a release was called off before, so that calling it off again changes nothing."""
    plan = state.plan
    return release in state.rejected and (plan.stage is Stage.REJECTED or release != plan.subject_release)


def refuse_bad_abort(state: RolloutState, release: str) -> None:
    """Only the subject can be called off, on trial or in service, and only when an older release can serve."""
    _refuse_another(state, release)
    if older_one_at_hand(state):
        return
    if not state.proven:
        raise ConfigError("no older release could serve in its place; to answer by the ladder: failsoft degrade")
    raise ConfigError(f"no older release stands by for {release}; to hold back the one that serves: failsoft degrade")


def refuse_bad_hold(state: RolloutState, release: str) -> None:
    """Only what rises by itself can be held where it is."""
    _refuse_another(state, release)
    if not on_its_way(state):
        raise ConfigError(f"{release} is in {state.plan.stage} and not on its way; there is nothing to hold")


def refuse_bad_advance(state: RolloutState, release: str, from_stage: Stage) -> None:
    """An operator lets the subject go on from the stage in which she saw it, and from no other."""
    _refuse_another(state, release)
    if from_stage not in ON_TRIAL:
        raise ConfigError(f"{from_stage} has no trial to pass; advance from one of {', '.join(NEXT)}")
    if state.plan.stage is not from_stage:
        raise ConfigError(f"{release} is in {state.plan.stage}, not in {from_stage}; look at it: failsoft status")


def _refuse_another(state: RolloutState, release: str) -> None:
    plan = state.plan
    if release != plan.subject_release or plan.stage is Stage.REJECTED:
        raise ConfigError(
            f"{release} is not on trial; {plan.subject_release} is in {plan.stage}. To hold back what serves: "
            "failsoft degrade"
        )
