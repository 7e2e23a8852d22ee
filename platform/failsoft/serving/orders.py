"""Which orders of an operator make sense in which state. Pure: a refusal is a ConfigError with a sentence."""

from __future__ import annotations

import math

from failsoft.errors import ConfigError
from failsoft.serving.plan import Stage
from failsoft.serving.planstore import RolloutState
from failsoft.serving.stages import ON_TRIAL


def refuse_bad_time(for_s: float | None) -> None:
    """An order lasts a finite time above 0, or (None) until it is ended."""
    if for_s is not None and not (for_s > 0.0 and math.isfinite(for_s)):
        raise ConfigError(f"for_s is {for_s}; give seconds above 0, or none for an order without end")


def force_in_words(for_s: float | None, *, why: str, by: str) -> str:
    """An order to hold the subject back; two with the same words are the same order."""
    limit = "until restored" if for_s is None else f"for {for_s:.0f} s"
    return f"ordered by {by} {limit}: {why}"


def refuse_bad_proposal(state: RolloutState, release: str) -> None:
    """A release may begin its way unless it was rejected, serves already, or an operator holds everything back."""
    plan = state.plan
    if release in state.rejected:
        raise ConfigError(f"{release} was rejected: {state.rejected[release]}; publish a mended one under a new name")
    if plan.forced:
        raise ConfigError(f"an operator's order is in force ({plan.why}); end it first: failsoft restore")
    if plan.stage is not Stage.SERVING and plan.stand_in and release == plan.releases.get(plan.stand_in):
        raise ConfigError(f"{release} serves already, as the stand-in of {plan.subject_release} in {plan.stage}")


def may_reject(state: RolloutState) -> bool:
    """Whether the subject is a release on its first way up, with an older one that serves in its place."""
    on_its_way = state.plan.stage in ON_TRIAL or state.plan.stage is Stage.DEGRADED
    return on_its_way and not state.proven and state.plan.stand_in is not None


def refuse_bad_abort(state: RolloutState) -> None:
    """Only a release on trial can be called off, and only when an older one can serve."""
    if may_reject(state):
        return
    if not state.proven and state.plan.stand_in is None:
        raise ConfigError("no older release could serve in its place; to answer by the ladder: failsoft degrade")
    raise ConfigError("no release is on trial; to hold back the one that serves, use: failsoft degrade")
