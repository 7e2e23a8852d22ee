"""Gates over what a real replica said: it loads, answers, is quick, and says what training recorded (no skew)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from failsoft.release.policy import GatePolicy
from failsoft.release.replica import OnlineAnswer, ReplicaReport
from failsoft.release.report import GateResult
from failsoft.release.spread import Floats

LOADS = "replica: loads and answers"


def judge_replica(report: ReplicaReport, asked: int, policy: GatePolicy) -> GateResult:
    """Did a new process load the release in time, and was every text answered, odd ones too?"""
    answered = sum(bool(answer.intent and answer.source) for answer in report.answers)
    limit = policy.max_load_s
    return GateResult(
        name=LOADS,
        passed=asked > 0 and answered == asked == len(report.answers) and report.load_s <= limit,
        value=report.load_s,
        limit=limit,
        why=f"process {report.pid} loaded it in {report.load_s:.2f} s, at most {limit:g} s allowed, and answered "
        f"{answered} of {asked} texts, holding {report.rss_mb:.0f} MB",
    )


def judge_latency(report: ReplicaReport, policy: GatePolicy) -> GateResult:
    """Is the release quick enough for its project?"""
    limit, p50_ms, p95_ms = policy.max_latency_p95_ms, report.latency_ms(0.5), report.latency_ms(0.95)
    timed = sum(answer.ids is not None for answer in report.answers)
    return GateResult(
        name="replica: latency budget",
        passed=timed >= policy.min_samples and p95_ms <= limit,
        value=p95_ms,
        limit=limit,
        why=f"one text alone takes {p50_ms:.2f} ms at the median and {p95_ms:.2f} ms at the 95th percentile of {timed} "
        f"texts, at most {limit:g} ms allowed",
    )


def judge_same_ids(
    recorded: Sequence[tuple[int, ...]], online: Sequence[OnlineAnswer], policy: GatePolicy
) -> GateResult:
    """Do the word numbers that reach the network in serving equal those of training?"""
    pairs = list(zip(recorded, online, strict=True))
    other = [n for n, (ours, theirs) in enumerate(pairs) if theirs.ids != ours]
    limit = policy.min_same_ids_fraction
    share = 1.0 - len(other) / len(pairs) if pairs else math.nan
    first = f"; first: training {_short(pairs[other[0]][0])}, serving {_short(pairs[other[0]][1].ids)}" if other else ""
    return GateResult(
        name="skew: word ids",
        passed=len(pairs) >= policy.min_samples and share >= limit,
        value=share,
        limit=limit,
        why=f"{len(pairs) - len(other)} of {len(pairs)} texts reach the network as training encoded them, at least "
        f"{limit:.1%} needed{first}",
    )


def judge_same_logits(recorded_BC: Floats, online: Sequence[OnlineAnswer], policy: GatePolicy) -> GateResult:
    """Do the logits that leave the network in serving equal those of training? For releases with whole weights."""
    pairs = [(ours, theirs.logits) for ours, theirs in zip(recorded_BC, online, strict=True) if theirs.logits]
    shift = _largest_shift(pairs)
    limit = policy.max_logit_shift
    return GateResult(
        name="skew: logits",
        passed=len(pairs) >= policy.min_samples and shift <= limit,
        value=shift,
        limit=limit,
        why=f"the 99.5th percentile over {len(pairs)} texts of the largest change of a logit is {shift:.2g} logit std "
        f"deviations, at most {limit:g} allowed",
    )


def judge_same_answers(recorded: Sequence[str], online: Sequence[OnlineAnswer], policy: GatePolicy) -> GateResult:
    """Does a caller get the intent that training recorded?

    Answers of the fallback, to texts that the model doubts, are not compared.
    """
    pairs = [(ours, said) for ours, said in zip(recorded, online, strict=True) if said.source == "model"]
    same = sum(ours == said.intent for ours, said in pairs)
    limit = policy.min_same_answers_fraction
    share = same / len(pairs) if pairs else math.nan
    return GateResult(
        name="skew: answers",
        passed=len(pairs) >= policy.min_samples and share >= limit,
        value=share,
        limit=limit,
        why=f"{same} of {len(pairs)} answers of the model are those that training recorded, at least {limit:.1%} "
        f"needed; {len(online) - len(pairs)} texts were answered by the fallback",
    )


def _largest_shift(pairs: Sequence[tuple[Floats, tuple[float, ...]]]) -> float:
    """NaN without answers, or where one is not finite; Inf where their lengths differ."""
    if not pairs:
        return math.nan
    if any(len(ours) != len(theirs) for ours, theirs in pairs):
        return math.inf
    ours_BC, theirs_BC = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    with np.errstate(divide="ignore", invalid="ignore"):
        shifts_B = np.abs(ours_BC - theirs_BC).max(axis=1) / ours_BC.std()
    return float(np.quantile(shifts_B, 0.995)) if np.isfinite(shifts_B).all() else math.nan


def _short(ids: tuple[int, ...] | None) -> str:
    return "nothing" if ids is None else f"{list(ids[:8])}{'…' if len(ids) > 8 else ''}"
