"""Fitting a plan to what is there inside one stage: capacity, traffic, quiet. Pure; never starts or ends a stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from failsoft.serving.plan.plan import Colour, RoutingPlan, Stage
from failsoft.serving.rollout.stages import ON_TRIAL, StagePolicy

_SETTLED_S = 1.0
"""More share is given only after so long without a change, so that a flapping replica does not shake the plan."""
_LEAST_PART = 1e-6
"""Of a share, where the subject has none just now: shares have to rise from stage to stage."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a plan is fitted to."""

    samples: int
    """Answers of the subject since the plan was last fitted."""
    since_s: float
    """Time since then, or since the first of them in this stage."""
    ready_fraction: float | None
    """Share of the subject's replicas that are ready; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """New shares for a plan, and why."""

    share: float
    mirror_share: float
    why: str


def shape_of(plan: RoutingPlan, situation: Situation, policy: StagePolicy) -> Shape | None:
    """The better shape for a plan on trial; None when it fits."""
    if plan.stage is Stage.SHADOW:
        return _mirror_shape(plan, situation, policy)
    return _share_shape(plan, situation, policy) if plan.stage in ON_TRIAL else None


def no_higher(policy: StagePolicy, plan: RoutingPlan) -> StagePolicy:
    """The policy with shares that give the subject no more than it has: for when nobody knows which ones were meant."""
    given = policy.share_of(plan.stage)
    if plan.stage not in ON_TRIAL or not plan.share < given:
        return policy
    part = max(plan.share / given, _LEAST_PART)
    rules = {stage: replace(rule, share=rule.share * part) for stage, rule in policy.rules.items()}
    return replace(policy, rules=rules)


def _mirror_shape(plan: RoutingPlan, situation: Situation, policy: StagePolicy) -> Shape | None:
    share = plan.mirror_share
    wanted = mirror_share_wanted(share, samples=situation.samples, elapsed_s=situation.since_s, policy=policy)
    if wanted == share:
        return None
    words = f"traffic is thin ({situation.samples} copies in {situation.since_s:.0f} s)"
    return Shape(share=0.0, mirror_share=wanted, why=f"{words}: {wanted:.1%} copied instead of {share:.1%}")


def mirror_share_wanted(share: float, *, samples: int, elapsed_s: float, policy: StagePolicy) -> float:
    """The share of traffic to copy, given that ``share`` brought ``samples`` in ``elapsed_s``: never less than it is.

    Asks for SHADOW's ``min_samples`` in its ``min_time_s`` with a fifth to spare, once copies come at less than two
    thirds of that pace over a fifth of the time. Without any copy there is no pace to go by: after the whole time the
    share is doubled.
    """
    rule = policy.rules[Stage.SHADOW]
    if not elapsed_s >= (rule.min_time_s / 5 if samples else rule.min_time_s):
        return share
    needed_hz, found_hz = rule.min_samples / rule.min_time_s, samples / elapsed_s
    if not found_hz < needed_hz / 1.5:
        return share
    return min(1.0, share * (1.2 * needed_hz / found_hz if samples else 2.0))


def _share_shape(plan: RoutingPlan, situation: Situation, policy: StagePolicy) -> Shape | None:
    """Less at once when replicas are missing, more again when they are back."""
    ready = situation.ready_fraction
    if ready is None or not 0.0 <= ready <= 1.0:
        return None
    wanted = min(policy.share_of(plan.stage), ready)
    grows = wanted > plan.share
    if wanted == plan.share or (grows and situation.since_s < _SETTLED_S):
        return None
    words = f"{ready:.0%} of the replicas are ready"
    return Shape(share=wanted, mirror_share=0.0, why=f"{words}: share {wanted:.0%} instead of {plan.share:.0%}")


def ready_fraction(replicas_by_state: Mapping[str, int]) -> float | None:
    """Share of a deployment's replicas that run, of all but those that are leaving; None without any."""
    staying = sum(count for state, count in replicas_by_state.items() if state != "STOPPING")
    return replicas_by_state.get("RUNNING", 0) / staying if staying else None


def ready_fractions(deployments: Iterable[tuple[Colour, Mapping[str, int]]]) -> dict[Colour, float]:
    """For each colour of which something is known the share of its replicas that run.

    Two apps on one cluster have a blue one each, and whose is whose is not told: the smaller share counts, since with
    the other's a model could get more traffic than it can carry.
    """
    found: dict[Colour, float] = {}
    for colour, replicas_by_state in deployments:
        fraction = ready_fraction(replicas_by_state)
        if fraction is not None:
            found[colour] = min(fraction, found.get(colour, fraction))
    return found
