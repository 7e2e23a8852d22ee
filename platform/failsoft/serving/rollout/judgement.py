"""Whether a subject may go on to the next stage, must stay, or falls. Pure: evidence and policy in, a decision out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from failsoft.health.monitor import Status, Verdict
from failsoft.health.panel import Finding
from failsoft.health.sequential import (
    Comparison,
    Tally,
    compare_arms,
    compare_with_rate,
    log_evidence_of_worse,
    samples_needed,
    samples_needed_against,
)
from failsoft.serving.plan.plan import Stage
from failsoft.serving.rollout.stages import NEXT, ON_TRIAL, StagePolicy

_CAP = 1_000_000
_MAX_LOG = 600.0
"""Beyond it a float has no e-value any more."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that the judgement of a stage rests on."""

    stage: Stage
    in_stage: Tally
    """The subject's answers in this stage."""
    on_trial: Tally
    """The subject's answers since it entered SHADOW, under the same weights."""
    stand_in: Tally | None
    """The stand-in model's answers since then; None: the ladder stands in."""
    healthy_bad_fraction: float | None
    """From the release's own baseline; None: unknown."""
    active_s: float
    """Time in this stage while answers arrived."""
    since_answer_s: float | None
    """Since the subject's last answer in this stage; None: none yet."""
    verdict: Verdict | Finding
    """Of the health monitor over this stage."""
    ready_fraction: float | None
    """Share of the subject's replicas that are ready; None: unknown."""


class Action(StrEnum):
    """What a judgement asks for."""

    HOLD = "hold"
    ADVANCE = "advance"
    TRIP = "trip"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do about a stage, and why in words."""

    action: Action
    why: str


def judge_stage(evidence: Evidence, policy: StagePolicy) -> Decision:
    """Whether the subject goes on, stays, or falls. What is missing or not a number holds it, and never passes it."""
    if evidence.verdict.status is Status.DEGRADED:
        return Decision(action=Action.TRIP, why=evidence.verdict.reason)
    if evidence.stage not in ON_TRIAL:
        return Decision(action=Action.HOLD, why=f"{evidence.stage} has no trial to pass")
    if _compare(evidence, evidence.in_stage, policy) is Comparison.WORSE:
        return Decision(action=Action.TRIP, why=f"surely worse than what stands in: {in_words(evidence)}")
    missing = _missing(evidence, policy)
    if missing is not None:
        return Decision(action=Action.HOLD, why=missing)
    return Decision(action=Action.ADVANCE, why=in_words(evidence))


def _missing(evidence: Evidence, policy: StagePolicy) -> str | None:
    """The first condition that is not met; None when all are."""
    rule = policy.rules[evidence.stage]
    total, active_s, silent_s = evidence.in_stage.total, evidence.active_s, evidence.since_answer_s
    if silent_s is None or not silent_s <= policy.max_gap_s:
        return "no answer of the subject arrives" if silent_s is None else f"no answer for {silent_s:.1f} s"
    if not total >= rule.min_samples:
        return f"{total} of {rule.min_samples} answers"
    if not active_s >= rule.min_time_s:
        return f"{active_s:.0f} of {rule.min_time_s:.0f} s with answers arriving"
    if evidence.verdict.status is not Status.HEALTHY:
        return f"health: {evidence.verdict.reason}"
    if _compare(evidence, evidence.on_trial, policy) is not Comparison.NOT_WORSE:
        return f"undecided whether it is worse: {in_words(evidence)}"
    return _missing_capacity(evidence, policy)


def _missing_capacity(evidence: Evidence, policy: StagePolicy) -> str | None:
    wanted, ready = policy.share_of(NEXT[evidence.stage]), evidence.ready_fraction
    if ready is None:
        return "it is not known how many replicas are ready"
    if not ready >= wanted:
        return f"only {ready:.0%} of the replicas are ready, {wanted:.0%} are needed next"
    return None


def _compare(evidence: Evidence, subject: Tally, policy: StagePolicy) -> Comparison:
    if evidence.stand_in is not None:
        if not evidence.stand_in.total:  # a subject without a bad answer would pass against anything, even nothing
            return Comparison.UNDECIDED
        return compare_arms(subject, evidence.stand_in, margin=policy.margin, alpha=policy.alpha)
    reference = evidence.healthy_bad_fraction
    if reference is None or not 0.0 <= reference <= 1.0:
        return Comparison.UNDECIDED
    return compare_with_rate(subject, reference, margin=policy.margin, alpha=policy.alpha)


def answers_to_compare(evidence: Evidence, policy: StagePolicy) -> int | None:
    """How many answers since SHADOW began show that a subject just as bad as what stands in is no worse.

    None: no number of them would, since too little is known of what stands in.
    """
    stand_in, reference = evidence.stand_in, evidence.healthy_bad_fraction
    if stand_in is not None:
        needed = samples_needed_against(stand_in, margin=policy.margin, alpha=policy.alpha, cap=_CAP)
    elif reference is None or not 0.0 <= reference <= 1.0:
        return None
    else:
        needed = samples_needed(reference, margin=policy.margin, alpha=policy.alpha, cap=_CAP)
    return needed if needed < _CAP else None


def in_words(evidence: Evidence) -> str:
    """The numbers behind a move, as ``412 answers in 301 s, 1.2 % weak against 1.4 %, e-value 0.3 …``.

    The e-value is that of the subject being worse at all, by any margin: 20 or more is proof at an alpha of 5 %.
    """
    tally = evidence.in_stage
    against = _reference_in_words(evidence)
    numbers = f"{tally.total} answers in {evidence.active_s:.0f} s, {_percent(tally)} weak against {against}"
    return f"{numbers}{_e_value_in_words(evidence)}"


def _e_value_in_words(evidence: Evidence) -> str:
    reference = evidence.healthy_bad_fraction if evidence.stand_in is None else evidence.stand_in
    if reference is None:
        return ""
    log_e_value = log_evidence_of_worse(evidence.in_stage, reference)
    if math.isnan(log_e_value):
        return ""
    return f", e-value {math.exp(min(log_e_value, _MAX_LOG)):.1g} of being worse"


def _reference_in_words(evidence: Evidence) -> str:
    if evidence.stand_in is not None:
        return f"{_percent(evidence.stand_in)} of {evidence.stand_in.total} of the stand-in"
    healthy = evidence.healthy_bad_fraction
    return "an unknown baseline" if healthy is None else f"{100 * healthy:.1f} % of the healthy baseline"


def _percent(tally: Tally) -> str:
    return f"{100 * tally.bad / tally.total:.1f} %" if tally.total else "none"
